#!/usr/bin/env python3
"""cli_train.py: `heed train` from outside: runs that end, are interrupted, are killed, meet damage, bad input or a full disk, and what the other commands make of the result.

Nothing that a run has saved may be lost, a resumed run must end in the bytes of the one left alone, and whatever cannot be done is one line that says why."""

import collections
import csv
import json
import os
import random
import resource
import shlex
import shutil
import signal
import string
import subprocess
import time
import unittest

from cli_case import BAD_FILE, Case, FAILED, HEED, INTERRUPTED, NO_MEMORY, OK, SORT, STORIES_HF, STORIES_Q8, UNSUPPORTED, USAGE, environment, heed, learns, read_file

SMALL = "--layers 1 --heads 1 --width 32 --context 16 --batch 4 --quiet".split()
CHECKPOINTS = "checkpoints"


def sentences(count):
    """A text that looks like one, the same in every run."""
    pick = random.Random(1)
    words = "the cat sat on a mat and its dog ran to see what there was in our garden".split()
    return (" ".join(pick.choice(words) for _ in range(count)) + "\n").encode()


def words(count, least, most, symbols):
    pick = random.Random(2)
    return ["".join(pick.choice(string.ascii_lowercase[:symbols]) for _ in range(pick.randint(least, most))) for _ in range(count)]


class Training(Case):
    def setUp(self):
        super().setUp()
        self.text = self.path("text.txt", sentences(1500))

    def gpt(self, out, *more, kind="gpt"):
        """Arguments of a small run into a directory of the test's folder."""
        return ["train", kind, "--data", self.text, *SMALL, "--out", self.path(out), *more]

    def train(self, out, *more, **options):
        self.assertEqual(self.prints(*self.gpt(out, *more, **options)), "")
        return self.path(out)

    def resumes(self, out, *more):
        """The standard error of a run that goes on and ends well."""
        done = heed(*[a for a in self.gpt(out, *more, "--resume") if a != "--quiet"])
        self.assertEqual((done.returncode, done.stdout), (OK, b""), done.stderr)
        return done.stderr.decode()

    def checkpoints(self, run):
        return sorted(os.listdir(os.path.join(run, CHECKPOINTS)))

    def newest(self, run):
        return os.path.join(run, CHECKPOINTS, self.checkpoints(run)[-1])

    def step(self, run):
        return json.loads(read_file(os.path.join(self.newest(run), "state.json")))["step"]

    def same_result(self, a, b):
        """Model, tokenizer, best model and newest checkpoint are the same bytes."""
        for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "best/model.safetensors"):
            self.assertEqual(read_file(os.path.join(a, name)), read_file(os.path.join(b, name)), name)
        for name in ("parameters.safetensors", "moments.safetensors", "state.json"):
            self.assertEqual(read_file(os.path.join(self.newest(a), name)), read_file(os.path.join(self.newest(b), name)), name)

    def leaves_nothing_aside(self, run):
        for folder, folders, files in os.walk(run):
            for name in folders + files:
                self.assertNotIn(".tmp-", name, folder)
                self.assertNotIn(".part-", name, folder)

    def share_on_line(self, run, task, asked):
        """Of the steps of the answers to these words, the share at which one and the same head looks most at the letter that comes next, or else at the place behind that letter.

        The place behind is as good: the layer below can put there what stands before it."""
        on_line, steps = collections.Counter(), 0
        for word in asked:
            n, answer = len(word), word[::-1] if task == "reverse" else word
            shown = json.loads(self.prints("show", run, f"{word}>{answer}", "--json"))
            for layer, heads in enumerate(shown["weights"]):
                for head, rows in enumerate(heads):
                    for t in range(n):
                        place = n - 1 - t if task == "reverse" else t
                        strongest = max(range(len(rows[n + t])), key=rows[n + t].__getitem__)
                        on_line[layer, head, strongest - place] += 1
            steps += n
        return max(count for (_, _, shift), count in on_line.items() if shift in (0, 1)) / steps

    def begin(self, arguments, **options):
        return subprocess.Popen([HEED, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), **options)

    def wait_for_step(self, process, log, step):
        """Until the log says that the step is done, or the process has ended."""
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            if os.path.exists(log) and read_file(log).count(b"\n") >= step:
                return
            time.sleep(0.002)
        self.assertIsNone(process.poll(), "the run has ended before it could be interrupted")


# ---- runs that are left alone ------------------------------------------------------------------------------------------------


