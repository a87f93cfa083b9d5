#!/usr/bin/env python3
"""cli_experiment.py: `heed experiment`: each in its quick form, its table, JSON, CSV and pictures, and what it refuses. What they find in full is in docs/experiments.md."""

import csv
import io
import json
import re
import unittest
import xml.etree.ElementTree

from cli_case import Case, EXPERIMENTS, FAILED, USAGE, heed, read_file


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
