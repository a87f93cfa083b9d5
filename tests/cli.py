#!/usr/bin/env python3
"""cli.py: the program as people and scripts use it: command, output, exit code.

A class is a command or a promise that all commands keep; every refusal must be one line on standard error, with nothing on standard output.
`heed attend` is in cli_attend.py, `heed bench` in cli_bench.py."""

import array
import fcntl
import json
import math
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from cli_case import (
    BAD_FILE, BENCHES, BERT, COMMANDS, COMPLETE, Case, DATA, ESCAPE, FAILED, HEED, INTERRUPTED, MARIAN, NO_MEMORY, OK, SORT, STORIES, STORIES_HF, STORIES_Q8,
    UNSUPPORTED, USAGE, environment, heed, npy_bytes, read_file, read_npy
)

# ---- what all commands keep -------------------------------------------------------------------------------------------------


class Words(Case):
    """Options, suggestions, help."""

    def test_no_command(self):
        self.refuses(USAGE, "no command")

    def test_version(self):
        self.assertRegex(self.prints("--version"), r"\Aheed \d+\.\d+\.\d+\n\Z")

    def test_help_of_all(self):
        text = self.prints("--help")
        self.assertEqual(text, self.prints("-h"))
        self.assertEqual(text, self.prints("help"))
        for command in COMPLETE:
            self.assertRegex(text, rf"\n  {command}  ")
        for line in text.splitlines():
            self.assertLessEqual(len(line), 96, line)

    def test_help_of_each(self):
        for command in COMPLETE:
            with self.subTest(command):
                text = self.prints(*command.split(), "--help")
                self.assertTrue(text.startswith(f"usage: heed {command}"), text[:60])
                self.assertEqual(text, self.prints("help", *command.split()))
                self.assertIn("\nexamples\n  heed ", "\n" + text.replace("  source <(heed", "  heed"))
                for line in text.split("\nexamples\n")[0].splitlines():
                    self.assertLessEqual(len(line), 88, line)
                for name in re.findall(r"--([a-z-]+)", text.split("\nexamples\n")[0]):
                    self.assertNotEqual(name, "")

    def test_help_of_group(self):
        for words in (("help", "bench"), ("bench", "--help"), ("bench", "-h")):
            text = self.prints(*words)
            for bench in BENCHES:
                self.assertIn(f"usage: heed bench {bench} ", text)

    def test_misspelt_command(self):
        for typed, meant in {"shwo": "show", "generat": "generate", "tokenise": "tokenize", "gen": "generate", "benhc": "bench"}.items():
            self.refuses(USAGE, [typed, f"did you mean {meant}?"], typed)
        self.refuses(USAGE, ["attenton", "did you mean bench attention?"], "bench", "attenton")
        self.assertNotIn("did you mean", self.refuses(USAGE, "heed --help", "xyzzy"))
        self.refuses(USAGE, "heed help bench", "bench")
        self.refuses(USAGE, "unknown command", "help", "xyzzy")

    def test_misspelt_option(self):
        self.refuses(USAGE, ["--layer:", "did you mean --layers?"], "show", STORIES, "x", "--layer", "0")
        self.refuses(USAGE, ["--tpo:", "did you mean --top?"], "logits", STORIES, "x", "--tpo=3")
        self.refuses(USAGE, ["--thread:", "did you mean --threads?"], "info", "--thread=2")
        self.assertNotIn("did you mean", self.refuses(USAGE, "--xyzzy: unknown option", "info", "--xyzzy"))
        self.refuses(USAGE, "-x: unknown option", "info", "-x")

    def test_bad_values(self):
        self.refuses(USAGE, ["--n: ", "12x", "allowed"], "generate", STORIES, "--n", "12x")
        self.refuses(USAGE, ["--n: ", "-5"], "generate", STORIES, "-n", "-5")
        self.refuses(USAGE, ["--threads: ", "-1", "allowed 1 to"], "info", "--threads", "-1")
        self.refuses(USAGE, ["--threads: ", "99999999999999999999"], "info", "--threads=99999999999999999999")
        self.refuses(USAGE, ["--temp: ", "warm"], "generate", STORIES, "--temp", "warm")
        self.refuses(USAGE, ["--temp: ", "nan"], "generate", STORIES, "--temp", "nan")
        self.refuses(USAGE, ["--top-p: ", "1.5", "0 to 1"], "generate", STORIES, "--top-p", "1.5")
        self.refuses(USAGE, ["--level: ", "sse9", "avx2"], "info", "--level", "sse9")
        self.refuses(USAGE, ["--color: ", "sometimes", "auto|always|never"], "info", "--color=sometimes")
        self.refuses(USAGE, ["SHELL", "ksh", "bash|zsh|fish"], "completion", "ksh")
        self.refuses(USAGE, ["--n: ", "allowed"], "bench", "attention", "--n", "512,,3")
        self.refuses(USAGE, ["--type: ", "f64", "f32|f16|bf16"], "bench", "attention", "--type", "f32,f64")
        self.refuses(USAGE, ["--level: ", "sse9", "avx2"], "bench", "backward", "--level", "scalar,sse9")
        self.refuses(USAGE, ["--n: too many", "64"], "bench", "attention", "--n", ",".join(["1"] * 65))
        self.refuses(USAGE, ["--csv", "--json"], "bench", "attention", "--json", "--csv")
        self.refuses(USAGE, ["--quiet: takes no value"], "info", "--quiet=3")
        self.refuses(USAGE, ["--threads: needs a value"], "info", "--threads")

    def test_missing_and_surplus_arguments(self):
        for command, name in {"show": "MODEL", "generate": "MODEL", "logits": "MODEL", "tokenize": "MODEL", "inspect": "FILE", "attend": "--q"}.items():
            self.refuses(USAGE, [f"{command}: {name} is missing", "--help"], command)
        self.refuses(USAGE, ["TEXT is missing"], "show", STORIES)
        self.refuses(USAGE, ["one argument too many", "cat", "quotes"], "show", STORIES, "The", "old", "cat", "sat")

    def test_forms_of_options(self):
        expected = self.prints("tokenize", STORIES, "Once", "--json")
        for arguments in (["--json", STORIES, "Once"], [STORIES, "--json", "Once"], ["--json", "--", STORIES, "Once"], ["--color=never", STORIES, "--json", "Once"]):
            self.assertEqual(self.prints("tokenize", *arguments), expected)
        self.assertEqual(json.loads(self.prints("info", "--json", "--threads", "1"))["threads"], 1)
        self.assertEqual(json.loads(self.prints("info", "--json", "--threads=1"))["threads"], 1)

    def test_text_after_double_dash(self):
        self.assertIn("json", self.prints("tokenize", STORIES, "--plain", "--decode", json_ids(self.prints("tokenize", STORIES, "--json", "--", "--json"))))


