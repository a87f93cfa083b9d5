#!/usr/bin/env python3
"""cli_seq2seq.py: models that read one sentence and write another, from outside: trained on a task and on files, measured, applied line for line, aligned; and what bad pairs and bad lines are
told."""

import json
import os
import random
import shutil
import unittest

from cli_case import BAD_FILE, Case, DATA, FAILED, STORIES_HF, UNSUPPORTED, USAGE, heed, learns, read_file

RECURRENT = "--width 32 --batch 16 --threads 1 --quiet".split()
SMALL = ["--layers", "1", "--heads", "2", *RECURRENT]
WORDS = {"the": "el", "cat": "gato", "dog": "perro", "sees": "ve", "hears": "oye"}


def sentences(count, seed=1):
    pick = random.Random(seed)
    lines = []
    for _ in range(count):
        words = ["the", pick.choice(["cat", "dog"]), pick.choice(["sees", "hears"]), "the", pick.choice(["cat", "dog"])]
        lines.append((" ".join(words), " ".join(WORDS[w] for w in words)))
    return lines


class Pairs(Case):
    def tsv(self, name, lines):
        return self.path(name, "".join(f"{a}\t{b}\n" for a, b in lines).encode())

    def train(self, out, *more):
        self.assertEqual(self.prints("train", "seq2seq", *SMALL, *more, "--out", self.path(out)), "")
        return self.path(out)

    def evaluated(self, run, *more):
        return json.loads(self.prints("eval", run, "--json", "--threads", "1", *more))

    def settings(self, run):
        return dict(line.split(" ", 1) for line in read_file(os.path.join(run, "training.txt")).decode().splitlines())


