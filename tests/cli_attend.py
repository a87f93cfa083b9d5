#!/usr/bin/env python3
"""cli_attend.py: `heed attend`: its numbers beside attention in plain Python, fixtures of PyTorch's, and what it refuses."""

import json
import math
import os
import struct
import unittest

import naive_attention as naive
from cli_case import (
    BAD_FILE, Case, DATA, FAILED, LAYERS, USAGE, distance, heed, naive_numbers, npy_bytes, read_file, read_npy, read_tensor, rounded
)


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

    def test_patterns(self):
        """Each is the boolean mask that spells it out, to the bit: results, weights and gradients."""
        n, random = 40, naive_numbers()
        files = {name: self.path(f"{name}.npy", npy_bytes([next(random) for _ in range(2 * n * 4)], [2, n, 4])) for name in ("q", "k", "v", "g")}
        words = ["attend", "--q", files["q"], "--k", files["k"], "--v", files["v"], "--grad-out", files["g"]]
        shown = {
            "window:5:2+global:3": lambda h, p, j: -5 <= j - p <= 2 or p < 3 or j < 3,
            "dilated:3:2,5:1": lambda h, p, j: (j - p) % (2, 5)[h] == 0 and -3 <= (j - p) // (2, 5)[h] <= 1,
            "strided:7&window:20": lambda h, p, j: abs(p - j) <= 20 and (abs(p - j) < 7 or (p - j) % 7 == 0),
            "fixed:8:2:summary+tree": lambda h, p, j: j % 8 >= 6 or j + 1 in (p + 1, (p + 1) // 2, 2 * (p + 1)),
        }
        for pattern, sees in shown.items():
            mask = self.path("mask.npy", npy_bytes([int(sees(h, p, j)) for h in range(2) for p in range(n) for j in range(n)], [2, n, n], "b", "|b1"))
            found = []
            for name, options in (("a", ["--pattern", pattern]), ("b", ["--mask", mask])):
                paths = [self.path(f"{name}-{kind}.npy") for kind in ("out", "weights", "lse", "q", "k", "v")]
                self.prints(*words, "--causal", "top-left", *options, "-o", paths[0], "--weights", paths[1], "--lse", paths[2], "--grads", self.path(name))
                found.append([read_file(path) for path in paths])
            self.assertEqual(found[0], found[1], pattern)

    def test_pattern_refusals(self):
        f = self.small(q=[2, 48, 4], k=[2, 48, 4], v=[2, 48, 6])
        inputs = ["attend", "--q", f["q"], "--k", f["k"], "--v", f["v"], "--align", "top-left", "-o", self.path("out.npy")]
        for pattern, words in {
            "windw:3": "unknown kind \"windw\", known are full, causal, window",
            "window:-1": "window: left: got -1, allowed 0 and more",
            "window:2:-1": "window: right: got -1, allowed 0 and more",
            "dilated:4:0": "dilation: got 0, allowed 1 and more",
            "dilated:4:1,2,3": "3 dilations for 2 heads",
            "strided:49": "a stride of 49 is larger than 48 tokens",
            "bigbird:7:1:1:1": "a block of 7 does not divide 48 tokens",
            "bigbird:12:1:1:5": "5 random blocks, and there are 4 in 48 tokens",
            "window:3+": "unknown kind \"\"",
            "(window:3": "a parenthesis is not closed",
        }.items():
            self.refuses(USAGE, ["--pattern: ", words], *inputs, "--pattern", pattern)
        self.refuses(USAGE, "--window: not two sides", *inputs, "--window", "-1,0")
        self.assertFalse(os.path.exists(self.path("out.npy")))

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


if __name__ == "__main__":
    unittest.main(verbosity=1)