class Results(Training):
    def test_what_a_run_leaves(self):
        run = self.train("run", "--steps", "20", "--save-every", "5")
        self.assertEqual(sorted(os.listdir(run)), ["best", CHECKPOINTS, "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "training.txt"])
        self.assertEqual(self.checkpoints(run), ["checkpoint-000003", "checkpoint-000004"])
        self.leaves_nothing_aside(run)

    def test_the_model_is_at_once_one_to_use(self):
        for kind, more in {"gpt": [], "llama": ["--heads", "2", "--kv-heads", "1"]}.items():
            run = self.train(kind, "--steps", "10", *more, kind=kind)
            found = json.loads(self.prints("eval", run, "--json"))
            self.assertEqual(set(found), {"model", "loss", "perplexity", "bits_per_char", "tokens"})
            self.assertLess(found["loss"], 3.5)
            self.assertEqual(self.prints("eval", os.path.join(run, "best"), "--data", self.text, "--context", "8", "--json").count("loss"), 1)
            self.assertTrue(self.prints("generate", run, "-p", "the c", "-n", "5", "--quiet").strip())
            self.assertIn("the", json.dumps(json.loads(self.prints("show", run, "the cat", "--json"))))
            self.assertIn("model_type", self.prints("inspect", run))

    def test_every_kind_of_positions(self):
        for positions in ("learned", "sinusoidal", "rope", "alibi", "xl", "t5", "none", "rope/none"):
            name = positions.replace("/", "-")
            run = self.train(name, "--steps", "3", "--layers", "2", "--positions", positions)
            with open(os.path.join(run, "config.json"), encoding="utf-8") as file:
                self.assertEqual(json.load(file)["model_type"], "gpt2" if positions == "learned" else "heed")
            self.assertLess(json.loads(self.prints("eval", run, "--json"))["loss"], 4)
            longer = "eval", run, "--data", self.text, "--context", "200", "--json"
            if positions == "learned":
                self.refuses(USAGE, ["--context: ", "got 200, allowed 1..16"], *longer)
            else:
                self.assertLess(json.loads(self.prints(*longer))["loss"], 5)
            self.resumes(name, "--steps", "3", "--layers", "2", "--positions", positions)
            self.refuses(FAILED, "positions: ", *self.gpt(name, "--steps", "3", "--layers", "2", "--positions", "rope" if positions != "rope" else "t5", "--resume"))

    def test_every_kind_of_attention(self):
        for attention in ("window:2+global:1", "strided:4/full", "linear", "performer:16/window:3", "lsh:2"):
            name = attention.replace("/", "-")
            run = self.train(name, "--steps", "3", "--layers", "2", "--attention", attention)
            with open(os.path.join(run, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual((config["model_type"], config["attention"]), ("heed", attention))
            self.assertLess(json.loads(self.prints("eval", run, "--json"))["loss"], 4)
            self.assertTrue(self.prints("generate", run, "-p", "the c", "-n", "5", "--quiet").strip())
            self.resumes(name, "--steps", "3", "--layers", "2", "--attention", attention)
            self.refuses(FAILED, f"(attention: {attention} there, full asked for)", *self.gpt(name, "--steps", "3", "--layers", "2", "--attention", "full", "--resume"))
            self.shows_attention(run, attention)

    def shows_attention(self, run, attention):
        """What a pattern hides is absent, not zero; beside the weights that linear attention implies stand the exact ones."""
        shown = json.loads(self.prints("show", run, "the cat", "--json"))
        n = len(shown["key_tokens"])
        first = shown["weights"][0]
        if attention.startswith("window:2"):
            self.assertEqual(shown["notes"], [attention, attention])
            for head in first:
                for i, row in enumerate(head):
                    for j, weight in enumerate(row):
                        if j > i:
                            self.assertEqual(weight, 0)
                        else:
                            self.assertEqual(weight is None, i - j > 2 and j > 0, (i, j))
            table = self.prints("show", run, "the cat", "--layers", "0", "--heads", "0", "-o", "-", "--format", "csv").splitlines()
            self.assertEqual(len(table), n + 1)
            self.assertEqual(table[-1].split(",")[2], "")
            self.assertNotEqual(table[-1].split(",")[1], "")
        if attention in ("linear", "lsh:2"):
            self.assertEqual(shown["layers"], [0, 0, 1, 1])
            self.assertEqual(shown["notes"], [attention, "exact", attention, "exact"])
            for layer in shown["weights"]:
                for row in layer[0]:
                    self.assertAlmostEqual(sum(weight or 0 for weight in row), 1, places=4)
        if attention == "linear":
            self.assertNotEqual(first, shown["weights"][1])
        if attention == "lsh:2":  # one chunk, so that all meet, but no token itself where there are others
            for row, exact in zip(first[0], shown["weights"][1][0]):
                for weight, other in zip(row, exact):
                    self.assertAlmostEqual(weight or 0, other, places=5)
            self.assertEqual([[weight is None for weight in row] for row in first[0]][:3], [[False] * n, [False, True] + [False] * (n - 2), [False, False, True] + [False] * (n - 3)])
        for picture in ("png", "svg", "html"):
            self.prints("show", run, "the cat", "--layers", "0", "--heads", "0", "-o", self.path(f"shown.{picture}"))

    def test_a_task(self):
        run = self.path("sort")
        self.prints("train", "task", "sort", "--letters", "3", "--symbols", "4", *"--layers 1 --heads 1 --width 32 --batch 8 --steps 20 --quiet".split(), "--out", run)
        found = json.loads(self.prints("eval", run, "-n", "20", "--json"))
        self.refuses(USAGE, ["--context", "one length"], "eval", run, "--context", "3")
        self.refuses(USAGE, ["--count", "read whole"], "eval", run, "--data", self.text, "-n", "3")
        self.assertEqual(found["sequences"], 20)
        self.assertTrue(0 <= found["exact_match"] <= 1)
        self.assertEqual(len(self.prints("generate", run, "-p", "ba>", "-n", "3", "--quiet")), len("ab.\n"))

    @learns
    def test_what_a_task_looks_at(self):
        """A model that copies looks along the diagonal, one that reverses along the anti-diagonal."""
        for task, symbols, steps in (("copy", 26, 700), ("reverse", 8, 600)):
            run = self.path(task)
            size = f"--letters 8 --symbols {symbols} --width 64 --heads 2 --lr 0.003 --steps {steps} --quiet".split()
            self.prints("train", "task", task, *size, "--out", run)
            self.assertGreater(json.loads(self.prints("eval", run, "-n", "500", "--json"))["exact_match"], 0.98, task)
            self.assertGreater(self.share_on_line(run, task, words(20, 4, 8, symbols)), 0.75, task)

    @learns
    def test_what_is_duplicated(self):
        for attention in ("full", "lsh:2"):
            run = self.path(attention.replace(":", "-"))
            self.prints("train", "task", "duplicate", *"--letters 12 --symbols 20 --width 32 --heads 2 --lr 0.01 --steps 300 --quiet".split(), "--attention", attention, "--out", run)
            self.assertGreater(json.loads(self.prints("eval", run, "-n", "200", "--json"))["accuracy"], 0.99, attention)
            self.assertEqual(self.prints("generate", run, "-p", "0123456789:;A0", "-n", "11", "--quiet", "--temp", "0"), "123456789:;\n")

    def test_logs(self):
        log, table = self.path("run.jsonl"), self.path("run.csv")
        self.train("run", "--steps", "12", "--eval-every", "4", "--log", log, "--csv", table)
        lines = [json.loads(line) for line in read_file(log).splitlines()]
        self.assertEqual([line["step"] for line in lines], list(range(1, 13)))
        self.assertEqual([line["step"] for line in lines if "validation_loss" in line], [4, 8, 12])
        for line in lines:
            self.assertGreater(line["loss"], 0)
            self.assertGreater(line["gradient_norm"], 0)
            self.assertGreater(line["learning_rate"], 0)
            self.assertGreater(line["bytes"], 0)
        with open(table, newline="") as stream:
            rows = list(csv.DictReader(stream))
        for row, line in zip(rows, lines, strict=True):
            self.assertEqual(int(row["step"]), line["step"])
            self.assertEqual(float(row["loss"]), line["loss"])
            self.assertEqual(row["validation_loss"] == "", "validation_loss" not in line)

    def test_threads_do_not_matter(self):
        self.same_result(self.train("one", "--steps", "8", "--threads", "1"), self.train("two", "--steps", "8", "--threads", "2"))


# ---- from a model ------------------------------------------------------------------------------------------------------------


class From(Training):
    small = "--context 32 --batch 4 --warmup 2 --lr 0.002 --quiet".split()
    frozen = ("--freeze", "embedding.*", "--freeze", "layers.[0-2].*")

    def begins(self, model, out, *more):
        return ["train", "from", model, "--data", self.text, *self.small, "--out", self.path(out), *more]

    def tensors(self, run):
        """The f32 tensors of a model, by name, as bytes."""
        data = read_file(os.path.join(run, "model.safetensors"))
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        return {name: data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]] for name, t in header.items() if name != "__metadata__"}

    def loss(self, model):
        return json.loads(self.prints("eval", model, "--data", self.text, "--context", "32", "--json"))["loss"]

    def test_all_of_it(self):
        self.assertEqual(self.prints(*self.begins(STORIES_HF, "run", "--steps", "30")), "")
        self.assertLess(self.loss(self.path("run")), 0.8 * self.loss(STORIES_HF))
        self.assertEqual(json.loads(read_file(self.path("run/config.json")))["model_type"], "llama")
        self.assertEqual(self.tensors(self.path("run")).keys(), self.tensors(STORIES_HF).keys())

    def test_some_of_it(self):
        self.prints(*self.begins(STORIES_HF, "run", "--steps", "30", *self.frozen))
        before, after = self.tensors(STORIES_HF), self.tensors(self.path("run"))
        for name in before:
            frozen = name.startswith(("model.embed_tokens.", "model.layers.0.", "model.layers.1.", "model.layers.2."))
            self.assertEqual(before[name] == after[name], frozen, name)
        self.assertLess(self.loss(self.path("run")), 0.9 * self.loss(STORIES_HF))
        newest = self.newest(self.path("run"))
        self.assertLess(os.path.getsize(os.path.join(newest, "moments.safetensors")), sum(len(t) for t in before.values()))  # of all that learns it would be twice as much

    def test_quantised(self):
        settings = ("--tokens", os.path.join(STORIES_HF, "tokenizer.json"), "--steps", "20", *self.frozen)
        self.prints(*self.begins(STORIES_Q8, "whole", *settings))
        log = self.path("log")
        process = self.begin(self.begins(STORIES_Q8, "run", *settings, "--log", log))
        self.addCleanup(process.kill)
        self.wait_for_step(process, log, 5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED)
        other = STORIES_Q8.replace("q8_0", "f16")
        self.refuses(FAILED, "the run was begun with other frozen parameters", *self.begins(other, "run", *settings, "--resume"))
        self.prints(*self.begins(STORIES_Q8, "run", *settings, "--resume"))
        self.same_result(self.path("run"), self.path("whole"))

    def test_another_attention(self):
        self.prints(*self.begins(STORIES_HF, "run", "--steps", "2", "--attention", "window:16/full"))
        with open(self.path("run/config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["attention"], "window:16/full")
        self.prints(*self.begins(self.path("run"), "next", "--steps", "1"))
        with open(self.path("next/config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["attention"], "window:16/full")

    def refused(self, code, fragments, model, *more):
        self.refuses(code, fragments, *self.begins(model, "run", *more))
        self.assertFalse(os.path.exists(self.path("run")), more)

    def test_bad_input(self):
        self.refused(USAGE, ["--freeze: no parameter is called layer.*", "layers.0.qkv.weight"], STORIES_HF, "--freeze", "layer.*")
        self.refused(USAGE, "--freeze: nothing is left that learns", STORIES_HF, "--freeze", "*")
        self.refused(USAGE, "--attention: \"window:-3\": ", STORIES_HF, "--attention", "window:-3")
        self.refused(USAGE, ["--context: must not be above the model's", "5000", "512"], STORIES_HF, "--context", "5000")
        self.refused(BAD_FILE, "none: No such file", self.path("none"))
        self.refused(UNSUPPORTED, ["tokenizers that merge by scores", "--tokens FILE"], STORIES_Q8)
        self.refused(BAD_FILE, "has no tokenizer (--tokens FILE names one)", SORT, "--context", "8")
        self.refused(BAD_FILE, ["has tokens that the model does not know", "got 512 tokens, allowed 3"], SORT, "--context", "8", "--tokens", os.path.join(STORIES_HF, "tokenizer.json"))
        self.refuses(USAGE, "MODEL is missing", "train", "from", "--data", self.text, "--out", self.path("run"))


# ---- going on ----------------------------------------------------------------------------------------------------------------


class Resuming(Training):
    steps = ("--steps", "60", "--save-every", "7", "--eval-every", "10", "--dropout", "0.1")

    def test_a_second_run_in_one_directory(self):
        run = self.train("run", "--steps", "5")
        before = read_file(os.path.join(run, "model.safetensors"))
        self.refuses(FAILED, ["run: holds a run already", "--resume"], *self.gpt("run", "--steps", "5", "--seed", "2"))
        self.assertEqual(read_file(os.path.join(run, "model.safetensors")), before)
        self.assertIn("goes on after step 5", self.resumes("run", "--steps", "5"))

    def test_two_programs_in_one_directory(self):
        log = self.path("log")
        first = self.begin(self.gpt("run", "--steps", "1000000", "--save-every", "1", "--log", log))
        self.addCleanup(first.kill)
        self.wait_for_step(first, log, 3)
        self.refuses(FAILED, "run: another heed is training there", *self.gpt("run", "--steps", "1000000", "--save-every", "1", "--resume"))
        first.kill()
        first.communicate()

    def test_other_settings(self):
        self.train("run", "--steps", "5")
        for name, value, said in (("--lr", "0.01", "lr: 0.001 there, 0.01 asked for"), ("--width", "64", "width: 32 there, 64 asked for"),
                                  ("--seed", "7", "seed: 0 there, 7 asked for"), ("--steps", "6", "steps: 5 there, 6 asked for"), ("--tokens", "byte", "vocabulary")):
            self.refuses(FAILED, ["checkpoint-000005: the run was begun with another setting", said], *self.gpt("run", "--steps", "5", name, value, "--resume"))
        self.path("text.txt", sentences(1500).replace(b"the cat", b"cat the", 1))  # as long, of the same characters
        self.refuses(FAILED, "data-hash", *self.gpt("run", "--steps", "5", "--resume"))
        self.path("text.txt", sentences(1500))
        self.resumes("run", "--steps", "5")

    def test_nothing_to_resume(self):
        self.refuses(BAD_FILE, "run: there is no checkpoint to resume from", *self.gpt("run", "--resume"))
        self.assertFalse(os.path.exists(self.path("run")))

    def interrupted(self, signals, folder):
        """Stopped by each signal in turn, resumed by the command that each run prints."""
        log = self.path(f"{folder}.log")
        arguments = [a for a in self.gpt(folder, *self.steps, "--log", log) if a != "--quiet"]
        for count, number in enumerate(signals):
            process = self.begin(arguments)
            self.addCleanup(process.kill)
            self.wait_for_step(process, log, 12 * (count + 1))
            process.send_signal(number)
            out, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (INTERRUPTED, b""), error)
            last = error.decode().splitlines()[-1]
            self.assertRegex(last, r"\Aheed: stopped after step \d+, nothing is lost; to go on: heed train gpt .* --resume\Z")
            self.assertEqual(int(last.split()[4].rstrip(",")), self.step(self.path(folder)))
            arguments = shlex.split(last.split("to go on: heed ")[1])
            self.leaves_nothing_aside(self.path(folder))
        done = heed(*arguments)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual([json.loads(line)["step"] for line in read_file(log).splitlines()], list(range(1, 61)))
        return self.path(folder)

    def test_signals(self):
        whole = self.train("whole", *self.steps)
        self.same_result(self.interrupted([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], "stopped run"), whole)

    def test_signals_while_saving(self):
        self.steps = ("--steps", "60", "--save-every", "1", "--eval-every", "10", "--dropout", "0.1")  # most of the time it saves
        whole = self.train("whole", *self.steps)
        self.same_result(self.interrupted([signal.SIGTERM, signal.SIGINT, signal.SIGTERM], "stopped"), whole)

    def test_a_text_that_is_piped_in(self):
        whole = self.train("whole", "--steps", "5", "--data", self.text)
        done = heed(*self.gpt("piped", "--steps", "5", "--data", "-"), stdin=read_file(self.text))
        self.assertEqual((done.returncode, done.stderr), (OK, b""))
        self.same_result(self.path("piped"), whole)
        done = heed(*self.gpt("piped", "--steps", "5", "--data", "-", "--resume"), stdin=b"another text, " * 300)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"the run was begun with another setting", done.stderr)

    def test_stopped_before_it_begins(self):
        """While the text is read, counted, and encoded nothing is there to be saved, and nobody waits for it."""
        self.path("long.txt", sentences(1000000))
        for wait in (0.05, 0.3, 0.8):
            process = self.begin(self.gpt("run", "--data", self.path("long.txt"), "--tokens", "bpe:4000", "--steps", "1000000"))
            self.addCleanup(process.kill)
            time.sleep(wait)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=60)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual((process.returncode, out), (INTERRUPTED, b""), error)
            if os.path.exists(self.path("run")):  # it had begun, and goes on
                self.assertTrue(self.checkpoints(self.path("run")))
                shutil.rmtree(self.path("run"))

    def test_nohup(self):
        log = self.path("log")
        process = self.begin(self.gpt("run", "--steps", "1000000", "--log", log), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.addCleanup(process.kill)
        self.wait_for_step(process, log, 3)
        process.send_signal(signal.SIGHUP)
        self.wait_for_step(process, log, read_file(log).count(b"\n") + 20)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED)

    def test_kills(self):
        whole = self.train("whole", *self.steps, "--log", self.path("whole.log"), "--csv", self.path("whole.csv"))
        log = self.path("log")
        logs = ("--log", log, "--csv", self.path("csv"))
        resume = []
        for step in (9, 23, 52):
            process = self.begin(self.gpt("killed", *self.steps, *logs, *resume))
            self.addCleanup(process.kill)
            self.wait_for_step(process, log, step)
            process.kill()
            process.communicate()
            resume = ["--resume"]
        self.resumes("killed", *self.steps, *logs)
        self.same_result(self.path("killed"), whole)
        self.leaves_nothing_aside(self.path("killed"))
        for name in ("log", "csv"):  # each step once, with the same numbers; the speed differs
            speed = ("tokens_per_second", 4)
            a, b = (read_file(self.path(f)).decode().splitlines() for f in (name, "whole." + name))
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b):
                x, y = (json.loads(x), json.loads(y)) if name == "log" else (x.split(","), y.split(","))
                x[speed[name == "csv"]] = y[speed[name == "csv"]] = 0
                self.assertEqual(x, y)

    def test_a_kill_between_checkpoint_and_model(self):
        run = self.train("run", "--steps", "20")
        model = read_file(os.path.join(run, "model.safetensors"))
        os.remove(os.path.join(run, "model.safetensors"))
        self.resumes("run", "--steps", "20")
        self.assertEqual(read_file(os.path.join(run, "model.safetensors")), model)

    def test_patience_stays_patient(self):
        settings = ("--steps", "200", "--eval-every", "2", "--lr", "1", "--clip", "0", "--patience", "2", "--warmup", "0")
        run = self.train("run", *settings)
        step = self.step(run)
        self.assertLess(step, 200)
        self.resumes("run", *settings)
        self.assertEqual(self.step(run), step)


# ---- damage ------------------------------------------------------------------------------------------------------------------


class Damage(Training):
    steps = ("--steps", "20", "--save-every", "5")

    def damage(self, path):
        data = bytearray(read_file(path))
        data[len(data) // 2] ^= 1
        with open(path, "wb") as stream:
            stream.write(data)

    def test_the_newest_is_passed_over(self):
        run = self.train("run", *self.steps)
        before = read_file(os.path.join(run, "model.safetensors"))
        self.damage(os.path.join(self.newest(run), "moments.safetensors"))
        said = self.resumes("run", *self.steps)
        self.assertRegex(said, r"passed over: .*checkpoint-000004/moments.safetensors: ")
        self.assertIn("goes on after step 15", said)
        self.assertEqual(read_file(os.path.join(run, "model.safetensors")), before)

    def test_quiet_is_no_reason_to_say_nothing(self):
        run = self.train("run", *self.steps)
        self.damage(os.path.join(self.newest(run), "state.json"))
        done = heed(*self.gpt("run", *self.steps, "--resume"))
        self.assertEqual(done.returncode, OK)
        self.assertRegex(done.stderr.decode(), r"\Aheed: passed over: .*/state.json: .*\n\Z")

    def test_all_are_damaged(self):
        run = self.train("run", *self.steps)
        for name in self.checkpoints(run):
            self.damage(os.path.join(run, CHECKPOINTS, name, "parameters.safetensors"))
        self.refuses(BAD_FILE, ["none of its 2 checkpoints can be used", "checkpoint-000003/", "checkpoint-000004/"], *self.gpt("run", *self.steps, "--resume"))
        self.refuses(FAILED, "holds a run already", *self.gpt("run", *self.steps))
        self.assertEqual(self.checkpoints(run), ["checkpoint-000003", "checkpoint-000004"])

    def test_half_a_line_in_a_log(self):
        log = self.path("log")
        run = self.train("run", *self.steps, "--log", log)
        shutil.rmtree(self.newest(run))
        with open(log, "a") as stream:
            stream.write('{"step":21,"lo')
        self.resumes("run", *self.steps, "--log", log)
        self.assertEqual([json.loads(line)["step"] for line in read_file(log).splitlines()], list(range(1, 21)))


# ---- what is there -----------------------------------------------------------------------------------------------------------


class Inspecting(Training):
    steps = Damage.steps
    damage = Damage.damage

    def inspects(self, code, run, *more):
        done = heed("inspect", run, *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout.decode(), done.stderr.decode()

    def test_a_run_that_has_ended(self):
        run = self.train("run", *self.steps)
        text, error = self.inspects(OK, run)
        self.assertEqual(error, "")
        for line in ("training", "  step 20 of 20", "  checkpoint-000004  step 20, training loss ", "  checkpoint-000003  step 15, training loss ", "tensors"):
            self.assertIn("\n" + line, text)
        self.assertNotIn("to go on", text)
        found = json.loads(self.inspects(OK, run, "--json")[0])["training"]
        self.assertEqual([(c["name"], c["whole"], c["step"]) for c in found["checkpoints"]], [("checkpoint-000004", True, 20), ("checkpoint-000003", True, 15)])
        self.assertEqual((found["steps"], found["step"], "resume" in found), (20, 20, False))
        self.assertGreater(found["best_loss"], 0)

    def test_one_that_goes_on(self):
        whole = self.train("whole", "--steps", "60", "--save-every", "7")
        log = self.path("log")
        process = self.begin(self.gpt("run", "--steps", "60", "--save-every", "7", "--log", log))
        self.addCleanup(process.kill)
        self.wait_for_step(process, log, 10)
        process.kill()
        process.communicate()
        found = json.loads(self.inspects(OK, self.path("run"), "--json")[0])["training"]
        self.assertLess(found["step"], 60)
        self.assertIn(f"to go on, in {found['folder']}: heed train gpt", self.inspects(OK, self.path("run"))[0])
        words = shlex.split(found["resume"])
        self.assertEqual((words[0], words[-1]), ("heed", "--resume"))
        subprocess.run([HEED, *words[1:]], cwd=found["folder"], env=environment(), check=True, timeout=60)
        self.same_result(self.path("run"), whole)

    def test_damage_is_named(self):
        run = self.train("run", *self.steps)
        self.damage(os.path.join(self.newest(run), "moments.safetensors"))
        text, error = self.inspects(BAD_FILE, run)
        self.assertRegex(error, r"\Aheed: damaged: .*checkpoint-000004/moments.safetensors: has another checksum .*\n\Z")
        self.assertIn("  checkpoint-000004  damaged\n  checkpoint-000003  step 15", text)
        self.assertIn("step 15 of 20", text)
        self.assertRegex(text, "to go on.* --resume\n")
        found = json.loads(self.inspects(BAD_FILE, run, "--json")[0])["training"]
        self.assertEqual([c["whole"] for c in found["checkpoints"]], [False, True])

    def test_a_model_that_is_gone(self):
        run = self.train("run", *self.steps)
        os.truncate(os.path.join(run, "best", "model.safetensors"), 100)
        os.remove(os.path.join(run, "model.safetensors"))
        text, error = self.inspects(BAD_FILE, run)
        self.assertRegex(error, r"\Aheed: damaged: .*best/model.safetensors.*\nheed: .*run.*\n\Z")
        self.assertIn("step 20 of 20", text)


# ---- bad input ---------------------------------------------------------------------------------------------------------------


class BadInput(Training):
    def refused(self, code, fragments, *more, kind="gpt"):
        self.refuses(code, fragments, *self.gpt("run", *more, kind=kind))
        self.assertFalse(os.path.exists(self.path("run")), more)

    def test_texts(self):
        self.refused(BAD_FILE, "empty.txt: the file is empty", "--data", self.path("empty.txt", b""))
        self.refused(BAD_FILE, ["short.txt: too short for the context", "got 30 tokens", "more than 170"], "--data", self.path("short.txt", b"abc" * 10))
        self.refused(BAD_FILE, ["none.txt", "No such file"], "--data", self.path("none.txt"))
        self.refused(BAD_FILE, "Is a directory", "--data", self.folder)
        latin = self.path("latin.txt", "déjà vu ".encode("latin-1") * 500)
        self.refused(BAD_FILE, ["latin.txt", "not UTF-8 (byte 1 ", "0xE9"], "--data", latin)
        self.train("run", "--steps", "2", "--data", latin, "--tokens", "byte")

    def test_no_text(self):
        self.refuses(USAGE, "--data: ", "train", "gpt", "--out", self.path("run"))
        self.refuses(USAGE, "--out", "train", "gpt", "--data", self.text)

    def test_tokens(self):
        for value in ("bpe:x", "bpe:10", "bpe:"):
            self.refused(USAGE, ["--tokens: bpe:N", value], "--tokens", value)
        self.refused(BAD_FILE, "none.json", "--tokens", self.path("none.json"))

    def test_numbers(self):
        for name in ("--lr", "--min-lr", "--decay", "--clip", "--dropout", "--beta1", "--beta2"):
            for value in ("nan", "-1", "inf", "x"):
                self.refused(USAGE, [f"{name}: ", value], name, value)
        for name in ("--layers", "--heads", "--width", "--context", "--batch", "--steps", "--accumulate", "--save-every", "--eval-every"):
            for value in ("0", "-3", "1.5", "99999999999999999999"):
                self.refused(USAGE, [f"{name}: ", value], name, value)

    def test_heads(self):
        self.refused(USAGE, ["--heads: must divide --width", "3", "32"], "--heads", "3")
        self.refused(USAGE, ["--kv-heads: must divide --heads", "3", "2"], "--heads", "2", "--kv-heads", "3")
        self.refused(USAGE, "rotary positions need an even width", "--heads", "32", kind="llama")

    def test_positions(self):
        self.refused(USAGE, ["--positions: ", "polar", "learned|sinusoidal|rope"], "--positions", "polar")
        self.refused(USAGE, ["positions: unknown kind \"polar\"", "known are learned, sinusoidal, rope"], "--layers", "2", "--positions", "rope/polar")
        self.refused(USAGE, "positions: 2 kinds for 1 layers", "--layers", "1", "--positions", "rope/none")
        self.refused(USAGE, "--positions: given together with --rotary", "--positions", "xl", "--rotary")
        self.refused(USAGE, "rotary positions need an even width", "--heads", "32", "--positions", "rope")

    def test_attention(self):
        self.refused(USAGE, ["attention: unknown kind \"windows\"", "known are linear, relu, performer"], "--attention", "windows:3")
        self.refused(USAGE, ["attention: \"strided:900\"", "900"], "--attention", "strided:900")
        self.refused(USAGE, ["attention: \"performer:0\"", "performer:ROWS"], "--attention", "performer:0")
        self.refused(USAGE, "linear attention has no scores for ALiBi's positions", "--attention", "linear", "--positions", "alibi")
        self.refused(USAGE, ["attention: \"lsh:0\"", "lsh:ROUNDS[:SEED]", "1 to 1024 rounds"], "--attention", "lsh:0")
        self.refused(USAGE, "heads cannot share keys (got 4 heads, 2", "--attention", "lsh:4", "--heads", "4", "--kv-heads", "2")

    def test_too_large_for_memory(self):
        self.refused(NO_MEMORY, ["training on batches of 1000000 times 64 positions takes", "GB of memory", "are available"], "--context", "64", "--width", "512", "--layers", "8", "--batch", "1000000")
        self.refused(NO_MEMORY, ["the model with its gradients takes", "GB"], "--width", "131072", "--layers", "500")

    @unittest.skipIf(os.environ.get("HEED_SANITIZE"), "a limit on the address space leaves no room for a sanitizer's own")
    def test_too_large_for_a_limit(self):
        # a limit of the process counts as well as the machine's
        limited = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        done = subprocess.run([HEED, *self.gpt("run", "--width", "256", "--context", "64", "--batch", "4000")], capture_output=True, preexec_fn=limited, env=environment(), timeout=60)
        self.assertEqual(done.returncode, NO_MEMORY, done.stderr)
        self.assertRegex(done.stderr.decode(), r"\Aheed: training on batches of 4000 times 64 positions takes \d+\.\d GB of memory, [123]\.\d GB are available\n\Z")

    def test_a_number_that_is_none_stops_the_run(self):
        settings = ("--steps", "200", "--save-every", "1", "--lr", "1000", "--clip", "0", "--warmup", "0", "--schedule", "constant")
        done = heed(*self.gpt("run", *settings))
        if done.returncode != OK:
            self.assertEqual(done.returncode, FAILED)
            self.assertRegex(done.stderr.decode(), r"\Aheed: step \d+: .* is not finite; before it the loss was .*\n\Z")
            self.assertTrue(self.checkpoints(self.path("run")))


# ---- outputs that cannot be written --------------------------------------------------------------------------------------------


class Outputs(Training):
    def test_directories(self):
        self.refuses(FAILED, "text.txt: is not a directory", *self.gpt("text.txt"))
        self.refuses(FAILED, ["none/run: cannot be made", "No such file"], *self.gpt("none/run"))
        self.refuses(FAILED, "/proc/run: cannot be made", *self.gpt("run")[:-1], "/proc/run")
        if os.geteuid() != 0:
            os.mkdir(self.path("locked"), 0o500)
            self.refuses(FAILED, "Permission denied", *self.gpt("locked/run"))

    def test_logs(self):
        self.refuses(FAILED, ["none/log: cannot be written", "No such file"], *self.gpt("run", "--log", self.path("none/log")))
        self.refuses(FAILED, ["none/csv: cannot be written", "No such file"], *self.gpt("run", "--csv", self.path("none/csv")))
        self.assertFalse(os.path.exists(self.path("run/checkpoints")))

    def test_a_full_log_costs_its_lines_alone(self):
        whole = self.train("whole", "--steps", "10")
        error = self.refuses(FAILED, ["/dev/full: cannot be written any more", "No space left", "goes on without it"], *self.gpt("run", "--steps", "10", "--log", "/dev/full"))
        self.assertEqual(error.count("\n"), 1)
        self.same_result(self.path("run"), whole)

    def limited(self, arguments, bytes):
        """A run in which no file may be longer."""
        return subprocess.run([HEED, *arguments], capture_output=True, env=environment(), timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, bytes)))

    def test_a_checkpoint_that_does_not_fit(self):
        settings = ("--steps", "30", "--save-every", "10")
        done = self.limited(self.gpt("run", *settings), 20000)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertRegex(done.stderr.decode(), r"\Aheed: .*run/[^ ]*: File too large after \d+ bytes, \d+ more to write\n\Z")
        self.leaves_nothing_aside(self.path("run"))

    def test_the_old_checkpoint_stays_good(self):
        settings = ("--steps", "30", "--save-every", "10")
        whole = self.train("whole", *settings)
        log = self.path("log")
        process = self.begin(self.gpt("run", *settings, "--log", log))
        self.addCleanup(process.kill)
        while process.poll() is None and not os.path.exists(self.path("run/checkpoints/checkpoint-000001")):
            time.sleep(0.001)
        process.kill()
        process.communicate()
        done = self.limited(self.gpt("run", *settings, "--resume"), 20000)
        if self.step(self.path("run")) < 30:
            self.assertEqual(done.returncode, FAILED, done.stderr)
        self.leaves_nothing_aside(self.path("run"))
        self.resumes("run", *settings)
        self.same_result(self.path("run"), whole)


if __name__ == "__main__":
    unittest.main()
