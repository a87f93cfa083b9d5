#!/usr/bin/env python3
"""cli_label.py: encoders that say labels, from outside: trained on texts that the test makes, evaluated, applied, resumed, and what bad files are told."""

import json
import os
import random
import unittest

from cli_case import BAD_FILE, BERT, Case, OK, UNSUPPORTED, USAGE, heed, learns, read_file

SIZE = "--layers 1 --heads 2 --width 64 --batch 16 --steps 120 --lr 3e-3 --warmup 20 --threads 1 --quiet".split()
GOOD, BAD = "fine lovely great bright warm happy".split(), "poor awful dull dark cold sad".split()
FILL = "the a film play book was and it is very with so we saw in town".split()
PEOPLE, TOWNS, VERBS = "anna boris clara david".split(), "paris rome vienna lisbon".split(), "visits sees leaves loves".split()


def reviews(count, seed=1):
    """Lines of LABEL, tab, text: one word decides."""
    pick = random.Random(seed)
    lines = []
    for _ in range(count):
        label = pick.randrange(2)
        words = [pick.choice(FILL) for _ in range(pick.randrange(2, 10))]
        words.insert(pick.randrange(len(words) + 1), pick.choice((BAD, GOOD)[label]))
        lines.append(f"{('bad', 'good')[label]}\t{' '.join(words)}\n")
    return "".join(lines).encode()


def sentences(count, seed=1):
    """TOKEN, tab, LABEL: a town behind a verb is an object, before it a subject."""
    pick = random.Random(seed)
    lines = []
    for _ in range(count):
        for _ in range(pick.randrange(1, 4)):
            first, second = pick.choice(PEOPLE + TOWNS), pick.choice(PEOPLE + TOWNS)
            lines += [f"{first}\t{'PER' if first in PEOPLE else 'TOWN'}-S\n", f"{pick.choice(VERBS)}\tO\n", f"{second}\t{'PER' if second in PEOPLE else 'TOWN'}-O\n", ".\tO\n"]
        lines.append("\n")
    return "".join(lines).encode()


class Labels(Case):
    def train(self, objective, out, *more, data=None):
        path = data or self.path(f"{objective}.data", (reviews if objective == "class" else sentences)(400))
        self.assertEqual(self.prints("train", "encoder", "--objective", objective, "--data", path, *SIZE, *more, "--out", self.path(out)), "")
        return self.path(out)

    def config(self, run):
        return json.loads(read_file(os.path.join(run, "config.json")))

    def evaluated(self, run, *more):
        return json.loads(self.prints("eval", run, "--json", "--threads", "1", *more))


