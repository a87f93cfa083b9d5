#!/usr/bin/env python3
"""cli_bench.py: `heed bench`: every bench at tiny sizes, its table, JSON and CSV, exact counts, and what it refuses."""

import json
import math
import signal
import subprocess
import time
import unittest

from cli_case import Case, FAILED, HEED, INTERRUPTED, STORIES, USAGE, read_file


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

    def own_pairs(self, n):
        """Pairs of a row and a key of the same chunk of 64 that it sees, by looking at every pair."""
        return sum(i // 64 == j // 64 for i in range(n) for j in range(i + 1))

    def test_linear(self):
        rows = self.rows("linear", *"--n 20,100 --head-dim 16 --value-dim 0,8 --heads 2 --kv-heads 1 --batch 2 --causal 0,1 --backward 0,1 --features elu,hyperbolic --rows 5".split())
        self.assertEqual(len(rows), 32)
        for row in rows:
            projected = 5 if row["features"] == "hyperbolic" else 0
            d, dv, f, n, heads, keys = 16, row["value_dim"], 2 * projected or 16, row["n"], 4, 2
            pairs = heads * self.own_pairs(n) * row["causal"]
            states, own, again = (2 * heads + 3 * keys, 3 * f + 2 * dv, 2) if row["backward"] else (heads + keys, f + dv, 1)
            self.assertEqual(row["flops"], 2 * f * dv * n * states + 2 * own * pairs + again * 2 * d * projected * n * (heads + keys), row)

    def test_lsh(self):
        rows = self.rows("lsh", *"--n 64,200 --head-dim 16 --heads 2 --batch 2 --causal 0,1 --backward 0,1 --rounds 1,3 --buckets 0,6".split())
        self.assertEqual(len(rows), 32)
        for row in rows:
            pairs = 4 * row["n"] * (64 if row["n"] == 64 else 128) * row["rounds"]
            self.assertEqual(row["flops"], pairs * 2 * 16 * (5 if row["backward"] else 2), row)

    def test_exact_beside(self):
        """Where exact attention is timed in the same blocks, a row says how many times as long it took."""
        for words in ("lsh --rounds 1", "linear --kv-heads 2"):
            rows = self.rows(*words.split(), *"--n 70 --head-dim 16 --heads 4 --causal 1 --backward 0,1 --exact".split())
            self.assertEqual(len(rows), 2)
            for row in rows:
                self.assertTrue(0 < row["faster_q1"] <= row["faster"] <= row["faster_q3"], row)

    def test_pattern_refusals(self):
        for pattern, words in {"window:-1": "window: left: got -1", "strided:129": "a stride of 129 is larger than 128 tokens", "x": "unknown kind"}.items():
            for kind in ("attention", "backward"):
                self.refuses(USAGE, ["--pattern: ", words], "bench", kind, "--n", "128", "--pattern", pattern)

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
        # a measurement of the machine's memory takes a tenth of a second: each type once, and sizes with two of them
        rows = self.rows("decode", *self.DECODE, "--type", "f32") + self.rows("decode", *self.DECODE, "--type", "bf16", "--source", "arrays")
        self.assertEqual([row["source"] for row in rows], ["cache"] * 16 + ["arrays"] * 16)
        for source, types in (("cache", "f16,bf16,q8_0"), ("arrays", "f32,f16")):
            rows += self.rows("decode", *"--sequences 2 --heads 4 --kv-heads 2 --head-dim 40 --keys 70 --type".split(), types, "--source", source)
        for row in rows:
            d, n, m = row["head_dim"], row["queries"], row["keys"]
            before = m if row["window"] < 0 else row["window"]
            seen = [{j for j in range(m) if m - n + i - before <= j <= m - n + i} for i in range(n)]
            self.assertEqual(row["flops"], 2 * 4 * 4 * d * sum(map(len, seen)), row)
            number = {"f32": 4 * d, "f16": 2 * d, "bf16": 2 * d, "q8_0": d + 2 * -(-d // 32)}[row["type"]]
            self.assertEqual(row["bytes"], 2 * 2 * 2 * len(set.union(*seen)) * number, row)
        for row in self.rows("decode", *"--heads 4 --kv-heads 2 --head-dim 8 --keys 10,130 --window 20 --sinks 0,3 --append 0,1 --type f32".split()):
            self.assertEqual(row["bytes"], 2 * 2 * min(row["keys"], 20 + (row["sinks"] or 1)) * 4 * 8, row)
        self.refuses(USAGE, ["--sinks", "--window"], "bench", "decode", "--sinks", "4")
        self.refuses(USAGE, ["--sinks", "--keys"], "bench", "decode", *"--keys 4 --window 8 --sinks 4 --append 1".split())
        self.refuses(USAGE, ["--append", "--window"], "bench", "decode", "--append", "1")
        self.refuses(USAGE, ["--append", "--source cache"], "bench", "decode", "--append", "1", "--source", "arrays", "--type", "f32")
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