class Results(Pairs):
    @learns
    def test_a_task(self):
        """Strings backwards: learned, measured on strings that were never shown, translated, aligned along the anti-diagonal."""
        run = self.train("run", "--task", "reverse", "--letters", "5", "--symbols", "6", "--width", "64", "--batch", "32", "--steps", "700", "--lr", "0.003", "--examples", "20000")
        found = self.evaluated(run, "-n", "300")
        self.assertEqual(set(found), {"model", "loss", "perplexity", "exact_match", "bleu", "bleu_signature", "chrf", "chrf_signature", "sequences", "tokens"})
        self.assertGreater(found["exact_match"], 0.95)
        self.assertGreater(found["chrf"], 90)
        self.assertEqual(found["sequences"], 300)
        self.assertEqual(found["bleu_signature"], "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0")
        self.assertRegex(self.prints("eval", run, "-n", "50"), r"exact match +\d+\.\d\d % \(\d+ of 50 pairs\)\nBLEU +[\d.]+  nrefs:1\|case:mixed")
        strings = ["abcde", "fab", "cc", "edcba", "f"]
        self.assertEqual(self.prints("translate", run, stdin="\n".join(strings).encode()).splitlines(), [s[::-1] for s in strings])
        self.assertEqual(self.prints("translate", run, "abcd"), "dcba\n")
        self.assertEqual(self.prints("translate", run, "--batch", "1", stdin=b"abcd\n"), "dcba\n")
        ranks = json.loads(self.prints("align", run, "--rank-heads", "--json", "-n", "100"))
        self.assertEqual(len(ranks), 3)  # two heads and their mean
        self.assertLess(min(r["alignment_error_rate"] for r in ranks), 0.3)
        for r in ranks:
            self.assertAlmostEqual(r["product"], r["coverage"] * r["monotonicity"], 5)
        self.assertEqual(sorted(ranks, key=lambda r: -r["product"]), ranks)
        best = min(ranks, key=lambda r: r["alignment_error_rate"])
        head = ["--head", str(best["head"])] if "head" in best else []
        self.assertEqual(len(self.prints("align", run, "abcde", "edcba", "--form", "pharaoh", *head).split()), 5)
        hard = [line.split("\t") for line in self.prints("align", run, "abcde", "edcba", *head).splitlines()]
        self.assertEqual([line[0] for line in hard], list("edcba"))
        soft = [line.split("\t") for line in self.prints("align", run, "abcde", "edcba", "--form", "soft", *head).splitlines()]
        self.assertEqual((soft[0], [row[0] for row in soft[1:]]), (["", *"abcde"], list("edcba")))
        for (target, source, weight), row in zip(hard, soft[1:], strict=True):
            self.assertEqual(weight, max(row[1:]))
            self.assertEqual(soft[0][row.index(weight, 1)], source)
        said = json.loads(self.prints("align", run, "abc", "--json"))[0]  # its own translation
        self.assertEqual((said["source"], "".join(said["target"])), (list("abc"), "cba"))

    @learns
    def test_a_recurrent_task(self):
        """Short strings backwards by looking back; the alignment is the anti-diagonal."""
        run = self.path("run")
        self.prints("train", "seq2seq", *RECURRENT, "--arch", "bahdanau", "--width", "64", "--batch", "32", "--task", "reverse", "--letters", "5", "--symbols", "6",
                    "--steps", "500", "--lr", "0.005", "--examples", "20000", "--out", run)
        self.assertGreater(self.evaluated(run, "-n", "300")["exact_match"], 0.95)
        self.assertEqual(self.prints("translate", run, stdin=b"abcde\nfab\n"), "edcba\nbaf\n")
        ranks = json.loads(self.prints("align", run, "--rank-heads", "--json", "-n", "100"))
        self.assertEqual([(r["layer"], r["head"]) for r in ranks], [(0, 0)])
        self.assertLess(ranks[0]["alignment_error_rate"], 0.3)

    def test_recurrent_forms(self):
        pairs = self.tsv("pairs.tsv", sentences(60))
        for number, more in enumerate((["rnn"], ["bahdanau", "--score", "dot", "--output", "tanh"], ["bahdanau", "--score", "bilinear", "--output", "maxout", "--sampling", "0.2"],
                                       ["bahdanau", "--score", "scaled", "--separate"], ["bahdanau"])):
            run = self.path(f"run{number}")
            self.prints("train", "seq2seq", *RECURRENT, "--pairs", pairs, "--tokens", "word", "--steps", "20", "--out", run, "--arch", *more)
            self.assertEqual(self.evaluated(run)["sequences"], 6)
            self.assertEqual(self.prints("translate", run, "--beam", "3", "--n-best", "2", stdin=b"the cat sees the dog\n").count("\n"), 2)
            if more == ["rnn"]:
                self.refuses(UNSUPPORTED, "does not attend", "align", run, "the cat")
            else:
                self.assertEqual(len(self.prints("align", run, "the cat sees", "el gato ve").splitlines()), 3)

    def test_files(self):
        """A word a word, from one file and from two: the same pairs give the same model."""
        lines = sentences(60)
        one = self.tsv("pairs.tsv", lines)
        sources, targets = (self.path(name, "".join(pair[i] + "\n" for pair in lines).encode()) for i, name in enumerate(("en", "es")))
        options = ["--tokens", "word", "--steps", "30", "--save-every", "10", "--lr", "0.01"]
        a = self.train("a", "--pairs", one, *options)
        b = self.train("b", "--pairs", sources, "--targets", targets, *options)
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            self.assertEqual(read_file(os.path.join(a, name)), read_file(os.path.join(b, name)), name)
        self.assertEqual(self.settings(b)["targets"], targets)
        self.assertEqual(self.evaluated(a), {**self.evaluated(b), "model": "a"})
        self.assertEqual(self.evaluated(a)["sequences"], 6)
        self.assertEqual(self.evaluated(a, "--data", one)["sequences"], 60)
        self.assertEqual(self.evaluated(a, "--data", sources, "--targets", targets), self.evaluated(a, "--data", one))
        self.assertEqual(len(self.prints("align", a, "--pairs", one, "--form", "pharaoh").splitlines()), 60)
        self.assertIn("word", self.prints("inspect", a))

    def test_resumed(self):
        """A run that stops and goes on ends in the bytes of the one left alone."""
        pairs = self.tsv("pairs.tsv", sentences(60))
        options = ["--pairs", pairs, "--tokens", "char", "--steps", "12", "--save-every", "6"]
        whole = self.train("whole", *options)
        done = heed("train", "seq2seq", *SMALL, *options, "--out", self.path("half"), "--log", "/dev/full")
        self.assertEqual(done.returncode, 1, done.stderr)
        half = self.path("half")
        for name in os.listdir(os.path.join(half, "checkpoints")):
            if name.endswith("2"):
                os.rename(os.path.join(half, "checkpoints", name), os.path.join(self.folder, "gone"))
        self.prints("train", "seq2seq", *SMALL, *options, "--out", half, "--resume")
        self.assertEqual(read_file(os.path.join(half, "model.safetensors")), read_file(os.path.join(whole, "model.safetensors")))
        self.refuses(FAILED, ["smoothing"], "train", "seq2seq", *SMALL, *options, "--out", half, "--resume", "--smoothing", "0.1")

    def test_separate_vocabularies(self):
        run = self.train("run", "--pairs", self.tsv("pairs.tsv", sentences(60)), "--tokens", "word", "--separate", "--steps", "20")
        self.assertIn("perro", read_file(os.path.join(run, "target", "tokenizer.json")).decode())
        self.assertNotIn("perro", read_file(os.path.join(run, "tokenizer.json")).decode())
        words = set(self.prints("translate", run, "the cat sees the dog").split())
        self.assertTrue(words <= set(WORDS.values()), words)
        self.assertEqual(self.evaluated(run)["sequences"], 6)