class Results(Labels):
    @learns
    def test_classes(self):
        run = self.train("class", "run", "--tokens", "bpe:330")
        found = self.evaluated(run)
        self.assertEqual(set(found), {"model", "loss", "accuracy", "texts"})
        self.assertEqual(found["texts"], 40)
        self.assertGreaterEqual(found["accuracy"], 0.95)
        self.assertGreaterEqual(self.evaluated(run, "--data", self.path("fresh", reviews(200, 2)))["accuracy"], 0.95)
        config = self.config(run)
        self.assertEqual((config["architectures"], config["id2label"], config["label2id"]),
                         (["BertForSequenceClassification"], {"0": "bad", "1": "good"}, {"bad": 0, "good": 1}))
        texts = [line.split("\t")[1] for line in reviews(50, 3).decode().splitlines()]
        said = self.prints("label", run, "--threads", "1", stdin="\n".join(texts).encode())
        self.assertEqual([line.split("\t")[1] for line in said.splitlines()], texts)
        right = sum(a == b for a, b in zip(said.splitlines(), reviews(50, 3).decode().splitlines()))
        self.assertGreaterEqual(right, 47)
        self.assertRegex(self.prints("eval", run), r"\Aloss +\d\.\d{4}\naccuracy +[\d.]+ % \(\d+ of 40 texts\)\n\Z")
        self.assertIn("great", self.prints("show", run, "a great film"))
        self.assertIn("best", os.listdir(run))
        self.assertGreaterEqual(self.evaluated(os.path.join(run, "best"), "--data", self.path("fresh"))["accuracy"], 0.95)

    @learns
    def test_labels(self):
        run = self.train("labels", "run", "--tokens", "bpe:300", "--steps", "250")
        found = self.evaluated(run)
        self.assertEqual(set(found), {"model", "loss", "accuracy", "tokens"})
        self.assertGreaterEqual(found["accuracy"], 0.98)
        self.assertEqual(self.config(run)["architectures"], ["BertForTokenClassification"])
        self.assertEqual(list(self.config(run)["label2id"]), ["O", "PER-O", "PER-S", "TOWN-O", "TOWN-S"])
        said = self.prints("label", run, "rome loves anna .\n\nclara sees\tparis .")
        self.assertEqual(said, "rome\tTOWN-S\nloves\tO\nanna\tPER-O\n.\tO\n\nclara\tPER-S\nsees\tO\nparis\tTOWN-O\n.\tO\n\n")
        # what it prints is what it reads
        self.assertEqual(self.evaluated(run, "--data", self.path("said", said.encode())), {**found, "accuracy": 1, "tokens": 8, "loss": self.evaluated(run, "--data", self.path("said"))["loss"]})
        self.assertRegex(self.prints("eval", run), r"\(\d+ of %d words\)\n\Z" % found["tokens"])

    @learns
    def test_characters_and_bytes(self):
        # a word is several tokens then, and the first bears the label
        for tokens in ("char", "byte"):
            run = self.train("labels", tokens, "--tokens", tokens)
            self.assertGreaterEqual(self.evaluated(run)["accuracy"], 0.9)

    @learns
    def test_from_an_encoder(self):
        base, data = self.train("class", "base", "--tokens", "bpe:330"), self.path("class.data")
        one = "--steps 1 --lr 1e-5 --batch 16 --threads 1 --quiet".split()
        # labels that it says already: its head goes on
        self.prints("train", "from", base, "--objective", "class", "--data", data, *one, "--out", self.path("on"))
        self.assertGreaterEqual(self.evaluated(self.path("on"))["accuracy"], 0.95)
        self.assertEqual(self.config(self.path("on"))["id2label"], {"0": "bad", "1": "good"})
        # others, or labels of tokens: a head of its own
        other = self.path("other.data", reviews(400).replace(b"good\t", b"fine\t"))
        more = "--steps 40 --lr 3e-3 --batch 16 --threads 1 --quiet".split()
        self.prints("train", "from", base, "--objective", "class", "--data", other, *more, "--freeze", "layers.*", "--out", self.path("other"))
        self.assertGreaterEqual(self.evaluated(self.path("other"))["accuracy"], 0.9)
        words = self.path("labels.data", sentences(100))
        self.prints("train", "from", base, "--objective", "labels", "--data", words, *one, "--out", self.path("tagger"))
        self.assertEqual(self.config(self.path("tagger"))["architectures"], ["BertForTokenClassification"])
        self.assertEqual(list(self.config(self.path("tagger"))["label2id"]), ["O", "PER-O", "PER-S", "TOWN-O", "TOWN-S"])
        self.refuses(USAGE, "--freeze: head.weight is new, so it has to learn", "train", "from", base, "--objective", "labels", "--data", words, *one, "--freeze", "head.*", "--out", self.path("no"))
        self.refuses(UNSUPPORTED, ["base: says labels", "--objective class"], "train", "from", base, "--data", data, *one, "--out", self.path("no"))

    def test_json(self):
        run = self.train("class", "run", "--steps", "5")
        lines = self.prints("label", run, "--json", stdin=b"so sad\nso \xe2\x82\xac\n").splitlines()
        first, second = (json.loads(line) for line in lines)
        self.assertEqual((first["text"], second["text"]), ("so sad", "so €"))
        self.assertEqual([s["label"] for s in first["scores"]], ["bad", "good"])
        self.assertAlmostEqual(sum(s["p"] for s in first["scores"]), 1, places=6)
        self.assertEqual(first["label"], max(first["scores"], key=lambda s: s["logit"])["label"])
        tagger = self.train("labels", "tagger", "--steps", "5")
        words = json.loads(self.prints("label", tagger, "--json", "anna € rome"))["words"]
        self.assertEqual([w["word"] for w in words], ["anna", "€", "rome"])
        self.assertEqual([sorted(w) for w in words], [["label", "scores", "word"], ["word"], ["label", "scores", "word"]])  # no character of it is known
        self.assertEqual(self.prints("label", tagger, "€"), "€\t-\n\n")

    @learns
    def test_other_encoders_and_validation_files(self):
        held = self.path("held", reviews(60, 5))
        run = self.train("class", "run", "--tokens", "bpe:330", "--pre-norm", "--validation", held)
        self.assertEqual(self.config(run)["model_type"], "heed")
        found = self.evaluated(run)
        self.assertEqual(found["texts"], 60)
        self.assertEqual(found, self.evaluated(run, "--data", held))
        self.assertGreaterEqual(found["accuracy"], 0.9)

    def test_logs_have_the_accuracy(self):
        log = self.path("log")
        self.train("class", "run", "--steps", "20", "--eval-every", "10", "--log", log)
        lines = [json.loads(line) for line in read_file(log).splitlines()]
        self.assertEqual([line["step"] for line in lines if "accuracy" in line], [10, 20])

    def test_windows_lines(self):
        plain = self.train("class", "plain", "--steps", "5")
        run = self.train("class", "run", "--steps", "5", data=self.path("windows", reviews(400).replace(b"\n", b"\r\n")))
        self.assertEqual(read_file(os.path.join(run, "model.safetensors")), read_file(os.path.join(plain, "model.safetensors")))


