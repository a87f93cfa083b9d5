#!/usr/bin/env python3
"""cli_experiment.py: `heed experiment`: each in its quick form, its table, JSON, CSV and pictures, and what it refuses. What they find in full is in docs/experiments.md."""

import csv
import io
import json
import os
import re
import unittest
import xml.etree.ElementTree

from cli_case import BAD_FILE, Case, DATA, EXPERIMENTS, FAILED, STORIES, USAGE, heed, read_file


class Experiment(Case):
    def test_each_in_every_form(self):
        for name in EXPERIMENTS:
            with self.subTest(name):
                files = [self.path(f"{name}.{suffix}") for suffix in ("svg", "png", "html", "csv")]
                outputs = [w for f in files[:3] for w in ("-o", f)]
                text = self.prints("experiment", name, "--quick", "--csv", files[3], *outputs)
                table, _, found = text.rpartition("\n\n")
                self.assertGreater(len(table.splitlines()), 2, text)
                self.assertRegex(found, r"\A[^\n]+\d[^\n]*\.\n\Z")
                self.assertNotRegex(text, r"\b(nan|inf)\b")
                svg = xml.etree.ElementTree.fromstring(read_file(files[0]))
                self.assertGreater(len(svg.findall(".//{*}polyline")), 4)
                self.assertEqual(read_file(files[1])[:8], b"\x89PNG\r\n\x1a\n")
                self.assertIn(b"<svg", read_file(files[2]))
                self.assertNotIn(b"<script", read_file(files[2]))
                rows = list(csv.DictReader(io.StringIO(read_file(files[3]).decode())))
                for row in rows:
                    float(row["x"]), float(row["y"])

    def test_json_and_csv_say_the_same(self):
        found = json.loads(self.prints("experiment", "permutation", "--quick", "--json"))
        rows = list(csv.DictReader(io.StringIO(self.prints("experiment", "permutation", "--quick", "--csv", "-"))))
        points = [(c["measure"], c["of"], x, y) for c in found["curves"] for x, y in zip(c["x"], c["y"])]
        self.assertEqual(len(points), len(rows))
        for (measure, of, x, y), row in zip(points, rows):
            self.assertEqual((measure, of, x), (row["measure"], row["of"], float(row["x"])))
            self.assertAlmostEqual(y, float(row["y"]), delta=1e-7 * abs(y))
        self.assertTrue(found["finding"])

    def curves(self, *arguments):
        found = json.loads(self.prints("experiment", *arguments, "--quick", "--json"))
        return {(c["measure"], c["of"]): c["y"] for c in found["curves"]}

    def test_permutation_is_what_it_is(self):
        for seed in "0", "7":
            curves = self.curves("permutation", "--seed", seed)
            for (_, of), differences in curves.items():
                for d in differences:
                    self.assertTrue(d < 1e-5 if of == "no positions" else d > 1e-3, (of, d))

    def test_variance_is_the_width(self):
        curves = self.curves("scale")
        for i, v in enumerate(curves["variance", "q·k"]):
            self.assertTrue(0.7 < v / 2**i < 1.4, (i, v))
        entropy, gradient = curves["bits, median row", "q·k"], curves["norm, median row", "q·k"]
        self.assertGreater(entropy[0], 5)
        self.assertLess(entropy[-1], 0.1)
        self.assertLess(gradient[-1], 1e-4)
        self.assertGreater(curves["bits, median row", "q·k / √d_k"][-1], 5)
        self.assertGreater(curves["norm, median row", "q·k / √d_k"][-1], 0.1)

    def test_a_seed_repeats(self):
        runs = ("1", "1"), ("1", "2"), ("2", "1")
        one, two, other = (self.prints("experiment", "heads", "--quick", "--csv", "-", "--seed", s, "--threads", t) for s, t in runs)
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)

    def test_steps(self):
        curves = self.curves("warmup", "--steps", "2")
        self.assertEqual({len(y) for y in curves.values()}, {2})

    def test_one_parameter_count(self):
        text = self.prints("experiment", "heads", "--quick")
        counts = {line.split()[2] for line in text.splitlines() if re.match(r"\d+ ", line)}
        self.assertEqual(len(counts), 1, text)

    def test_models_of_one_size_and_every_length(self):
        path = self.path("bottleneck.csv")
        text = self.prints("experiment", "bottleneck", "--quick", "--csv", path)
        counts = [int(n) for n in re.findall(r"\b\d{6}\b", text)]
        self.assertEqual(len(counts), 3, text)
        self.assertLess(max(counts), 1.02 * min(counts), text)
        points = {}
        for row in csv.DictReader(io.StringIO(read_file(path).decode())):
            points.setdefault((row["measure"], row["of"]), []).append((float(row["x"]), float(row["y"])))
        for of in "fixed vector", "Bahdanau", "Transformer":
            self.assertEqual([x for x, _ in points["share of fresh strings, exact", of]], list(range(4, 41)))
            times = points["milliseconds", of]
            self.assertEqual(len(times), 16)
            self.assertTrue(all(y > 0 for _, y in times), times)

    def test_scores_differ_in_the_score_alone(self):
        one, two = (self.curves_of_scores(threads) for threads in ("1", "2"))
        self.assertEqual(one, two)
        for d in "8", "512":
            starts = [one[d, of][0] for of in ("additive", "q·k", "q·k / √d")]
            self.assertEqual(len(set(starts)), 3)
            self.assertLess(max(starts) - min(starts), 0.2)  # the same weights, whose guesses are as good

    def curves_of_scores(self, threads):
        """Losses by d and score: the panel of the narrowest comes first."""
        found = json.loads(self.prints("experiment", "scores", "--quick", "--json", "--threads", threads))
        losses = [c for c in found["curves"] if c["over"] == "step"]
        self.assertEqual(len(losses), 6)
        return {("8" if i < 3 else "512", c["of"]): c["y"] for i, c in enumerate(losses)}

    def losses_by_length(self, *arguments):
        found = json.loads(self.prints("experiment", "extrapolation", "--quick", "--json", *arguments))
        by = {over: {c["of"]: dict(zip(c["x"], c["y"])) for c in found["curves"] if c["over"] == over} for over in ("tokens of a stretch", "place")}
        for of, losses in by["tokens of a stretch"].items():  # places and all tokens say the same
            self.assertAlmostEqual(sum(by["place"][of].values()) / len(by["place"][of]), losses[max(losses)], places=6)
        return by["tokens of a stretch"], found["finding"]

    def test_extrapolation_reads_as_far_as_there_are_positions(self):
        data = os.path.join(DATA, "text/excerpt.txt")
        losses, finding = self.losses_by_length("--data", data)
        for of, points in losses.items():
            self.assertEqual(sorted(points), [64] if of == "learned" else [64, 128, 256, 512, 1024])
            self.assertTrue(all(2 < y < 8 for y in points.values()), (of, points))
        self.assertEqual(len(losses), 6)
        self.assertIn("ids: 128 positions, allowed 64", finding)
        self.assertNotEqual(losses, self.losses_by_length()[0])  # of sentences that are made
        self.refuses(BAD_FILE, ["short.txt: too short", "got 10000"], "experiment", "extrapolation", "--data", self.path("short.txt", b"a" * 10000))

    def test_scaling_counts_memory_and_stops(self):
        found = json.loads(self.prints("experiment", "scaling", "--quick", "--backward", "--json"))
        points = {(c["measure"], c["of"]): dict(zip(c["x"], c["y"])) for c in found["curves"]}
        self.assertEqual(len(points), 4 * 11 + 2)
        for (measure, of), values in points.items():
            self.assertEqual(sorted(values), [512, 1024], (measure, of))
            self.assertTrue(all(y > 0 for y in values.values()), (measure, of, values))
        matrix, exact = points["MB", "weights, were they stored"], points["MB", "exact"]
        self.assertEqual(matrix[1024], 2 * 4 * 1024**2 / 1e6)
        self.assertLess(exact[1024], 1)
        self.assertEqual(exact, self.memory_of_exact("--both-ways"))  # counted, so the same each time
        stopped = json.loads(self.prints("experiment", "scaling", "--quick", "--limit", "0.001", "--heads", "64", "--json"))
        lengths = {len(c["x"]) for c in stopped["curves"] if c["of"] in ("exact", "lsh:8")}
        self.assertEqual(lengths, {1})
        self.assertIn("where it stops: the next would take more than 0.001 s", stopped["finding"])

    def memory_of_exact(self, *arguments):
        found = json.loads(self.prints("experiment", "scaling", "--quick", "--json", *arguments))
        return next(dict(zip(c["x"], c["y"])) for c in found["curves"] if (c["measure"], c["of"]) == ("MB", "exact"))

    def errors(self, *arguments):
        """By what is attended to, and by curve: errors over features, or over rounds."""
        found = json.loads(self.prints("experiment", "approximation", "--quick", "--json", *arguments))
        names = "positive, orthogonal", "positive, independent", "hyperbolic, orthogonal", "hyperbolic, independent", "mean of the values", "LSH", "mean of the values"
        curves = [(c["of"], c["over"], c["y"]) for c in found["curves"]]
        self.assertEqual([of for of, _, _ in curves], list(names) * (len(curves) // len(names)))
        return [curves[i : i + len(names)] for i in range(0, len(curves), len(names))], found["finding"]

    def test_approximation_on_random_numbers_and_on_a_model(self):
        samples, finding = self.errors()
        self.assertEqual(len(samples), 2)
        self.assertIn("Only random numbers were looked at", finding)
        for _, _, errors in samples[1][:4]:  # where weights are nearly alike features are enough
            self.assertLess(errors[-1], errors[0])
        for sample in samples:
            lsh, mean = sample[5][2], sample[6][2]
            self.assertEqual(lsh, sorted(lsh, reverse=True))
            self.assertLess(lsh[-1], mean[-1])
        samples, finding = self.errors("--model", STORIES, "--tokens", "300")
        self.assertEqual(len(samples), 3)
        self.assertNotIn("Only random", finding)
        self.assertIn("(32 heads, 300 tokens, width 8)", finding)  # eight heads of four layers
        self.assertLess(samples[2][5][2][-1], 0.1)  # 512 pairs of 300
        self.refuses(USAGE, ["--data", "--model"], "experiment", "approximation", "--data", "x.txt")
        self.refuses(BAD_FILE, "too short", "experiment", "approximation", "--quick", "--model", STORIES, "--data", self.path("short.txt", b"one two"))

    def test_reach_is_what_arrives(self):
        found = json.loads(self.prints("experiment", "reach", "--quick", "--json"))
        seeking = {c["of"]: c["y"] for c in found["curves"] if c["measure"] == "what has arrived"}
        self.assertEqual(len(seeking), 12)
        layers = {of: next((i for i, y in enumerate(ys) if y > 0), 0) for of, ys in seeking.items()}
        for of, ys in seeking.items():
            self.assertEqual([y for y in ys if 0 < y < 0.99], [], of)  # nothing, and then all of it
            n = layers[of]
            if n:
                self.assertIn(f"{n} layer{'s' if n > 1 else ''} with {of}", found["finding"])
        self.assertEqual([of for of, n in layers.items() if n == 0], ["tree", "tree:both, both ways"])
        self.assertIn("9 layers with tree:both, both ways, never with tree;", found["finding"])  # 8 are run
        self.assertEqual((layers["full"], layers["window:256"], layers["logsparse"], layers["tree"]), (1, 2, 6, 0))
        beyond = json.loads(self.prints("experiment", "reach", "--quick", "--json", "--distance", "499"))
        self.assertIn("never with dilated:64:4", beyond["finding"])  # not a multiple of 4
        far = json.loads(self.prints("experiment", "reach", "--quick", "--json", "--distance", "3000"))["finding"]
        self.assertIn("12 layers with window:256,", far)  # more than are run
        self.assertNotIn("never with window:256", far)

    def test_refusals(self):
        self.refuses(USAGE, [".gif", ".svg"], "experiment", "scale", "-o", self.path("x.gif"))
        self.refuses(USAGE, "--steps", "experiment", "heads", "--steps", "0")
        self.refuses(USAGE, "--steps", "experiment", "permutation", "--steps", "3")
        self.refuses(USAGE, ["warmpu", "did you mean experiment warmup?"], "experiment", "warmpu")
        done = heed("experiment", "permutation", "--quick", "-o", self.path("no/such/x.svg"))
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"x.svg", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
