"""cli_case.py: what the tests of the program share: running it, what it must print or refuse, arrays in and out.

HEED names the program and HEED_TEST_DATA the fixtures; tests/tests.cmake sets both. Python's standard library only."""

import array
import json
import math
import os
import re
import struct
import subprocess
import tempfile
import unittest

HEED = os.environ["HEED"]
DATA = os.environ["HEED_TEST_DATA"]
STORIES = f"{DATA}/models/stories260k/stories260k-f32.gguf"
STORIES_HF = f"{DATA}/models/stories260k-hf"
STORIES_Q8 = f"{DATA}/models/stories260k/stories260k-q8_0.gguf"
SORT = f"{DATA}/models/gpt-nano-sort"
BERT = f"{DATA}/expected/families/bert"
MARIAN = f"{DATA}/expected/families/marian"
LAYERS = f"{DATA}/expected/layers"

# For tests that train until something is learned.
learns = unittest.skipIf(os.environ.get("HEED_SANITIZE"), "learning takes minutes under a sanitizer; shorter trainings run there")

OK, FAILED, USAGE, BAD_FILE, UNSUPPORTED, NO_MEMORY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
COMMANDS = "show generate logits label tokenize inspect convert attend pattern train pairs translate align eval experiment bench info help completion".split()
BENCHES = "attention backward decode linear lsh layer gemm generate".split()
TRAININGS = "gpt llama encoder task seq2seq".split()
EXPERIMENTS = "scale permutation heads warmup bottleneck scores extrapolation scaling approximation reach long-copy".split()
GROUPS = {"bench": BENCHES, "train": TRAININGS, "experiment": EXPERIMENTS}
COMPLETE = [" ".join((c, w)).strip() for c in COMMANDS for w in GROUPS.get(c, [""])]
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