class Lengths(Labels):
    def trained(self, objective, *more):
        arguments = ["train", "encoder", "--objective", objective, "--data", self.path(f"{objective}.data", (reviews if objective == "class" else sentences)(100)), *SIZE[:-1], "--steps", "3", *more]
        done = heed(*arguments, "--out", self.path("run"))
        self.assertEqual(done.returncode, OK, done.stderr)
        return done.stderr.decode()

    def test_longer_than_the_context(self):
        said = self.trained("class", "--context", "20")
        self.assertRegex(said, r"heed: \d+ of them are longer than the context of 20 tokens: what lies beyond is left out \(--context\)")
        done = heed("label", self.path("run"), "we saw it and " * 20)
        self.assertEqual((done.returncode, done.stdout.count(b"\n")), (OK, 1))
        self.assertRegex(done.stderr.decode(), r"\Aheed: 1 of 1 texts have more tokens than the model's 20 positions: their classes are those of their beginnings\n\Z")

    def test_sentences_are_cut_between_words(self):
        said = self.trained("labels", "--context", "20")
        self.assertRegex(said, r"longer than the context of 20 tokens: they are cut between words")
        text = "anna visits rome . " * 6 + "a" * 40 + " boris"
        done = heed("label", self.path("run"), text)
        self.assertEqual(done.returncode, OK)
        self.assertEqual([line.split("\t")[0] for line in done.stdout.decode().splitlines()[:-1]], text.split())
        self.assertNotIn(b"\t-\n", done.stdout)
        self.assertIn(b"they were read in parts", done.stderr)

    def test_the_context_is_that_of_the_longest(self):
        self.assertNotIn("longer", self.trained("class"))
        longest = max(len(line.split("\t")[1]) for line in reviews(100).decode().splitlines())
        self.assertEqual(self.config(self.path("run"))["max_position_embeddings"], longest + 2)


class Resuming(Labels):
    def test_resumed_bits(self):
        for objective in ("class", "labels"):
            settings = ("--dropout", "0.1", "--save-every", "10", "--steps", "30", "--accumulate", "2")
            whole = self.train(objective, f"{objective} whole", *settings, "--threads", "1")
            part = self.train(objective, f"{objective} part", *settings)
            newest = sorted(os.listdir(os.path.join(part, "checkpoints")))[-1]
            for name in os.listdir(os.path.join(part, "checkpoints", newest)):
                os.remove(os.path.join(part, "checkpoints", newest, name))
            os.rmdir(os.path.join(part, "checkpoints", newest))
            os.remove(os.path.join(part, "model.safetensors"))
            self.train(objective, f"{objective} part", *settings, "--resume")
            for name in ("model.safetensors", "config.json", "tokenizer.json", "best/model.safetensors"):
                self.assertEqual(read_file(os.path.join(whole, name)), read_file(os.path.join(part, name)), name)

    def test_other_data(self):
        run = self.train("class", "run", "--steps", "3")
        for data, said in ((reviews(400).replace(b"good\t", b"fair\t"), "label: good there, fair asked for"), (reviews(400).replace(b"good\t", b"bad\t", 1), "texts-hash: "), (reviews(410), "texts: 360 there, 369 asked for")):
            self.refuses(1, ["the run was begun with another setting", said], "train", "encoder", "--objective", "class", "--data", self.path("class.data", data), *SIZE, "--steps", "3", "--out", run, "--resume")