def json_ids(text):
    return ",".join(str(i) for i in json.loads(text)["ids"])


class Streams(Case):
    """Standard output that fails, ends early, is closed."""

    def test_full_disk(self):
        for arguments in (["--help"], ["info"], ["info", "--json"], ["inspect", STORIES], ["tokenize", STORIES, "Once"], ["help", "--man"], ["completion", "bash"]):
            with open("/dev/full", "wb") as full:
                done = heed(*arguments, stdout=full)
            self.assertEqual(done.returncode, FAILED, arguments)
            self.assertEqual(done.stderr.decode(), "heed: standard output: No space left on device\n", arguments)

    def test_closed_output(self):
        done = subprocess.run(["sh", "-c", f"'{HEED}' info >&-"], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"standard output", done.stderr)

    def test_reader_that_leaves(self):
        for command in (f"'{HEED}' help --man", f"'{HEED}' inspect '{STORIES}'"):
            done = subprocess.run(["sh", "-c", f"{command} | head -n 1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(done.stdout.count(b"\n"), 1)

    def test_interrupt_while_reading(self):
        child = subprocess.Popen([HEED, "tokenize", STORIES, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(20), INTERRUPTED)
        for stream in (child.stdin, child.stdout, child.stderr):
            stream.close()


class Memory(Case):
    def test_too_little(self):
        # More than any address space holds. A sanitizer's allocator adds lines of its own, so only the last one is heed's.
        done = heed("bench", "attention", "--n", "1000000", "--heads", "4096", "--head-dim", "4096", "--json", env=environment(ASAN_OPTIONS="allocator_may_return_null=1"))
        self.assertEqual((done.returncode, done.stdout), (NO_MEMORY, b""))
        self.assertRegex(done.stderr.decode().splitlines()[-1], r"\Aheed: out of memory .*\Z")


class Files(Case):
    """Files that are not there, or not what they should be, for every command that reads one."""

    def readers(self, path):
        return (["show", path, "x"], ["generate", path, "-p", "x"], ["logits", path, "x"], ["tokenize", path, "x"], ["inspect", path], ["bench", "generate", path],
                ["attend", "--q", path, "--k", path, "--v", path, "-o", self.path("out.npy")])

    def test_missing(self):
        path = self.path("nothing.gguf")
        for arguments in self.readers(path):
            self.refuses(BAD_FILE, [path, "No such file"], *arguments)

    def test_empty_file(self):
        for name in ("empty.gguf", "empty.safetensors", "empty.npy"):
            path = self.path(name, b"")
            for arguments in self.readers(path):
                self.refuses(BAD_FILE, path, *arguments)

    def test_folder(self):
        for arguments in self.readers(self.folder):
            self.refuses(BAD_FILE, self.folder, *arguments)

    def test_garbage(self):
        path = self.path("garbage.gguf", bytes(range(256)) * 16)
        for arguments in self.readers(path):
            self.refuses(BAD_FILE, path, *arguments)

    def test_truncated(self):
        path = self.path("short.gguf", read_file(STORIES)[:-2])
        for arguments in self.readers(path)[:3]:
            self.refuses(BAD_FILE, path, *arguments)

    def test_unwritable_output(self):
        q = self.path("q.npy", npy_bytes([1, 2], [1, 2]))
        for path in (self.path("no/such/folder/out.npy"), self.folder, "/dev/full"):
            self.refuses(FAILED, path, "attend", "--q", q, "--k", q, "--v", q, "-o", path)


# ---- commands that need no model --------------------------------------------------------------------------------------------


class Info(Case):
    def test_json(self):
        info = json.loads(self.prints("info", "--json"))
        self.assertIn(info["level"], info["levels"])
        self.assertIn("scalar", info["levels"])
        self.assertGreater(info["threads"], 0)
        self.assertNotIn("peak_gflops", info)

    def test_measure(self):
        info = json.loads(self.prints("info", "--json", "--measure"))
        self.assertGreater(info["peak_gflops"], 0)
        self.assertGreater(info["read_gbs"], 0)

    def test_level(self):
        self.assertEqual(json.loads(self.prints("info", "--json", "--level", "scalar"))["level"], "scalar")
        lacking = {"avx2", "avx512"} - set(json.loads(self.prints("info", "--json"))["levels"])
        for level in lacking:
            self.refuses(UNSUPPORTED, level, "info", "--level", level)


class Pages(Case):
    """The manual page and completions."""

    def test_manual_names_every_option(self):
        text = self.prints("help", "--man").replace("\\-", "-")
        self.assertTrue(text.startswith(".TH HEED 1"))
        for command in COMPLETE:
            self.assertIn(f".SS heed {command}", text)
            for name in re.findall(r"(?m)^ .{5}--([a-z-]+)", self.prints(*command.split(), "--help")):
                self.assertIn(f"--{name}", text)

    def complete(self, *words):
        """What bash would offer for the last word."""
        script = self.prints("completion", "bash") + f"""
COMP_WORDS=({' '.join("'%s'" % w for w in words)})
COMP_CWORD={len(words) - 1}
_heed
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode().split()

    def test_bash(self):
        self.assertEqual(self.complete("heed", "ge"), ["generate"])
        self.assertEqual(self.complete("heed", "bench", "a"), ["attention"])
        self.assertEqual(self.complete("heed", "info", "--mea"), ["--measure"])
        self.assertEqual(self.complete("heed", "bench", "attention", "--head-"), ["--head-dim"])
        self.assertEqual(self.complete("heed", "info", "--color", "a"), ["auto", "always"])
        self.assertEqual(self.complete("heed", "completion", "z"), ["zsh"])

    def test_other_shells(self):
        for shell in ("zsh", "fish"):
            text = self.prints("completion", shell)
            for command in COMMANDS:
                self.assertIn(command, text)
            self.assertIn("head-dim", text)


class Tokenize(Case):
    TEXT = "Once upon a time, Lily found a ball."

    def test_there_and_back(self):
        ids = self.prints("tokenize", STORIES, "--ids", "--plain", self.TEXT).strip()
        self.assertEqual(self.prints("tokenize", STORIES, "--decode", ids), self.TEXT + "\n")

    def test_json(self):
        found = json.loads(self.prints("tokenize", STORIES, "--json", self.TEXT))
        self.assertEqual(found["tokens"][:3], ["<s>", " Once", " upon"])
        self.assertEqual(",".join(map(str, found["ids"])), self.prints("tokenize", STORIES, "--ids", self.TEXT).strip())
        self.assertEqual(found["ids"], json.loads(self.prints("tokenize", STORIES_HF, "--json", self.TEXT))["ids"])

    def test_table(self):
        lines = self.prints("tokenize", STORIES, "Once\n").splitlines()
        self.assertEqual(lines[1].split(), ["1", "403", "␠Once"])
        self.assertIn("⏎", lines[2])

    def test_standard_input(self):
        self.assertEqual(self.prints("tokenize", STORIES, "-", "--ids", stdin=self.TEXT.encode()), self.prints("tokenize", STORIES, "--ids", self.TEXT))

    def test_not_utf8(self):
        self.refuses(BAD_FILE, ["UTF-8", "byte 1"], "tokenize", STORIES, "-", stdin=b"a\xffb")
        self.refuses(BAD_FILE, ["UTF-8", "byte 1"], "tokenize", STORIES, b"a\xffb")

    def test_a_vocabulary_alone(self):
        head = b"[UNK]\n[CLS]\n[SEP]\n"
        self.assertEqual(self.prints("tokenize", self.path("vocab.txt", head + b"once\n"), "Once upon", "--ids"), "1,3,0,2\n")
        for content, said in ((b"", "is missing"), (head + b"a\na\n", "lines 4 and 5 hold the same token"), (head + b"\xff\n", "not UTF-8"), (b"a" * 10_000_000, "is missing")):
            self.refuses(BAD_FILE, ["vocab.txt: ", said], "tokenize", self.path("vocab.txt", content), "a text")

    def test_bad_ids(self):
        self.refuses(USAGE, ["--decode: no token 512", "0 to 511"], "tokenize", STORIES, "--decode", "1,512")
        self.refuses(USAGE, ["--decode", "list of token ids"], "tokenize", STORIES, "--decode", "1,x")
        self.refuses(USAGE, ["--decode", "together"], "tokenize", STORIES, "text", "--decode", "1")


class Inspect(Case):
    def test_model(self):
        for path, kind in ((STORIES, "GGUF 3"), (STORIES_HF, "Hugging Face directory")):
            found = json.loads(self.prints("inspect", path, "--json"))
            self.assertEqual(found["format"], kind)
            self.assertEqual(len(found["tensors"]), 47)
            self.assertEqual(sum(t["bytes"] for t in found["tensors"]), 1040128)
        self.assertIn("llama.block_count", self.prints("inspect", STORIES))

    def test_array(self):
        path = self.path("x.npy", npy_bytes(range(6), [2, 3]))
        found = json.loads(self.prints("inspect", path, "--json"))
        self.assertEqual([t["shape"] for t in found["tensors"]], [[2, 3]])


# ---- commands that run a model ----------------------------------------------------------------------------------------------


class Convert(Case):
    AREN = f"{DATA}/models/aren-transliteration"

    def test_ctranslate2(self):
        out = self.path("aren")
        self.assertEqual(self.prints("convert", self.AREN + "-i8", out), f"{out}: heed, 6 layers of an encoder and 6 of a decoder, width 32, 8 heads, "
                         "vocabulary 43 (source 51), 182731 parameters\n")
        self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors", "target", "tokenizer.json", "tokenizer_config.json"])
        found = json.loads(self.prints("convert", self.AREN, out, "--json"))
        self.assertEqual([found[k] for k in ("encoder_layers", "layers", "encoder_vocabulary", "vocabulary")], [6, 6, 51, 43])

    def test_translates(self):
        out = self.path("aren")
        self.prints("convert", self.AREN + "-i16", out)
        for beam in ("1", "5"):
            done = heed("translate", out, "--beam", beam, stdin="آتزمون\nبرلين\nنادر\n".encode())
            self.assertEqual((done.returncode, done.stdout.decode()), (OK, "atzmon\nberlin\nnader\n"), done.stderr)

    def test_inspect(self):
        for path in (self.AREN, self.AREN + "/model.bin"):
            text = self.prints("inspect", path)
            self.assertIn("CTranslate2 2 · 200 tensors", text)
            self.assertIn("TransformerBase", text)
            self.assertRegex(text, r"decoder/layer_0/attention/linear_1/weight +F32 +\[64,32\]")
        self.assertRegex(self.prints("inspect", self.AREN + "-i8"), r"encoder/layer_0/ffn/linear_0/weight +I8 +\[128,32\] +4096")

    def test_others(self):
        out = self.path("gpt")
        self.assertIn("gpt2, 3 layers, width 48", self.prints("convert", SORT, out, "--quiet"))
        self.assertEqual(self.prints("generate", out, "--ids", "0,0,2,1,0,1", "-n", "5"), self.prints("generate", SORT, "--ids", "0,0,2,1,0,1", "-n", "5"))

    def test_refusals(self):
        self.refuses(UNSUPPORTED, ["a model of CTranslate2 is not run as it is", "heed convert"], "logits", self.AREN, "--ids", "1")
        self.refuses(USAGE, "DIR", "convert", self.AREN)
        out = self.path("stories")
        self.refuses(UNSUPPORTED, [out, "does not write tokenizers that merge by scores"], "convert", STORIES, out)
        self.assertEqual(os.listdir(out), [])


class Generate(Case):
    EXPECTED = json.loads(read_file(f"{DATA}/models/stories260k/expected.json"))["greedy_200_tokens"]

    def test_story(self):
        for path in (STORIES, STORIES_HF):
            self.assertEqual(self.prints("generate", path, "-n", "200", "--temp", "0"), self.EXPECTED + "\n")

    def test_story_continued(self):
        prompt = self.EXPECTED[: self.EXPECTED.index(" She")]
        self.assertTrue(self.EXPECTED.startswith(prompt + self.prints("generate", STORIES, "-p", prompt, "-n", "20")[:-1]))
        self.assertTrue(self.EXPECTED.startswith(prompt + self.prints("generate", STORIES, "-p", "-", "-n", "20", stdin=prompt.encode())[:-1]))

    def test_endless(self):
        # as long as nothing is let go it is the plain text; then it goes on beyond the context of 512
        self.assertEqual(self.prints("generate", STORIES, "-n", "200", "--stream-window", "300"), self.EXPECTED + "\n")
        said = json.loads(self.prints("generate", STORIES, "-n", "700", "--stream-window", "60", "--sinks", "2", "--ignore-end", "--json"))
        self.assertEqual(len(said["ids"]), 700)
        self.assertTrue(self.EXPECTED.startswith(said["text"][:100]))
        for said, options in {
            "--sinks: needs --stream-window": ["--sinks", "3"],
            "--sinks: more than the window (got 5, allowed 0 to 4)": ["--stream-window", "4", "--sinks", "5"],
            "allowed 512 in all, the context of the model": ["--stream-window", "512"],
        }.items():
            self.refuses(USAGE if "--sinks" in said else FAILED, [said], "generate", STORIES, *options)

    def test_quantised(self):
        self.assertGreater(len(self.prints("generate", STORIES_Q8, "-n", "50")), 100)

    def test_json(self):
        found = json.loads(self.prints("generate", STORIES, "-n", "200", "--json"))
        self.assertEqual(found["text"], self.EXPECTED)
        self.assertEqual((found["prompt_ids"], len(found["ids"]), found["ended"]), ([1], 200, False))
        again = json.loads(self.prints("generate", STORIES, "--ids", ",".join(map(str, [1, *found["ids"][:50]])), "-n", "10", "--json"))
        self.assertEqual(again["ids"], found["ids"][50:60])

    def test_seed(self):
        sampled = [self.prints("generate", STORIES, "-n", "30", "--temp", "1", "--seed", seed) for seed in ("1", "1", "2")]
        self.assertEqual(sampled[0], sampled[1])
        self.assertNotEqual(sampled[0], sampled[2])
        self.assertEqual(self.prints("generate", STORIES, "-n", "30", "--temp", "1", "--top-k", "1"), self.prints("generate", STORIES, "-n", "30"))

    def test_without_tokenizer(self):
        self.assertEqual(self.prints("generate", SORT, "--ids", "0,0,2,1,0,1", "-n", "5")[:2], "0,")
        self.refuses(USAGE, ["no tokenizer", "--ids"], "generate", SORT, "-p", "2")
        self.refuses(USAGE, ["empty", "no begin token"], "generate", SORT)
        self.refuses(USAGE, ["--ids: no token 3", "0 to 2"], "generate", SORT, "--ids", "3")

    def test_encoder_decoder(self):
        for command in ("generate", "logits"):
            self.refuses(UNSUPPORTED, ["marian: an encoder–decoder turns a source into a target", "heed translate"], command, MARIAN, "--ids", "5,17")
        self.refuses(UNSUPPORTED, "marian: has no tokenizer", "show", MARIAN, "a source")
        self.refuses(UNSUPPORTED, "marian: an encoder–decoder turns", "bench", "generate", MARIAN)

    def test_encoder(self):
        self.refuses(UNSUPPORTED, ["bert: an encoder does not generate", "heed logits"], "generate", BERT, "--ids", "5,17")
        self.refuses(UNSUPPORTED, "bert: an encoder does not generate", "bench", "generate", BERT)

    def test_context(self):
        done = heed("generate", STORIES, "-n", "600", "--ignore-end")
        self.assertEqual(done.returncode, OK)
        self.assertRegex(done.stderr.decode(), r"\Aheed: stops after 511 tokens[^\n]*512[^\n]*\n\Z")
        self.assertEqual(heed("generate", STORIES, "-n", "600", "--ignore-end", "--quiet").stderr, b"")
        self.refuses(USAGE, ["too long", "allowed 512"], "generate", STORIES, "-p", "a story " * 600)

    def test_chat(self):
        self.refuses(UNSUPPORTED, "template", "generate", STORIES, "--chat", "-p", "Hello")
        self.refuses(USAGE, "needs a message", "generate", STORIES, "--chat")

    def test_not_utf8(self):
        self.refuses(BAD_FILE, "UTF-8", "generate", STORIES, "-p", b"\xc3\x28")

    def test_interrupt(self):
        child = subprocess.Popen([HEED, "generate", STORIES, "-n", "511", "--ignore-end", "--threads", "1", "--level", "scalar"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = child.stdout.read(4)
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        self.assertEqual(child.wait(20), INTERRUPTED)
        self.assertEqual(child.stderr.read(), b"")
        self.assertTrue((first + rest).startswith(b"Once"))
        self.assertTrue(rest.endswith(b"\n"))
        child.stdout.close()
        child.stderr.close()

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = heed("generate", STORIES, "-n", "20", stdout=full)
        self.assertEqual((done.returncode, done.stderr.decode()), (FAILED, "heed: standard output: No space left on device\n"))

    def test_reader_that_leaves(self):
        done = subprocess.run(["sh", "-c", f"'{HEED}' generate '{STORIES}' -n 500 | head -c 4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.stdout, done.stderr), (b"Once", b""))


class Logits(Case):
    def test_json(self):
        found = json.loads(self.prints("logits", STORIES, "Once upon a", "--top", "3", "--json"))["positions"]
        self.assertEqual([row["token"] for row in found], ["<s>", " Once", " upon", " a"])
        self.assertEqual(found[3]["next"][0]["token"], " time")
        for row in found:
            p = [c["p"] for c in row["next"]]
            self.assertEqual((len(p), p), (3, sorted(p, reverse=True)))

    def test_array(self):
        path = self.path("x.npy")
        found = json.loads(self.prints("logits", STORIES, "--ids", "1,403,407", "--json", "-o", path))["positions"]
        shape, values = read_npy(read_file(path))
        self.assertEqual(shape, (3, 512))
        for i, row in enumerate(found):
            logits = values[512 * i : 512 * (i + 1)].tolist()
            best = row["next"][0]
            self.assertEqual(logits.index(max(logits)), best["id"])
            self.assertAlmostEqual(math.exp(logits[best["id"]] - max(logits)) / sum(math.exp(x - max(logits)) for x in logits), best["p"], places=7)
        done = heed("logits", STORIES, "--ids", "1,403,407", "-o", "-")
        self.assertEqual(done.stdout, read_file(path))

    def test_sorting(self):
        digits = [2, 0, 1, 1, 2, 0]
        given = digits + sorted(digits)[:-1]
        found = json.loads(self.prints("logits", SORT, "--ids", ",".join(map(str, given)), "--json"))["positions"]
        self.assertEqual([row["next"][0]["id"] for row in found[5:]], sorted(digits))

    def test_table(self):
        lines = self.prints("logits", STORIES, "Once upon", "--top", "2").splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[2], r"\A +2  ␠upon +→  ␠a 0\.\d{3} ")

    def test_encoder(self):
        ids = [5 * i % 96 for i in range(64)] # more rows than a decoder runs at once
        found = json.loads(self.prints("logits", BERT, "--ids", ",".join(map(str, ids)), "--json", "-o", self.path("x.npy")))["positions"]
        shape, values = read_npy(read_file(self.path("x.npy")))
        self.assertEqual(shape, (64, 96))
        for i, row in enumerate(found):
            logits = values[96 * i : 96 * (i + 1)].tolist()
            self.assertEqual((row["id"], row["here"][0]["id"]), (ids[i], logits.index(max(logits))))
        self.assertEqual(len(self.prints("logits", BERT, "--ids", "5,17,3").splitlines()), 3)

    def test_refusals(self):
        self.refuses(USAGE, "empty", "logits", STORIES, "--plain", "")
        self.refuses(USAGE, "together", "logits", STORIES, "x", "--ids", "1")
        self.refuses(USAGE, ["too long", "allowed 512"], "logits", STORIES, "a story " * 600)


class Show(Case):
    TEXT = "Once upon a time, Lily had a red ball. She gave it to her friend Tom."

    def test_plain(self):
        for arguments in ([], ["--color", "never"]):
            text = self.prints("show", STORIES, self.TEXT, "--token", "it", *arguments)
            self.assertNotIn(ESCAPE, text)
            self.assertIn("llama · 5 layers × 8 heads (4 key/value)", text.splitlines()[0])
            self.assertIn("it →", text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_color(self):
        colored = self.prints("show", STORIES, self.TEXT, "--color", "always")
        self.assertIn(ESCAPE + "[48;5;", colored)
        self.assertIn(ESCAPE + "[48;2;", self.prints("show", STORIES, self.TEXT, "--color", "always", env=environment(COLORTERM="truecolor")))

    def on_terminal(self, *arguments, width=100, **changes):
        """What a terminal of this width receives."""
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        process = subprocess.Popen([HEED, *arguments], stdin=subprocess.DEVNULL, stdout=child, stderr=subprocess.DEVNULL, env=environment(TERM="xterm-256color", **changes))
        os.close(child)
        received = b""
        while select.select([parent], [], [], 30)[0]:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            received += piece
        os.close(parent)
        self.assertEqual(process.wait(30), OK, received)
        return received.decode()

    def test_terminal(self):
        self.assertIn(ESCAPE + "[48;5;", self.on_terminal("show", STORIES, self.TEXT))
        self.assertNotIn(ESCAPE, self.on_terminal("show", STORIES, self.TEXT, NO_COLOR="1"))
        self.assertNotIn(ESCAPE, self.on_terminal("show", STORIES, self.TEXT, "--color", "never"))
        for width in (40, 132):
            for line in self.on_terminal("show", STORIES, self.TEXT, NO_COLOR="1", width=width).splitlines():
                self.assertLessEqual(len(line), width, line)

    def test_files(self):
        names = {"html": b"<!doctype html", "png": b"\x89PNG", "svg": b"<", "json": b"{", "csv": b"", "npy": b"\x93NUMPY"}
        paths = {suffix: self.path(f"x.{suffix}") for suffix in names}
        outputs = [word for path in paths.values() for word in ("-o", path)]
        self.assertEqual(self.prints("show", STORIES, self.TEXT, *outputs), "")
        for suffix, begin in names.items():
            content = read_file(paths[suffix])
            self.assertGreater(len(content), 100)
            self.assertTrue(content.lower().startswith(begin.lower()), (suffix, content[:40]))
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(f"x.{s}" for s in names))
        page = read_file(paths["html"]).decode()
        self.assertIn("fnv1a64:", page)
        tokens = json.loads(self.prints("tokenize", STORIES, self.TEXT, "--json"))["ids"]
        shape, weights = read_npy(read_file(paths["npy"]))
        self.assertEqual(shape, (5, 8, len(tokens), len(tokens)))
        for i in range(len(tokens)):
            row = weights[i * len(tokens) : (i + 1) * len(tokens)].tolist()
            self.assertAlmostEqual(sum(row), 1, places=5)
            self.assertEqual(row[i + 1 :], [0] * (len(tokens) - i - 1))

    def test_choice(self):
        everything, some = self.path("all.npy"), self.path("some.npy")
        self.prints("show", STORIES, self.TEXT, "-o", everything)
        self.prints("show", STORIES, self.TEXT, "--layers", "0,2-3,-1", "--heads", "1,-2", "-o", some)
        shape, whole = read_npy(read_file(everything))
        size = shape[2] * shape[3]
        expected = []
        for layer in (0, 2, 3, 4):
            for head in (1, 6):
                expected += whole[(layer * 8 + head) * size : (layer * 8 + head + 1) * size].tolist()
        self.assertEqual(read_npy(read_file(some)), ((4, 2, shape[2], shape[3]), array.array("f", expected)))

    def test_standard_output(self):
        found, again = (json.loads(self.prints("show", STORIES, self.TEXT, "--layers", "1", *how)) for how in (["--json"], ["-o", "-"]))
        for key in ("seconds", "command"):
            found.pop(key), again.pop(key)
        self.assertEqual(found, again)
        svg = self.prints("show", STORIES, self.TEXT, "-o", "-", "--format", "svg")
        self.assertIn("<svg", svg)

    def test_ids(self):
        ids = self.prints("tokenize", STORIES, "--ids", self.TEXT).strip()
        self.assertEqual(self.prints("show", STORIES, "--ids", ids), self.prints("show", STORIES, self.TEXT))
        self.assertIn("gpt2 · 3 layers × 3 heads", self.prints("show", SORT, "--ids", "2,0,1"))
        self.assertIn("1 token", self.prints("show", STORIES, "--ids", "5"))

    def test_encoder(self):
        text = self.prints("show", BERT, "--ids", "5,17,3,90", "--token", "0")
        self.assertIn("bert · 3 layers × 4 heads", text.splitlines()[0])
        record = json.loads(self.prints("show", BERT, "--ids", "5,17,3,90", "--json"))
        self.assertFalse(record["causal"])

    def test_token(self):
        by_text = self.prints("show", STORIES, self.TEXT, "--token", "it")
        place = json.loads(self.prints("tokenize", STORIES, self.TEXT, "--json"))["tokens"].index(" it")
        self.assertEqual(self.prints("show", STORIES, self.TEXT, "--token", str(place)), by_text)
        self.refuses(USAGE, ["--token", "zebra", "position"], "show", STORIES, self.TEXT, "--token", "zebra")
        self.refuses(USAGE, ["--token", "no position 999"], "show", STORIES, self.TEXT, "--token", "999")
        self.assertIn("3 places", heed("show", STORIES, self.TEXT, "--token", "a").stderr.decode())

    def test_refusals(self):
        self.refuses(USAGE, ["--layers: no layer 5", "0 to 4"], "show", STORIES, "x", "--layers", "5")
        self.refuses(USAGE, ["--layers: no layer -6"], "show", STORIES, "x", "--layers", "-6")
        self.refuses(USAGE, ["--heads: no head 8", "0 to 7"], "show", STORIES, "x", "--heads", "0-8")
        self.refuses(USAGE, ["--layers", "backwards"], "show", STORIES, "x", "--layers", "3-1")
        self.refuses(USAGE, ["--layers", "list of numbers"], "show", STORIES, "x", "--layers", "first")
        self.refuses(USAGE, ["x.gif", ".html .png .svg"], "show", STORIES, "x", "-o", "x.gif")
        self.refuses(USAGE, "empty", "show", STORIES, "")
        self.refuses(USAGE, ["too long", "allowed 512"], "show", STORIES, "a story " * 600)
        self.refuses(BAD_FILE, "UTF-8", "show", STORIES, b"\xff")
        for path in (self.path("no/such/x.html"), "/dev/full"):
            if path != "/dev/full":
                self.refuses(FAILED, path, "show", STORIES, "x", "-o", path)

    def test_full_disk(self):
        for extra in ([], ["--json"], ["-o", "-", "--format", "npy"]):
            with open("/dev/full", "wb") as full:
                done = heed("show", STORIES, self.TEXT, *extra, stdout=full)
            self.assertEqual((done.returncode, done.stderr.decode()), (FAILED, "heed: standard output: No space left on device\n"))

    def test_unknown_architecture(self):
        config = json.loads(read_file(f"{STORIES_HF}/config.json"))
        config["architectures"], config["model_type"] = ["MambaForCausalLM"], "mamba"
        self.path("config.json", json.dumps(config).encode())
        for name in ("model.safetensors", "tokenizer.json"):
            os.symlink(f"{STORIES_HF}/{name}", self.path(name))
        self.refuses(UNSUPPORTED, ["mamba", "llama", "gpt2"], "show", self.folder, "x")


class Encoder(Case):
    """`heed train encoder` and what is done with the result."""

    TEXT = b"the cat sat on the mat; the dog sat on the log. " * 60

    def words(self, out, *arguments):
        return ["train", "encoder", "--data", self.path("x.txt", self.TEXT), "--layers", "1", "--heads", "2", "--width", "64", "--context", "16", "--batch", "8",
                "--lr", "0.002", "--warmup", "50", "--out", out, *arguments]

    def train(self, out, *arguments):
        done = heed(*self.words(out, *arguments))
        self.assertEqual(done.returncode, OK, done.stderr)
        return done.stderr.decode()

    def test_learns(self):
        out = self.path("out")
        said = self.train(out, "--steps", "1000")
        config = json.loads(read_file(out + "/config.json"))
        self.assertEqual((config["model_type"], config["architectures"], config["vocab_size"]), ("bert", ["BertForMaskedLM"], len(set(self.TEXT)) + 1))
        found = json.loads(self.prints("eval", out, "--json", "--quiet"))
        told = float(re.findall(r"validation loss ([0-9.]+)", said)[-1])
        self.assertAlmostEqual(found["loss"], told, places=3)  # the same windows with the same masks
        self.assertLess(found["loss"], 1.2)  # a guess by frequency alone has 2.5
        self.assertAlmostEqual(found["perplexity"], math.exp(found["loss"]), places=6)
        self.assertGreater(found["masked_accuracy"], 0.5)
        self.assertNotEqual(json.loads(self.prints("eval", out, "--json", "--quiet", "--seed", "5"))["loss"], found["loss"])
        row = json.loads(self.prints("logits", out, "the cat s[MASK]t on t", "--special", "--json"))["positions"][9]
        self.assertEqual((row["token"], row["here"][0]["token"]), ("[MASK]", "a"))
        self.refuses(UNSUPPORTED, "an encoder does not generate", "generate", out, "-p", "the")
        self.refuses(USAGE, ["--context: ", "got 17, allowed 1..16"], "eval", out, "--context", "17")

    def test_resumed(self):
        whole, cut, log = self.path("whole"), self.path("cut"), self.path("log")
        options = ["--steps", "400", "--dropout", "0.1", "--tokens", "bpe:280"]
        self.train(whole, *options)
        process = subprocess.Popen([HEED, *self.words(cut, *options, "--log", log)], stderr=subprocess.PIPE, env=environment())
        while not os.path.exists(log) or not read_file(log):
            time.sleep(0.001)
        process.terminate()
        said = process.communicate()[1].decode()
        self.assertEqual(process.returncode, INTERRUPTED, said)
        self.refuses(FAILED, "mask: 0.15 there, 0.3 asked for", *self.words(cut, *options, "--resume", "--mask", "0.3"))
        self.train(cut, *options, "--resume")
        self.assertEqual(read_file(cut + "/model.safetensors"), read_file(whole + "/model.safetensors"))

    def test_other_forms(self):
        for name, options in {"pre": ["--pre-norm"], "rotary": ["--rotary", "--relu"]}.items():
            out = self.path(name)
            self.train(out, "--steps", "3", *options)
            self.assertEqual(json.loads(read_file(out + "/config.json"))["model_type"], "heed")
            self.assertFalse(json.loads(self.prints("show", out, "the cat", "--json"))["causal"])
            self.assertIn("found", self.prints("eval", out, "--quiet"))

    def test_older_names(self):
        weights = read_file(BERT + "/model.safetensors")
        header = json.loads(weights[8 : 8 + struct.unpack("<Q", weights[:8])[0]])
        renamed = {re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name)): value for name, value in header.items()}
        self.assertNotEqual(header.keys(), renamed.keys())
        text = json.dumps(renamed).encode()
        text += b" " * (-len(text) % 8)
        os.symlink(BERT + "/config.json", self.path("config.json"))
        self.path("model.safetensors", struct.pack("<Q", len(text)) + text + weights[8 + struct.unpack("<Q", weights[:8])[0] :])
        same = [heed("logits", path, "--ids", "5,17,3,90", "-o", "-").stdout for path in (BERT, self.folder)]
        self.assertEqual(same[0], same[1])
        self.assertEqual(len(same[0]), 128 + 4 * 4 * 96)

    def test_refusals(self):
        out = self.path("out")
        text = self.path("x.txt", self.TEXT)
        self.refuses(BAD_FILE, ["no token [MASK] or <mask>"], "train", "encoder", "--data", text, "--tokens", STORIES, "--out", out)
        self.refuses(BAD_FILE, ["too short"], "train", "encoder", "--data", text, "--context", "5000", "--out", out)
        self.refuses(USAGE, ["--mask", "0.001 to 1"], "train", "encoder", "--data", text, "--mask", "0", "--out", out)


if __name__ == "__main__":
    unittest.main(verbosity=1)