# ---- a model that is there: BART with random weights, which reads and writes the characters from '#' to '~' and the space -----------------------

CHARACTERS = [" ", *map(chr, range(35, 127))]


def tokenizer():
    """As a tokenizer.json: <s> <pad> </s>, then the characters; </s> stands behind a text."""
    names = ["<s>", "<pad>", "</s>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": False, "vocab": {c: i for i, c in enumerate(names + CHARACTERS)}, "merges": []}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    post = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, end], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": i, "content": name, **flags} for i, name in enumerate(names)], "normalizer": None,
            "pre_tokenizer": None, "post_processor": post, "decoder": {"type": "Fuse"}, "model": model}


class Bart(Pairs):
    """Positions: 64. Layers of the decoder: 3, with 4 heads."""

    def setUp(self):
        super().setUp()
        self.model = self.path("bart")
        shutil.copytree(f"{DATA}/expected/families/bart", self.model)
        with open(os.path.join(self.model, "tokenizer.json"), "w") as stream:
            json.dump(tokenizer(), stream)

    def with_config(self, **changes):
        path = os.path.join(self.model, "config.json")
        config = {key: value for key, value in {**json.loads(read_file(path)), **changes}.items() if value is not None}
        self.path("bart/config.json", json.dumps(config).encode())

    def lines(self, count, seed=1):
        pick = random.Random(seed)
        return ["".join(pick.choice(CHARACTERS[1:]) for _ in range(pick.randint(1, 20))) for _ in range(count)]

    def translate(self, text, *more):
        return heed("translate", self.model, *more, stdin=text)