class BadInput(Labels):
    def refused(self, code, fragments, objective, content, *more):
        self.refuses(code, fragments, "train", "encoder", "--objective", objective, "--data", self.path("data", content), *SIZE, "--out", self.path("run"), *more)
        self.assertFalse(os.path.exists(self.path("run")), content)

    def test_files(self):
        lines = reviews(30)
        self.refused(BAD_FILE, "data: the file is empty", "class", b"")
        self.refused(BAD_FILE, "data: there is no labelled text in it", "labels", b"\n\n")
        self.refused(BAD_FILE, ["data: line 31: there is no tab", "LABEL, tab, text"], "class", lines + b"good film\n")
        self.refused(BAD_FILE, "data: line 31: there is no label", "class", lines + b"\tfilm\n")
        self.refused(BAD_FILE, "data: line 31: there is no text", "class", lines + b"good\t\n")
        self.refused(BAD_FILE, ["data: line 3: there is no tab", "TOKEN, tab, LABEL"], "labels", b"a\tX\n\nb\n")
        self.refused(BAD_FILE, "data: line 1: there is a second tab", "labels", b"a\tX\tY\n")
        self.refused(BAD_FILE, "data: line 2: there is no token", "labels", b"a\tX\n\tY\n")
        self.refused(BAD_FILE, ["data: too few texts", "got 3", "from 10 on"], "class", reviews(3))
        self.refused(BAD_FILE, "not UTF-8", "class", lines + b"good\t\xff\n")
        self.refused(BAD_FILE, ["data: line 31: ", "not UTF-8"], "class", lines + b"good\t\xff\n", "--tokens", os.path.join(BERT, "..", "..", "..", "models", "stories260k-hf"))
        self.refused(1, "label 0 is not a text without control characters", "class", b"a\x01\tb\n" * 20)
        self.refused(BAD_FILE, ["none", "No such file"], "class", lines, "--validation", self.path("none"))
        self.refused(USAGE, "--validation: goes with --objective class and labels", "masked", lines, "--validation", self.path("data"))
        self.refused(USAGE, "--context: too short for a text", "class", lines, "--context", "2")
        plain = self.path("plain")  # a tokenizer that puts nothing around a text
        self.prints("train", "gpt", "--data", self.path("text", lines), *"--layers 1 --heads 2 --width 16 --context 8 --batch 2 --steps 1 --quiet --out".split(), plain)
        self.refused(BAD_FILE, [f"{plain}/tokenizer.json: the tokenizer puts no token before a text", "such as [CLS]"], "class", lines, "--tokens", f"{plain}/tokenizer.json")

    def test_unknown_labels(self):
        held = self.path("held", reviews(20, 5) + b"fair\tthe film\n")
        self.refused(BAD_FILE, ["held: line 21: training has not seen this label", 'got "fair"', "known: bad, good"], "class", reviews(30), "--validation", held)
        run = self.train("class", "run", "--steps", "2")
        self.refuses(BAD_FILE, ["held: line 21: training has not seen this label", "known: bad, good"], "eval", run, "--data", held)

    def test_commands_that_want_other_models(self):
        self.refuses(UNSUPPORTED, ["was not trained on labels"], "label", BERT, "a text")
        run = self.train("class", "run", "--steps", "2")
        self.refuses(UNSUPPORTED, ["gives labels, not tokens", "heed label"], "logits", run, "a text")
        self.refuses(UNSUPPORTED, ["an encoder does not generate"], "generate", run, "-p", "a")
        self.refuses(BAD_FILE, ["standard input: line 2: ", "not UTF-8"], "label", run, stdin=b"\n\xff\n")
        self.assertEqual(self.prints("label", run, stdin=b"\n\n"), "")


if __name__ == "__main__":
    unittest.main()
