#!/usr/bin/env python3
"""cli.py: the program as people and scripts use it: command, output, exit code.

HEED names the program and HEED_TEST_DATA the fixtures; tests/tests.cmake sets both. Python's standard library only. A class is a command or a promise
that all commands keep; every refusal must be one line on standard error, with nothing on standard output."""

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
import sys
import tempfile
import termios
import time
import unittest

import naive_attention as naive

HEED = os.environ["HEED"]
DATA = os.environ["HEED_TEST_DATA"]
STORIES = f"{DATA}/models/stories260k/stories260k-f32.gguf"
STORIES_HF = f"{DATA}/models/stories260k-hf"
STORIES_Q8 = f"{DATA}/models/stories260k/stories260k-q8_0.gguf"
SORT = f"{DATA}/models/gpt-nano-sort"
LAYERS = f"{DATA}/expected/layers"

OK, FAILED, USAGE, BAD_FILE, UNSUPPORTED, NO_MEMORY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
COMMANDS = "show generate logits tokenize inspect attend bench info help completion".split()
BENCHES = "attention backward decode layer gemm generate".split()
COMPLETE = [c for c in COMMANDS if c != "bench"] + [f"bench {b}" for b in BENCHES]
ESCAPE = "\x1b"


def environment(**changes):
    """This process's environment without what steers colours and width."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "COLUMNS", "COLORFGBG", "TERM")}
    return {**kept, **changes}


def heed(*arguments, stdin=b"", env=None, stdout=subprocess.PIPE, seconds=120):
    return subprocess.run([HEED, *arguments], input=stdin, stdout=stdout, stderr=subprocess.PIPE, env=env or environment(), timeout=seconds)


class Case(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as stream:
                stream.write(content)
        return path

    def prints(self, *arguments, **options):
        """The standard output of a call that succeeds and says nothing else."""
        done = heed(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr.decode()), (OK, ""), arguments)
        return done.stdout.decode()

    def refuses(self, code, fragments, *arguments, **options):
        """The call fails with this code and one line that holds every fragment."""
        done = heed(*arguments, **options)
        error = done.stderr.decode(errors="backslashreplace")
        self.assertEqual(done.returncode, code, f"{arguments}: {error}")
        self.assertEqual(done.stdout, b"", arguments)
        self.assertRegex(error, r"\Aheed: [^\n]+\n\Z", arguments)
        for fragment in [fragments] if isinstance(fragments, str) else fragments:
            self.assertIn(fragment, error, arguments)
        return error


# ---- arrays ----------------------------------------------------------------------------------------------------------------


def npy_bytes(values, shape, code="f", descr="<f4"):
    header = repr({"descr": descr, "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.array(code, values).tobytes()


def read_npy(data):
    """(shape, values) of a .npy of f16, f32 or f64."""
    assert data[:6] == b"\x93NUMPY", data[:16]
    length = struct.unpack("<H", data[8:10])[0]
    header = data[10 : 10 + length].decode()
    shape = tuple(int(d) for d in re.findall(r"\d+", re.search(r"'shape': \(([^)]*)\)", header).group(1)))
    code = {"<f2": "e", "<f4": "f", "<f8": "d"}[re.search(r"'descr': '([^']*)'", header).group(1)]
    values = array.array("d" if code == "d" else "f", (x for (x,) in struct.iter_unpack(code, data[10 + length :])))
    assert len(values) == math.prod(shape), (shape, len(values))
    return shape, values


def read_file(path):
    with open(path, "rb") as stream:
        return stream.read()


def read_tensor(path, name):
    """(shape, values, metadata) of an f64 tensor in a safetensors file."""
    data = read_file(path)
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    begin, end = header[name]["data_offsets"]
    values = array.array("d")
    values.frombytes(data[8 + length + begin : 8 + length + end])
    return tuple(header[name]["shape"]), values, header


def rounded(x, bits, least):
    """x to the nearest number of a binary format with so many bits of fraction, ties to even; numbers below 2^least are subnormal, the largest exponent is −least + 1."""
    if x == 0 or not math.isfinite(x):
        return x
    step = 2.0 ** (max(math.frexp(x)[1] - 1, least) - bits)
    y = round(x / step) * step
    return math.copysign(y if abs(y) < 2.0 ** (2 - least) else math.inf, x)


def naive_numbers():
    """Numbers in (−1, 1) that look like nothing, the same in every run."""
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 32) / 2**31 - 1


def distance(a, b):
    """The largest difference; equal infinities do not differ."""
    return max((0 if x == y else abs(x - y) for x, y in zip(a, b)), default=0)


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
        for command in COMMANDS:
            self.assertRegex(text, rf"\n  {command}")

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
        self.refuses(USAGE, ["one argument too many", "cat", "quotes"], "show", STORIES, "The", "cat", "sat")

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


class Attend(Case):
    def fixture(self, name, *outputs, extra=()):
        """Runs the description of a PyTorch fixture; returns the outputs' (shape, values) and the file."""
        path = f"{LAYERS}/{name}.safetensors"
        _, _, header = read_tensor(path, "q")
        about = header["__metadata__"]
        arguments = ["attend", "--scale", about["scale"], "--softcap", about["softcap"], *extra]
        for key in ("q", "k", "v"):
            arguments += [f"--{key}", f"{path}:{key}"]
        for key, option in {"bias": "--bias", "mask": "--mask", "key_lengths": "--key-lengths"}.items():
            if key in header:
                arguments += [option, f"{path}:{key}"]
        if about["causal"] != "None":
            arguments += ["--causal", about["causal"].replace("_", "-")]
        if about["window"] != "None":
            arguments += ["--window", about["window"].strip("()").replace(" ", "")]
        files = {key: self.path(f"{key}.npy") for key in outputs}
        for key in outputs:
            if not key.startswith("grad-"):
                arguments += ["-o" if key == "out" else f"--{key}", files[key]]
        if "grad-q" in outputs:
            arguments += ["--grad-out", f"{path}:grad_out", "--grads", self.path("grad")]
        self.prints(*arguments)
        return {key: read_npy(read_file(files[key])) for key in outputs}, path

    def test_against_pytorch(self):
        names = sorted(n[: -len(".safetensors")] for n in os.listdir(LAYERS) if n.startswith("sdpa-"))
        self.assertEqual(len(names), 11)
        for name in names:
            for extra, tolerance in (((), 2e-6), (("--reference",), 1e-12), (("--level", "scalar", "--threads", "1"), 2e-6)):
                with self.subTest(name, extra=extra):
                    found, path = self.fixture(name, "out", "weights", "lse", extra=extra)
                    for key, (shape, values) in found.items():
                        expected_shape, expected, _ = read_tensor(path, key)
                        self.assertEqual(shape, expected_shape)
                        self.assertLessEqual(distance(values, expected), tolerance, key)

    GRADIENTS = ("grad-q", "grad-k", "grad-v")

    def test_gradients_against_pytorch(self):
        for name in sorted(n[: -len(".safetensors")] for n in os.listdir(LAYERS) if n.startswith("sdpa-")):
            for extra, tolerance in (((), 5e-6), (("--reference",), 1e-12)):
                with self.subTest(name, extra=extra):
                    found, path = self.fixture(name, *self.GRADIENTS, extra=extra)
                    for key, (shape, values) in found.items():
                        expected_shape, expected, _ = read_tensor(path, key.replace("-", "."))
                        self.assertEqual(shape, expected_shape)
                        self.assertLessEqual(distance(values, expected), tolerance * max(map(abs, expected)), key)
        levels = json.loads(self.prints("info", "--json"))["levels"]
        reference = self.fixture("sdpa-tile-edges", *self.GRADIENTS)[0]
        for extra in [("--threads", "1"), ("--threads", "3")] + [("--level", level) for level in levels]:
            self.assertEqual(self.fixture("sdpa-tile-edges", *self.GRADIENTS, extra=extra)[0], reference, extra)

    def test_same_bits(self):
        reference = self.fixture("sdpa-tile-edges", "out", "lse")[0]
        levels = json.loads(self.prints("info", "--json"))["levels"]
        for extra in [("--threads", n) for n in "1238"] + [("--level", level) for level in levels]:
            self.assertEqual(self.fixture("sdpa-tile-edges", "out", "lse", extra=extra)[0], reference, extra)

    def small(self, **shapes):
        count = {key: math.prod(shape) for key, shape in shapes.items()}
        return {key: self.path(f"{key}.npy", npy_bytes([math.sin(i + len(key)) for i in range(count[key])], shapes[key])) for key in shapes}

    def test_standard_output(self):
        f = self.small(q=[3, 4], k=[5, 4], v=[5, 2])
        inputs = ["--q", f["q"], "--k", f["k"], "--v", f["v"]]
        out = self.path("out.npy")
        self.prints("attend", *inputs, "-o", out)
        done = heed("attend", *inputs, "-o", "-")
        self.assertEqual(done.stdout, read_file(out))
        self.assertEqual(read_npy(done.stdout)[0], (3, 2))
        with open("/dev/full", "wb") as full:
            done = heed("attend", *inputs, "-o", "-", stdout=full)
        self.assertEqual((done.returncode, done.stderr.decode()), (FAILED, "heed: standard output: No space left on device\n"))

    def test_types(self):
        f = self.small(q=[3, 4], k=[5, 4], v=[5, 2])
        single = read_npy(heed("attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", "-").stdout)[1]
        for key in f:
            shape, values = read_npy(read_file(f[key]))
            self.path(f"{key}64.npy", npy_bytes(values, shape, "d", "<f8"))
            self.path(f"{key}16.npy", npy_bytes([struct.unpack("<H", struct.pack("<e", x))[0] for x in values], shape, "H", "<f2"))
        for bits, tolerance in ((64, 0), (16, 2e-3)):
            given = [word for key in "qkv" for word in (f"--{key}", self.path(f"{key}{bits}.npy"))]
            self.assertLessEqual(distance(read_npy(heed("attend", *given, "-o", "-").stdout)[1], single), tolerance)

    def test_stored_type(self):
        """Results in f16 and bf16 are the f32 results over rounded inputs, rounded once more."""
        # All outputs of one call, so that the gradients see the same rounded out.
        for type, bits, least in (("f16", 10, -14), ("bf16", 7, -126)):
            found, path = self.fixture("sdpa-gqa-causal", "out", "weights", "lse", *self.GRADIENTS, extra=("--type", type))
            f = {}
            for key in ("q", "k", "v", "grad_out"):
                shape, values, _ = read_tensor(path, key)
                f[key] = self.path(f"{key}.npy", npy_bytes([rounded(x, bits, least) for x in values], shape))
            files = {key: self.path(f"f32-{key}.npy") for key in ("out", "weights", "lse")}
            self.prints("attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "--causal", "top-left", "-o", files["out"], "--weights", files["weights"], "--lse", files["lse"], "--grad-out", f["grad_out"], "--grads", self.path("f32-grad"))
            for key in ("weights", "lse"):
                self.assertEqual(found[key], read_npy(read_file(files[key])), key)
            shape, values = read_npy(read_file(files["out"]))
            self.assertEqual((found["out"][0], found["out"][1].tolist()), (shape, [rounded(x, bits, least) for x in values]))
            for key in self.GRADIENTS:
                shape, values = read_npy(read_file(self.path(f"f32-{key}.npy")))
                self.assertEqual(found[key][0], shape)
                self.assertLessEqual(distance(found[key][1], values), 4 * 2.0**-bits * max(map(abs, values)), key)
                self.assertEqual(found[key][1].tolist(), [rounded(x, bits, least) for x in found[key][1]], key)

    def test_rounding_of_types(self):
        """Halfway cases, subnormal numbers, overflow: m = 1 and d = 1, so that out is the value as it was converted."""
        tie = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 65519, 65520, -70000, 2.0**-24, 2.0**-25, 1.5 * 2.0**-24, 2.0**-14 - 2.0**-25, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, 1e-40, 2.0**-134]
        one = self.path("one.npy", npy_bytes([1], [1, 1]))
        v = self.path("v.npy", npy_bytes(tie, [1, len(tie)], "d", "<f8"))
        for type, bits, least in (("f16", 10, -14), ("bf16", 7, -126)):
            out = read_npy(heed("attend", "--q", one, "--k", one, "--v", v, "--type", type, "-o", "-").stdout)[1]
            self.assertEqual([x.hex() for x in out], [rounded(x, bits, least).hex() for x in tie], type)

    def naive_case(self, about, options, bias=False, sink=False, shapes=()):
        """The program against naive_attention.py: out, lse, weights and every gradient, in f32 and in f64."""
        random = naive_numbers()
        for name in os.listdir(self.folder):
            if name.startswith("grad-"):
                os.unlink(self.path(name))
        shapes = {"q": (4, 5, 3), "k": (2, 7, 3), "v": (2, 7, 2), **({"bias": (4, 5, 7)} if bias else {}), **({"sink": (4,)} if sink else {}), **dict(shapes)}
        inputs = {name: naive.nested(random, shape) for name, shape in shapes.items()}
        dout_shape = (*shapes["q"][:2], shapes["v"][2])
        dout = naive.nested(random, dout_shape)
        reference = naive.Attention(inputs, **about)
        everything, gradients = {name: naive.flat(x) for name, x in reference.run().items()}, reference.gradients(dout)
        expected = {name: everything[name] for name in ("out", "weights", "lse")}
        words = ["attend", *options, "--grad-out", self.path("dout.npy", npy_bytes(naive.flat(dout), dout_shape, "d", "<f8")), "--grads", self.path("grad")]
        for name, shape in shapes.items():
            words += [f"--{name}", self.path(f"{name}.npy", npy_bytes(naive.flat(inputs[name]), shape, "d", "<f8"))]
        for name in expected:
            words += ["-o" if name == "out" else f"--{name}", self.path(f"found-{name}.npy")]
        for extra, tolerance, gradient_tolerance in (([], 2e-6, 5e-6), (["--reference"], 1e-12, 1e-8)):
            self.prints(*words, *extra)
            for name, values in expected.items():
                self.assertLessEqual(distance(read_npy(read_file(self.path(f"found-{name}.npy")))[1], values), tolerance, (name, extra))
            self.assertEqual({f"grad-{name}.npy" for name in gradients}, {name for name in os.listdir(self.folder) if name.startswith("grad-")})
            for name, values in gradients.items():
                shape, found = read_npy(read_file(self.path(f"grad-{name}.npy")))
                self.assertEqual(shape, tuple(shapes[name]))
                self.assertLessEqual(distance(found, values), gradient_tolerance * max(map(abs, values)), (name, extra))
        for tap in ("weights", "scores", "biased", "dropped"):
            self.prints(*words, "--reference", "--tap", tap)
            self.assertLessEqual(distance(read_npy(read_file(self.path("found-weights.npy")))[1], everything[tap]), 1e-12, tap)

    def test_philox(self):
        self.assertEqual(naive.philox((0, 0, 0, 0), 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))
        self.assertEqual(naive.philox((2**32 - 1,) * 4, 2**64 - 1), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))

    def test_plain(self):
        self.naive_case({}, [])
        self.naive_case({"causal": 1, "scale": -0.7}, ["--causal", "1", "--scale", "-0.7"])

    def test_softcap_tap(self):
        f = self.small(q=[2, 3, 4], k=[2, 5, 4], v=[2, 5, 6])
        words = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "--softcap", "0.5", "--reference", "--weights", "-"]
        scores, capped, weights = (read_npy(heed(*words, "--tap", tap).stdout)[1] for tap in ("scores", "capped", "weights"))
        self.assertLessEqual(distance(capped, [0.5 * math.tanh(s / 0.5) for s in scores]), 1e-15)
        self.assertAlmostEqual(weights[0] / weights[1], math.exp(capped[0] - capped[1]), places=12)
        self.refuses(USAGE, ["--tap", "weights|scores|capped|biased|dropped"], *words, "--tap", "logits")

    def test_bias(self):
        self.naive_case({"causal": "bottom-right"}, ["--causal", "bottom-right"], bias=True)

    def test_sink(self):
        self.naive_case({"causal": 0}, ["--causal", "top-left"], sink=True)
        f = self.small(q=[2, 3, 4], k=[2, 5, 4], v=[2, 5, 6])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", "-"]
        sinks = self.path("sinks.npy", npy_bytes([0.5, -1.25], [2]))
        self.assertEqual(heed(*inputs, "--sink", "0.5,-1.25").stdout, heed(*inputs, "--sink", sinks).stdout)
        self.assertNotEqual(heed(*inputs, "--sink", "0.5,-1.25").stdout, heed(*inputs).stdout)
        self.refuses(FAILED, "sink", *inputs, "--sink", "1,2,3")
        self.refuses(BAD_FILE, "1,x", *inputs, "--sink", "1,x")

    def test_alibi(self):
        slopes = [2**-2, 2**-4, 2**-6, 2**-8]
        self.naive_case({"causal": "bottom-right", "alibi": slopes}, ["--causal", "bottom-right", "--alibi", "auto"])
        self.naive_case({"alibi": [0.5, -1, 0, 2]}, ["--align", "bottom-right", "--alibi", "0.5,-1,0,2"])

    def test_alibi_slopes(self):
        """One query that ties with its own key and the one before: the slope is the difference of the logarithms of their weights."""
        expected = json.loads(read_file(f"{DATA}/expected/tables.json"))["alibi_slopes"]
        self.assertGreater(len(expected), 5)
        for heads, slopes in expected.items():
            q = self.path("q.npy", npy_bytes([0] * int(heads), [int(heads), 1, 1]))
            k = self.path("k.npy", npy_bytes([0] * 2, [1, 2, 1]))
            weights = self.path("weights.npy")
            self.prints("attend", "--q", q, "--k", k, "--v", k, "--align", "bottom-right", "--alibi", "auto", "--weights", weights, "--reference")
            w = read_npy(read_file(weights))[1]
            self.assertLessEqual(distance([math.log(w[2 * h + 1] / w[2 * h]) for h in range(int(heads))], slopes), 1e-12, heads)

    def test_documents(self):
        about = {"documents": [2, 0, 3], "key_documents": [3, 1, 3]}
        options = ["--documents", "2,0,3", "--key-documents", "3,1,3"]
        self.naive_case(about, options)
        self.naive_case({**about, "causal": "bottom-right", "alibi": [0.5, 0.25, 0.125, 1]}, [*options, "--causal", "bottom-right", "--alibi", "0.5,0.25,0.125,1"], bias=True, sink=True)
        self.naive_case({"documents": [3, 4], "causal": 0}, ["--documents", self.path("lengths.npy", npy_bytes([3, 4], [2], "q", "<i8")), "--causal", "top-left"], shapes={"q": (4, 7, 3)})

    def test_dropout(self):
        about = {"dropout": 0.3, "seed": 2**40 + 7, "stream": 2}
        options = ["--dropout", "0.3", "--seed", str(2**40 + 7), "--stream", "2"]
        self.naive_case(about, options)
        self.naive_case({**about, "causal": 2, "documents": [2, 3], "key_documents": [4, 3]}, [*options, "--causal", "2", "--documents", "2,3", "--key-documents", "4,3"], bias=True, sink=True)
        f = self.small(q=[2, 3, 4], k=[2, 5, 4], v=[2, 5, 6])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", "-"]
        found = [heed(*inputs, "--dropout", "0.5", *words).stdout for words in ([], ["--seed", "1"], ["--stream", "1"], ["--seed", "0", "--stream", "0"])]
        self.assertEqual(found[0], found[3])
        self.assertEqual(len(set(found)), 3)
        self.refuses(USAGE, ["--dropout", "1.5", "0 to 1"], *inputs, "--dropout", "1.5")
        self.refuses(USAGE, ["--stream", "4294967295"], *inputs, "--stream", "4294967296")

    def test_scores(self):
        additive, bilinear = {"k": (2, 7, 4), "wq": (6, 3), "wk": (6, 4), "wv": (6,)}, {"k": (2, 7, 4), "wq": (3, 4)}
        for name, shapes in (("additive", additive), ("bilinear", bilinear)):
            self.naive_case({"score": name}, ["--score", name], shapes=shapes)
            options = ["--score", name, "--scale", "1.5", "--causal", "bottom-right", "--dropout", "0.25", "--seed", "3"]
            self.naive_case({"score": name, "scale": 1.5, "causal": "bottom-right", "dropout": 0.25, "seed": 3}, options, bias=True, sink=True, shapes=shapes)

    def test_additive_against_pytorch(self):
        path = f"{LAYERS}/additive.safetensors"
        words = ["attend", "--score", "additive", "--wq", f"{path}:Wq", "--wk", f"{path}:Wk", "--wv", f"{path}:wv", "--key-lengths", f"{path}:key_lengths"]
        for name, key in (("q", "q"), ("k", "k"), ("v", "k"), ("grad-out", "grad_out")):
            shape, values, _ = read_tensor(path, key)
            words += [f"--{name}", self.path(f"{name}.npy", npy_bytes(values, (shape[0], 1, *shape[1:]), "d", "<f8"))]
        words += ["-o", self.path("out.npy"), "--weights", self.path("weights.npy"), "--grads", self.path("grad")]
        for extra, tolerance in (([], 5e-6), (["--reference"], 1e-12)):
            self.prints(*words, *extra)
            found = {name: read_npy(read_file(self.path(f"{name}.npy")))[1] for name in ("out", "weights", "grad-q", "grad-k", "grad-v", "grad-wq", "grad-wk", "grad-wv")}
            found["grad-k"] = [a + b for a, b in zip(found["grad-k"], found["grad-v"])]  # the keys are the values
            for name, key in {"out": "out", "weights": "weights", "grad-q": "grad.q", "grad-k": "grad.k", "grad-wq": "grad.Wq", "grad-wk": "grad.Wk", "grad-wv": "grad.wv"}.items():
                expected = read_tensor(path, key)[1]
                self.assertLessEqual(distance(found[name], expected), tolerance * max(map(abs, expected)), (name, extra))

    def test_score_refusals(self):
        f = self.small(q=[2, 3, 4], k=[2, 5, 4], v=[2, 5, 6], wq=[6, 4], wk=[6, 4], wv=[6], thin=[6, 3])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", self.path("out.npy")]
        self.refuses(USAGE, "--score additive: needs --wk", *inputs, "--score", "additive", "--wq", f["wq"], "--wv", f["wv"])
        self.refuses(USAGE, "--score bilinear: needs --wq", *inputs, "--score", "bilinear")
        self.refuses(USAGE, "--wq: --score dot has no such weights", *inputs, "--wq", f["wq"])
        self.refuses(USAGE, "--wk: --score bilinear has no such weights", *inputs, "--score", "bilinear", "--wq", f["wq"], "--wk", f["wk"])
        self.refuses(USAGE, ["--score", "dot|additive|bilinear"], *inputs, "--score", "general")
        self.refuses(FAILED, "wq", *inputs, "--score", "additive", "--wq", f["thin"], "--wk", f["wk"], "--wv", f["wv"])
        self.refuses(BAD_FILE, "nothing.npy", *inputs, "--score", "bilinear", "--wq", self.path("nothing.npy"))
        self.assertFalse(os.path.exists(self.path("out.npy")))

    def test_packed_refusals(self):
        f = self.small(q=[2, 3, 4], k=[2, 5, 4], v=[2, 5, 6])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", self.path("out.npy")]
        self.refuses(USAGE, "--key-documents: needs --documents", *inputs, "--key-documents", "2,3")
        self.refuses(USAGE, ["--documents", "add up to 2 of the 3 rows"], *inputs, "--documents", "1,1")
        self.refuses(USAGE, ["--documents", "document 1 has 5, 2 are left"], *inputs, "--documents", "1,5")
        self.refuses(USAGE, ["--documents", "document 0 has -1"], *inputs, "--documents", "-1,4")
        self.refuses(USAGE, ["--key-documents", "add up to 4 of the 5 rows"], *inputs, "--documents", "1,2", "--key-documents", "2,2")
        self.refuses(USAGE, ["--key-documents: 3 numbers, allowed 2"], *inputs, "--documents", "1,2", "--key-documents", "2,2,1")
        self.refuses(USAGE, ["--key-lengths: 2 numbers, allowed 1"], *inputs, "--key-lengths", "2,2")
        self.refuses(BAD_FILE, "1;2", *inputs, "--documents", "1;2")
        self.assertFalse(os.path.exists(self.path("out.npy")))

    def test_causal_offset(self):
        f = self.small(q=[1, 4], k=[5, 4], v=[5, 2])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", "-"]
        self.assertEqual(heed(*inputs, "--causal", "4").stdout, heed(*inputs).stdout)
        self.assertEqual(read_npy(heed(*inputs, "--causal", "-1").stdout)[1].tolist(), [0, 0])
        self.assertEqual(heed(*inputs, "--causal", "2", "--window", "1,").stdout, heed(*inputs, "--align", "2", "--window", "1,0").stdout)

    def test_refusals(self):
        f = self.small(q=[2, 3, 4], k=[2, 5, 4], v=[2, 5, 6], thin=[2, 5, 3], flat=[4], many=[3, 5, 4], values=[3, 5, 6])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "-o", self.path("out.npy")]
        self.refuses(USAGE, "nothing to write", *inputs[:-2])
        self.refuses(USAGE, "--grads: needs --grad-out", *inputs, "--grads", self.path("g"))
        self.refuses(USAGE, "--grad-out: needs --grads", *inputs, "--grad-out", f["q"])
        self.refuses(USAGE, ["--type", "--reference"], *inputs, "--type", "f16", "--reference")
        self.refuses(USAGE, ["--type", "f64", "f32|f16|bf16"], *inputs, "--type", "f64")
        self.refuses(BAD_FILE, "nothing.npy", *inputs, "--grad-out", self.path("nothing.npy"), "--grads", self.path("g"))
        self.refuses(FAILED, "dout", *inputs, "--grad-out", f["q"], "--grads", self.path("g"))
        self.refuses(FAILED, "no/such/g-q.npy", *inputs[:-2], "--grad-out", self.path("dout.npy", npy_bytes([0] * 36, [2, 3, 6])), "--grads", self.path("no/such/g"))
        self.refuses(USAGE, ["--causal", "sideways", "top-left"], *inputs, "--causal", "sideways")
        self.refuses(USAGE, ["--align", "contradicts --causal"], *inputs, "--causal", "top-left", "--align", "bottom-right")
        self.refuses(USAGE, ["--window", "L,R"], *inputs, "--window", "5")
        self.refuses(USAGE, ["--window", "L,R"], *inputs, "--window", "5,-2")
        self.refuses(FAILED, "align", *inputs, "--window", "1,1")
        self.refuses(FAILED, "width 3", "attend", "--q", f["q"], "--k", f["thin"], "--v", f["v"], "-o", self.path("out.npy"))
        self.refuses(FAILED, "ranks", "attend", "--q", f["flat"], "--k", f["k"], "--v", f["v"], "-o", self.path("out.npy"))
        self.refuses(FAILED, "3", "attend", "--q", f["q"], "--k", f["many"], "--v", f["values"], "-o", self.path("out.npy"))
        lengths = self.path("lengths.npy", npy_bytes([1, 2], [2], "q", "<i8"))
        self.refuses(FAILED, [lengths, "allowed i64 or i32 [1]"], *inputs, "--key-lengths", lengths)
        self.assertFalse(os.path.exists(self.path("out.npy")))