class Translating(Bart):
    def test_line_for_line(self):
        lines = [b"the cat sees the dog", b"", "the zébra".encode(), b"the dog\xff", b"the cat " * 30, b"  ", b"the dog hears the dog"]
        done = self.translate(b"\n".join(lines))
        said = done.stdout.decode().split("\n")
        self.assertEqual(done.returncode, BAD_FILE)
        self.assertEqual(len(said), len(lines) + 1)
        self.assertEqual([bool(line) for line in said], [True, False, False, False, False, False, True, False])
        errors = done.stderr.decode().splitlines()
        self.assertEqual(len(errors), 3, errors)
        for error, fragments in zip(errors, (("line 3", "\"é\"", "byte 6"), ("line 4", "UTF-8", "byte 8"), ("line 5", "too long", "got 241 tokens, allowed 64"))):
            for fragment in ("heed: standard input", *fragments):
                self.assertIn(fragment, error)
        alone = self.translate(lines[0] + b"\r\n")
        self.assertEqual((alone.returncode, alone.stdout.decode()), (0, said[0] + "\n"))
        self.assertEqual(self.prints("translate", self.model, lines[0].decode()), said[0] + "\n")

    def test_company_and_batches_do_not_matter(self):
        lines = self.lines(40)
        text = "\n".join(lines).encode()
        for more in ([], ["--beam", "3", "--scores"], ["--sample", "--seed", "3", "--scores"]):
            all_at_once = self.translate(text, "--max-tokens", "16", *more).stdout
            self.assertEqual(self.translate(text, "--max-tokens", "16", "--batch", "7", *more).stdout, all_at_once)
            self.assertEqual(self.translate(text, "--max-tokens", "16", "--batch", "1", "--threads", "1", *more).stdout, all_at_once)
            if "--sample" not in more:
                single = [self.translate(line.encode(), "--max-tokens", "16", *more).stdout for line in lines[:4]]
                self.assertEqual(b"".join(single), b"".join(all_at_once.splitlines(keepends=True)[:4]))
        # what is drawn for a line follows from its place in the text, whether or not those before it say anything
        gaps = b"\n".join([lines[0].encode(), b"", b"\xff", *(line.encode() for line in lines[3:9])])
        drawn = [self.translate(gaps, "--max-tokens", "16", "--sample", "--batch", batch).stdout for batch in ("1", "4", "32")]
        self.assertEqual(drawn[1:], drawn[:1] * 2)
        plain = self.translate("\n".join(lines[:9]).encode(), "--max-tokens", "16", "--sample").stdout
        self.assertEqual(drawn[0].splitlines()[3:], plain.splitlines()[3:])

    def test_forms(self):
        lines = b"the cat sees the dog\n\nthe dog\n"
        best = [line.split("\t") for line in self.translate(lines, "--beam", "4", "--n-best", "3", "--scores").stdout.decode().splitlines()]
        self.assertEqual([line[0] for line in best], ["1", "1", "1", "2", "3", "3", "3"])
        self.assertEqual(best[3], ["2", "", ""])
        for first in (0, 4):
            scores = [float(line[1]) for line in best[first : first + 3]]
            self.assertEqual(scores, sorted(scores, reverse=True))
        first = [line.split("\t") for line in self.translate(lines, "--beam", "4", "--scores").stdout.decode().splitlines()]
        self.assertEqual(first, [best[0][1:], best[3][1:], best[4][1:]])
        found = json.loads(self.translate(lines, "--json", "--beam", "4", "--n-best", "3").stdout)
        self.assertEqual([t["text"] for line in found for t in line["translations"]], [line[2] for line in best if line[1]])
        for line in found:
            for t in line["translations"]:
                self.assertAlmostEqual(t["score"], t["log_probability"] / t["tokens"], 6)
        drawn = [self.translate(lines, "--sample", "--seed", seed).stdout for seed in "112"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_a_model_without_what_it_needs(self):
        os.remove(os.path.join(self.model, "tokenizer.json"))
        self.refuses(UNSUPPORTED, "has no tokenizer", "translate", self.model, "x")
        self.refuses(UNSUPPORTED, "no sources to translate", "translate", STORIES_HF, "once")
        self.refuses(UNSUPPORTED, "no sources to translate", "align", STORIES_HF, "once")
        for option, value in (("targets", "x"), ("beam", "1"), ("length-penalty", "1"), ("early", "likely"), ("max-tokens", "9"), ("batch", "32")):
            self.refuses(USAGE, [f"--{option}", "does not translate"], "eval", STORIES_HF, f"--{option}", value)
        self.refuses(UNSUPPORTED, "has no tokenizer", "eval", self.model, "--beam", "2")
        os.remove(os.path.join(self.model, "generation_config.json"))
        self.with_config(decoder_start_token_id=None)
        for command in ("translate", "eval", "align", "show"):
            self.refuses(UNSUPPORTED, "do not say with which token a target begins", command, self.model, *([] if command == "eval" else ["x"]))

    def test_refusals(self):
        run = self.model
        pairs = self.tsv("pairs.tsv", [("the", "el")] * 6)
        self.refuses(USAGE, ["--n-best", "got 3", "--beam (2)"], "translate", run, "x", "--n-best", "3", "--beam", "2")
        self.refuses(USAGE, ["--temp", "--sample"], "translate", run, "x", "--temp", "1")
        self.refuses(USAGE, ["--n-best", "got 2", "--beam (1)"], "translate", run, "x", "--n-best", "2")
        self.refuses(USAGE, ["--sample", "--beam"], "translate", run, "x", "--sample", "--beam", "2")
        self.refuses(USAGE, ["--sample", "--early"], "translate", run, "x", "--sample", "--early", "first")
        self.refuses(USAGE, ["--max-tokens", "got 999"], "translate", run, "x", "--max-tokens", "999")
        self.refuses(USAGE, ["--head", "got 4", "0 to 3"], "align", run, "the cat", "--head", "4")
        self.refuses(USAGE, ["--layer", "got 3", "0 to 2"], "align", run, "the cat", "--layer", "3")
        self.refuses(USAGE, ["--pairs", "together"], "align", run, "the cat", "--pairs", "x")
        self.refuses(USAGE, ["--layer", "--rank-heads"], "align", run, "--rank-heads", "--layer", "0")
        self.refuses(USAGE, ["SOURCE", "\"é\""], "align", run, "zébra", "el")
        self.refuses(USAGE, ["TARGET", "too long"], "align", run, "the cat", "el " * 99)
        for blank in ("", "  "):
            self.refuses(USAGE, "SOURCE: empty", "align", run, blank)
            self.refuses(USAGE, "TARGET: empty", "align", run, "the cat", blank)
            self.refuses(USAGE, "TEXT: empty", "show", run, blank)
            self.assertEqual(self.prints("translate", run, blank), "\n")
        done = heed("translate", run, "zé")
        self.assertEqual((done.returncode, done.stdout), (BAD_FILE, b"\n"))
        self.assertIn("heed: TEXT: the character \"é\" (byte 2) has no token", done.stderr.decode())
        self.refuses(USAGE, ["--pairs", "does not say"], "align", run)
        self.refuses(USAGE, ["--pairs", "does not say"], "eval", run)
        links = self.path("links", b"0-0\n" * 5)
        self.refuses(BAD_FILE, ["links", "5 lines", "6 pairs"], "align", run, "--pairs", pairs, "--reference", links, "--rank-heads")
        self.path("links", b"0-0\n" * 3 + b"0_0\n" + b"0-0\n" * 2)
        self.refuses(BAD_FILE, ["links: line 4", "\"0_0\""], "align", run, "--pairs", pairs, "--reference", links, "--rank-heads")
        self.refuses(USAGE, ["--context", "whole"], "eval", run, "--context", "3")
        self.refuses(BAD_FILE, ["other.tsv: line 2", "the source", "\"é\""], "eval", run, "--data", self.tsv("other.tsv", [("the", "el"), ("zé", "el")]))
        self.refuses(BAD_FILE, ["bad.tsv: line 2", "no tab"], "eval", run, "--data", self.path("bad.tsv", b"a\tb\nab\n"))
        self.refuses(BAD_FILE, ["bad.tsv: line 2", "no tab"], "align", run, "--pairs", self.path("bad.tsv"))
        one, two = self.path("one", b"a\n"), self.path("two", b"b\nb\n")
        for command, option in (("eval", "--data"), ("align", "--pairs")):
            self.refuses(BAD_FILE, ["two: line 2", "no such line in", "one, which has 1"], command, run, option, one, "--targets", two)
            self.refuses(BAD_FILE, ["bad.tsv: line 1: the source is empty"], command, run, option, self.path("bad.tsv", b" \tb\n"))
            self.refuses(BAD_FILE, ["bad.tsv: line 2: the target: too long", "got 100 tokens, allowed 64"], command, run, option, self.path("bad.tsv", b"a\tb\na\t" + b"b" * 99 + b"\n"))
            self.refuses(BAD_FILE, ["empty: the file is empty"], command, run, option, self.path("empty", b""))
            self.refuses(BAD_FILE, ["none: cannot be opened"], command, run, option, self.path("none"))


class Measuring(Bart):
    def test_what_it_says_itself_is_exact(self):
        """A model asked for its own translations has them all; for others none."""
        lines = self.lines(12)
        own = self.translate("\n".join(lines).encode(), "--max-tokens", "20", "--scores", "--json")
        found = [line["translations"][0] for line in json.loads(own.stdout)]
        whole = [(line, t) for line, t in zip(lines, found) if t["ended"] and t["text"].strip()]
        self.assertGreater(len(whole), 5)
        pairs = self.tsv("pairs.tsv", [(line, t["text"]) for line, t in whole])
        measured = self.evaluated(self.model, "--data", pairs, "--max-tokens", "20")
        self.assertEqual((measured["exact_match"], measured["chrf"], measured["sequences"]), (1, 100, len(whole)))
        tokens = sum(t["tokens"] for _, t in whole)
        self.assertEqual(measured["tokens"], tokens)
        self.assertGreater(measured["loss"], 0)
        other = self.evaluated(self.model, "--data", self.tsv("other.tsv", [(line, "x" + t["text"]) for line, t in whole]), "--max-tokens", "20")
        self.assertEqual(other["exact_match"], 0)
        self.assertGreater(other["loss"], measured["loss"])
        self.assertEqual(self.evaluated(self.model, "--data", pairs, "--max-tokens", "20", "-n", "3")["sequences"], 3)
        sides = [self.path(name, "".join(pair[i] + "\n" for pair in [(line, t["text"]) for line, t in whole]).encode()) for i, name in enumerate(("s", "t"))]
        self.assertEqual(self.evaluated(self.model, "--data", sides[0], "--targets", sides[1], "--max-tokens", "20"), measured)

    def test_alignments_agree(self):
        """Hard, soft, Pharaoh and JSON say the same of one head, and ranks are counted from them."""
        pairs = list(zip(self.lines(8, 2), self.lines(8, 3)))
        path = self.tsv("pairs.tsv", pairs)
        reference = self.path("links", "".join(" ".join(f"{k}-{k}" for k in range(min(map(len, pair)))) + "\n" for pair in pairs).encode())
        by_value = json.loads(self.prints("align", self.model, "--pairs", path, "--rank-heads", "--reference", reference, "--json", "--by-value"))
        ranks = json.loads(self.prints("align", self.model, "--pairs", path, "--rank-heads", "--reference", reference, "--json"))
        for each in (ranks, by_value):
            self.assertEqual(len(each), 3 * 5 + 1)
            self.assertEqual(sorted(each, key=lambda r: -r["product"]), each)
        self.assertNotEqual(ranks, by_value)
        ways = [(r, []) for r in (ranks[0], ranks[7], next(r for r in ranks if "layer" not in r))] + [(r, ["--by-value"]) for r in by_value[::3]]
        for chosen, more in ways:
            options = more + [word for name in ("layer", "head") if name in chosen for word in (f"--{name}", str(chosen[name]))]
            found = json.loads(self.prints("align", self.model, "--pairs", path, "--json", *options))
            covered = steps = forward = sources = right = links = 0
            for (source, target), one in zip(pairs, found, strict=True):
                self.assertEqual(("".join(one["source"]), "".join(one["target"])), (source, target))
                strongest = [max(range(len(source)), key=row.__getitem__) for row in one["weights"]]
                self.assertEqual(one["links"], [[j, i] for i, j in enumerate(strongest)])
                covered, sources = covered + len(set(strongest)), sources + len(source)
                steps, forward = steps + len(target) - 1, forward + sum(b >= a for a, b in zip(strongest, strongest[1:]))
                right, links = right + sum(j == i for i, j in enumerate(strongest)), links + len(target) + min(len(source), len(target))
            self.assertAlmostEqual(chosen["coverage"], covered / sources, 5)
            self.assertAlmostEqual(chosen["monotonicity"], forward / steps, 5)
            self.assertAlmostEqual(chosen["alignment_error_rate"], 1 - 2 * right / links, 5)
            pharaoh = self.prints("align", self.model, "--pairs", path, "--form", "pharaoh", *options).splitlines()
            self.assertEqual(pharaoh, [" ".join(f"{j}-{i}" for j, i in one["links"]) for one in found])
            (source, target), one = pairs[0], found[0]
            soft = [line.split("\t") for line in self.prints("align", self.model, source, target, "--form", "soft", *options).splitlines()]
            self.assertEqual((soft[0], [row[0] for row in soft[1:]]), (["", *source], list(target)))
            for row, weights in zip(soft[1:], one["weights"], strict=True):
                self.assertEqual(row[1:], [f"{w:.4f}" for w in weights])
            hard = [line.split("\t") for line in self.prints("align", self.model, source, target, *options).splitlines()]
            self.assertEqual(hard, [[target[i], source[j], f"{one['weights'][i][j]:.4f}"] for j, i in one["links"]])
        best = [word for name in ("layer", "head") if name in ranks[0] for word in (f"--{name}", str(ranks[0][name]))]
        self.assertEqual(self.prints("align", self.model, "--pairs", path, "--best-head"), self.prints("align", self.model, "--pairs", path, *best))
        by_value = json.loads(self.prints("align", self.model, "--pairs", path, "--by-value", "--json"))
        self.assertNotEqual(by_value[0]["weights"], found[0]["weights"])
        table = self.prints("align", self.model, "--pairs", path, "--rank-heads", "--reference", reference).splitlines()
        self.assertEqual((len(table), table[0].split()), (17, ["layer", "head", "coverage", "monotonicity", "product", "AER"]))

    def test_pictures(self):
        """What `heed show` draws is what `heed align` prints, with the ends that it leaves out."""
        source, target = "a" + self.lines(1, 5)[0], "b" + self.lines(1, 6)[0]  # no option
        found = json.loads(self.prints("show", self.model, source, target, "--json"))
        self.assertEqual((found["cross"], found["causal"], found["shape"]), (True, False, [3, 4, len(target) + 1, len(source) + 1]))
        self.assertEqual((found["query_tokens"], found["key_tokens"]), ([*target, "</s>"], [*source, "</s>"]))
        for layer, head in ((0, 1), (2, 3)):
            aligned = json.loads(self.prints("align", self.model, source, target, "--layer", str(layer), "--head", str(head), "--json"))[0]
            for row, other in zip(found["weights"][layer][head], aligned["weights"]):
                self.assertEqual([f"{w:.5g}" for w in row[:-1]], [f"{w:.5g}" for w in other])
                self.assertAlmostEqual(sum(row), 1, 5)
        one = json.loads(self.prints("show", self.model, source, target, "--layers", "-1", "--heads", "2", "--json"))
        self.assertEqual(one["weights"], [[found["weights"][2][2]]])
        own = json.loads(self.prints("show", self.model, source, "--json"))
        said = self.prints("translate", self.model, stdin=source.encode()).rstrip("\n")
        self.assertEqual("".join(token for token in own["query_tokens"] if token not in ("<s>", "<pad>", "</s>")), said)
        self.assertIn("rows were written from columns", self.prints("show", self.model, source, target))
        self.refuses(USAGE, 'TARGET: the character "€"', "show", self.model, source, "€")
        self.refuses(USAGE, "TEXT: ", "show", self.model, "€")
        self.refuses(USAGE, "reads a source as it was taught to", "show", self.model, "--ids", "3,4")
        self.refuses(USAGE, "TARGET: gpt-nano-sort reads one text", "show", f"{DATA}/models/gpt-nano-sort", "1", "2")


class Transliterating(Pairs):
    def test_heads_that_follow_the_letters(self):
        """Arabic to Latin, letter for letter: the head that is ranked first covers the source and does not go back, whichever way the weights are stored."""
        words = [("آتزمون", "atzmon"), ("برلين", "berlin"), ("نادر", "nader")]
        pairs = self.tsv("words.tsv", words)
        for kind in ("", "-i16", "-i8"):
            model = self.path(f"aren{kind}")
            self.prints("convert", f"{DATA}/models/aren-transliteration{kind}", model)
            ranks = json.loads(self.prints("align", model, "--pairs", pairs, "--rank-heads", "--json"))
            self.assertEqual(len(ranks), 6 * 9 + 1)
            self.assertGreater(ranks[0]["coverage"], 0.85)
            self.assertGreater(ranks[0]["monotonicity"], 0.85)
            self.assertEqual(json.loads(self.prints("align", model, words[1][0], "--best-head", "--json"))[0]["target"], list("berlin"))


class BadPairs(Pairs):
    def refused(self, fragments, content, *more, code=BAD_FILE):
        path = self.path("bad.tsv", content)
        self.refuses(code, fragments, "train", "seq2seq", *SMALL[:-1], "--pairs", path, *more, "--out", self.path("out"))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_files(self):
        good = b"a\tb\n" * 20
        for fragments, content in (
            (["line 21", "no tab"], good + b"a b\n" + good),
            (["line 2", "no tab"], b"a\tb\n\na\tb\n"),
            (["line 21", "second tab"], good + b"a\tb\tc\n"),
            (["line 21", "the source is empty"], good + b"\tb\n"),
            (["line 21", "the source is empty"], good + b"  \tb\n"),
            (["line 21", "the target is empty"], good + b"a\t\r\n"),
            (["line 21", "not UTF-8", "byte 4"], good + b"a\tb\xff\n"),
            (["line 21", "NUL"], good + b"a\tb\0\n"),
            (["empty"], b""),
            (["too few pairs", "got 3"], b"a\tb\n" * 3),
        ):
            self.refused([*fragments, "bad.tsv"], content)

    def test_two_files(self):
        long, short = b"a\n" * 12, b"b\n" * 11
        self.refused(["bad.tsv: line 12", "no such line in", "short", "which has 11"], long, "--targets", self.path("short", short))
        self.refused(["long: line 12", "no such line in", "bad.tsv", "which has 11"], short, "--targets", self.path("long", long))
        self.refused(["long: line 3", "is empty"], long, "--targets", self.path("long", b"b\nb\n \n" + b"b\n" * 9))
        self.refused(["long: line 3", "not UTF-8"], long, "--targets", self.path("long", b"b\nb\n\xff\n" + b"b\n" * 9))
        self.refused(["none", "cannot be opened"], long, "--targets", self.path("none"))

    def test_long_sentences(self):
        content = b"a b\tc\n" * 20 + b"a b a b\tc\n" + b"a\tc c c\n" + b"a\tb\n" * 8
        self.refused(["line 21", "the source: too long", "got 5 tokens, allowed 3", "--source-context"], content, "--tokens", "word", "--source-context", "3")
        self.refused(["line 22", "the target: too long", "got 4 tokens, allowed 2", "--context"], content, "--tokens", "word", "--context", "2")
        path = self.path("bad.tsv", content)
        done = heed("train", "seq2seq", *SMALL[:-1], "--pairs", path, "--tokens", "word", "--source-context", "3", "--context", "2", "--on-long", "skip", "--steps", "1", "--out", self.path("out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 pairs are longer than 3 and 2 tokens: left out", done.stderr.decode())

    def test_characters_that_training_has_not_seen(self):
        self.refused(["other: line 2", "the target", "\"é\"", "byte 2"], b"a\tb\n" * 20, "--tokens", "char", "--validation", self.path("other", "a\tb\na\tbé\n".encode()))

    def test_options(self):
        pairs = self.tsv("pairs.tsv", [("a", "b")] * 20)
        begin = ["train", "seq2seq", *SMALL, "--out", self.path("out")]
        for fragments, more in (
            (["--pairs", "missing"], []),
            (["--pairs", "together with --task"], ["--pairs", pairs, "--task", "dates"]),
            (["--targets", "--pairs"], ["--task", "dates", "--targets", pairs]),
            (["--examples", "--task"], ["--pairs", pairs, "--examples", "5"]),
            (["--validation-targets"], ["--pairs", pairs, "--validation-targets", pairs]),
            (["--validation-targets", "neither"], ["--pairs", pairs, "--targets", pairs, "--validation", pairs]),
            (["--letters", "no use"], ["--task", "dates", "--letters", "5"]),
            (["--tokens", "bpe:N"], ["--pairs", pairs, "--tokens", "bpe:3"]),
            (["--heads", "must divide"], ["--pairs", pairs, "--heads", "3"]),
            (["--score", "transformer has no use"], ["--pairs", pairs, "--score", "dot"]),
            (["--layers", "rnn has no use"], ["--pairs", pairs, "--arch", "rnn"]),
            (["--layers", "bahdanau has no use"], ["--pairs", pairs, "--arch", "bahdanau"]),
        ):
            self.refuses(USAGE, fragments, *begin, *more)
        self.refuses(BAD_FILE, ["has no token <pad>"], *begin, "--pairs", pairs, "--tokens", f"{STORIES_HF}/tokenizer.json")


if __name__ == "__main__":
    unittest.main()