class Bench(Case):
    """Every bench at sizes that take no time: its rows are whole and count the right work. What they say about speed is nobody's business here."""

    QUICK = ["--blocks", "2", "--seconds", "0.002", "--threads", "1"]
    SHARES = {"of_peak": ("gflops", "peak_gflops"), "of_bandwidth": ("gbs", "read_gbs")}

    def rows(self, bench, *arguments):
        rows = [json.loads(line) for line in self.prints("bench", bench, *arguments, *self.QUICK, "--json").splitlines()]
        levels = json.loads(self.prints("info", "--json"))["levels"]
        for row in rows:
            self.assertEqual(list(row), list(rows[0]))
            self.assertEqual((row["blocks"], row["threads"]), (2, 1))
            self.assertIn(row["level"], levels)
            self.assertTrue(0 < row["q1_s"] <= row["median_s"] <= row["q3_s"], row)
            self.assertTrue(any(share in row for share in self.SHARES), row)
            for share, (rate, limit) in self.SHARES.items():
                if share in row:
                    self.assertTrue(0 < row[f"{share}_q1"] <= row[share] <= row[f"{share}_q3"] < math.inf, row)
                    self.assertTrue(0 < row[limit] < math.inf and 0 < row[rate] < math.inf, row)
            for amount, rate in (("flops", "gflops"), ("bytes", "gbs")):
                if amount in row:
                    self.assertAlmostEqual(row[amount] / row["median_s"] / 1e9 / row[rate], 1, places=6)
        return rows

    def visible_pairs(self, row):
        """Of one head, by looking at every pair."""
        n, m, offset = row["n"], row["keys"], row["keys"] - row["n"]
        left, right = (m, m) if row["window"] < 0 else (row["window"], row["window"])
        return sum(i + offset - left <= j <= i + offset + (0 if row["causal"] else right) for i in range(n) for j in range(m))

    ATTENTION = "--n 20,33 --keys 0,40 --head-dim 16 --value-dim 0,8 --heads 2 --kv-heads 1 --batch 2 --causal 0,1 --window -1,5 --dropout 0.25".split()

    def test_attention(self):
        rows = self.rows("attention", *self.ATTENTION)
        self.assertEqual(len(rows), 32)
        for row in rows:
            self.assertEqual(row["flops"], 2 * 2 * self.visible_pairs(row) * 2 * (16 + row["value_dim"]), row)
            self.assertEqual(row["dropout"], 0.25)
        points = [(r["value_dim"], r["n"], r["keys"], r["causal"], r["window"]) for r in rows[:5]]
        self.assertEqual(points, [(16, 20, 20, 0, -1), (16, 20, 20, 0, 5), (16, 20, 20, 1, -1), (16, 20, 20, 1, 5), (16, 20, 40, 0, -1)])

    def test_backward(self):
        for row in self.rows("backward", *self.ATTENTION):
            self.assertEqual(row["flops"], 2 * 2 * self.visible_pairs(row) * (6 * 16 + 4 * row["value_dim"]), row)

    def test_layer(self):
        rows = self.rows("layer", *"--batch 2 --width 24 --heads 3 --kv-heads 0,1 --n 5,20 --causal 0,1 --pass forward,backward,both".split())
        self.assertEqual(len(rows), 24)
        for row in rows:
            n, kv_heads = row["n"], row["kv_heads"]
            products = 2 * 2 * n * 24 * (24 + 2 * 8 * kv_heads + 24)
            attention = 4 * 8 * 2 * 3 * self.visible_pairs({"n": n, "keys": n, "window": -1, "causal": row["causal"]})
            forward, backward = products + attention, 2 * products + 2.5 * attention
            self.assertEqual(row["flops"], {"forward": forward, "backward": backward, "both": forward + backward}[row["pass"]], row)
        self.refuses(USAGE, ["--width", "--heads", "25", "3"], "bench", "layer", "--width", "25", "--heads", "3")

    DECODE = "--sequences 2 --heads 4 --kv-heads 2 --head-dim 8,40 --queries 1,3 --keys 70,130 --window -1,20".split()

    def test_decode(self):
        rows = self.rows("decode", *self.DECODE, "--type", "f32,f16,bf16,q8_0") + self.rows("decode", *self.DECODE, "--type", "f32,f16,bf16", "--source", "arrays")
        self.assertEqual([row["source"] for row in rows], ["cache"] * 64 + ["arrays"] * 48)
        for row in rows:
            d, n, m = row["head_dim"], row["queries"], row["keys"]
            before = m if row["window"] < 0 else row["window"]
            seen = [{j for j in range(m) if m - n + i - before <= j <= m - n + i} for i in range(n)]
            self.assertEqual(row["flops"], 2 * 4 * 4 * d * sum(map(len, seen)), row)
            number = {"f32": 4 * d, "f16": 2 * d, "bf16": 2 * d, "q8_0": d + 2 * -(-d // 32)}[row["type"]]
            self.assertEqual(row["bytes"], 2 * 2 * 2 * len(set.union(*seen)) * number, row)
        self.refuses(USAGE, ["--queries", "--keys", "9", "5"], "bench", "decode", "--queries", "9", "--keys", "5")
        self.refuses(USAGE, ["--type q8_0", "--source cache"], "bench", "decode", "--type", "q8_0", "--source", "arrays")

    def test_gemm(self):
        rows = self.rows("gemm", *"--batch 2 --rows 1,7 --outputs 5,20 --inputs 9 --transpose-a 0,1 --transpose-b 0,1 --type f32,f16,bf16".split())
        self.assertEqual(len(rows), 48)
        for row in rows:
            self.assertEqual(row["flops"], 2 * 2 * row["rows"] * row["outputs"] * 9)

    def test_types_and_levels(self):
        for bench in ("attention", "backward"):
            rows = self.rows(bench, "--n", "20", "--causal", "0", "--type", "f32,f16,bf16", "--level", "scalar,auto")
            self.assertEqual([r["type"] for r in rows], ["f32", "f32", "f16", "f16", "bf16", "bf16"])
            self.assertEqual({r["level"] for r in rows[::2]}, {"scalar"})
            self.assertEqual({r["level"] for r in rows[1::2]}, {json.loads(self.prints("info", "--json"))["level"]})

    SMALL = ["attention", "--n", "20,33", "--causal", "0,1", *QUICK]

    def test_csv(self):
        lines = [line.split(",") for line in self.prints("bench", *self.SMALL, "--csv").splitlines()]
        self.assertEqual(lines[0], list(self.rows(*self.SMALL)[0]))
        self.assertEqual([(line[lines[0].index("n")], line[lines[0].index("causal")]) for line in lines[1:]], [("20", "0"), ("20", "1"), ("33", "0"), ("33", "1")])

    def test_table(self):
        lines = self.prints("bench", *self.SMALL, "--heads", "3").splitlines()
        self.assertRegex(lines[0], r"\Abatch 1 · heads 3 · head_dim 64 · window -1 · dropout 0 · type f32 · threads 1 · level \w+\Z")
        self.assertEqual(lines[1].split(), "n causal seconds GFLOP/s peak of peak quartiles".split())
        self.assertEqual([line.split()[:2] for line in lines[2:]], [["20", "0"], ["20", "1"], ["33", "0"], ["33", "1"]])

    def test_files(self):
        for name, begin in {"x.json": '{"batch": 1,', "x.csv": "batch,heads,", "x.txt": "batch 1 · "}.items():
            self.assertEqual(self.prints("bench", *self.SMALL, "-o", self.path(name)), "")
            self.assertTrue(read_file(self.path(name)).decode().startswith(begin), name)
        self.refuses(FAILED, ["no/such", "No such file"], "bench", *self.SMALL, "-o", self.path("no/such/x.csv"))
        self.refuses(FAILED, ["/dev/full", "No space left"], "bench", *self.SMALL, "-o", "/dev/full")

    def test_refusals(self):
        self.refuses(FAILED, ["3 query heads", "2 key/value heads"], "bench", "backward", "--heads", "3", "--kv-heads", "2", *self.QUICK)

    def test_interrupt(self):
        child = subprocess.Popen([HEED, "bench", "attention", "--n", "256", "--blocks", "64"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(20), INTERRUPTED)
        self.assertEqual(child.stderr.read(), b"")
        child.stdout.close()
        child.stderr.close()


# ---- commands that run a model ----------------------------------------------------------------------------------------------


class Generate(Case):
    EXPECTED = json.loads(read_file(f"{DATA}/models/stories260k/expected.json"))["greedy_200_tokens"]

    def test_story(self):
        for path in (STORIES, STORIES_HF):
            self.assertEqual(self.prints("generate", path, "-n", "200", "--temp", "0"), self.EXPECTED + "\n")

    def test_story_continued(self):
        prompt = self.EXPECTED[: self.EXPECTED.index(" She")]
        self.assertTrue(self.EXPECTED.startswith(prompt + self.prints("generate", STORIES, "-p", prompt, "-n", "20")[:-1]))
        self.assertTrue(self.EXPECTED.startswith(prompt + self.prints("generate", STORIES, "-p", "-", "-n", "20", stdin=prompt.encode())[:-1]))

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


class BenchGenerate(Case):
    def test_json(self):
        lines = self.prints("bench", "generate", STORIES, "-p", "16,32", "-n", "4", "--blocks", "2", "--seconds", "0.01", "--json").splitlines()
        rows = [json.loads(line) for line in lines]
        self.assertEqual([(r["prompt"], r["n"], r["part"], r["tokens"]) for r in rows], [(16, 4, "prefill", 16), (16, 4, "decode", 4), (32, 4, "prefill", 32), (32, 4, "decode", 4)])
        for row in rows:
            writes = row["part"] == "decode"
            self.assertEqual(row["model"], "stories260k")
            for key in ("tokens_per_s", "flops", "gflops", "peak_gflops", "of_peak", *(("bytes", "gbs", "read_gbs", "of_bandwidth") if writes else ())):
                self.assertTrue(0 < row[key] < math.inf, key)
            self.assertEqual("bytes" in row, writes)
            self.assertAlmostEqual(row["tokens"] / row["median_s"] / row["tokens_per_s"], 1, places=6)

    def test_table(self):
        text = self.prints("bench", "generate", STORIES, "-p", "16", "-n", "4", "--blocks", "1", "--seconds", "0.01", "--threads", "1")
        self.assertEqual(text.count("tokens/s"), 2)
        self.assertRegex(text, r"\Amodel stories260k · prompt 16 · n 4 · threads 1 · level \w+\n")
        self.assertIn("of peak", text)
        self.assertIn("reading", text)

    def test_refusals(self):
        self.refuses(USAGE, ["--prompt", "512"], "bench", "generate", STORIES, "-p", "511", "-n", "2")


if __name__ == "__main__":
    unittest.main(verbosity=1)
