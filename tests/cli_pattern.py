#!/usr/bin/env python3
"""cli_pattern.py: `heed pattern`: pairs and reach that can be counted by hand, pictures, and what it refuses."""

import json
import unittest

from cli_case import USAGE, Case


class Counts(Case):
    def counted(self, *arguments):
        return json.loads(self.prints("pattern", *arguments, "--json"))

    def test_all_pairs(self):
        got = self.counted("full", "--n", "100", "--heads", "3")
        self.assertEqual((got["pairs"], got["all_pairs"], got["reach"], got["cost"]), (30000, 30000, 1, 1))

    def test_window_reaches_as_far_as_its_layers(self):
        got = self.counted("window:3", "--n", "100", "--causal")
        self.assertEqual((got["pairs"], got["reach"]), (4 * 100 - 6, 33))  # 99 tokens in steps of 3

    def test_a_global_token_brings_everything_in_two(self):
        self.assertEqual(self.counted("window:1+global:1", "--n", "200")["reach"], 2)

    def test_own_blocks_never_leave_themselves(self):
        self.assertNotIn("reach", self.counted("fixed:10:0", "--n", "100"))
        self.assertIn("never", self.prints("pattern", "fixed:10:0", "--n", "100"))

    def test_strided_in_two_layers(self):
        self.assertEqual(self.counted("strided:16", "--n", "256", "--causal")["reach"], 2)

    def test_dilation_a_head(self):
        got = self.counted("dilated:1:1,5", "--n", "50", "--heads", "2")
        self.assertEqual(got["pairs"], (50 + 2 * 49) + (50 + 2 * 45))

    def test_cost_of_blocks(self):
        got = self.counted("fixed:64:0", "--n", "640")
        self.assertEqual((got["full_tiles"], got["partial_tiles"], got["cost"]), (40, 0, 0.1))

    def test_beyond_what_is_followed(self):
        self.assertIn("not followed", self.prints("pattern", "window:8", "--n", "5000"))


class Pictures(Case):
    def test_png_and_svg(self):
        for suffix, head in (("png", b"\x89PNG"), ("svg", b"<svg")):
            path = self.path(f"x.{suffix}")
            self.prints("pattern", "bigbird:16:1:1:2", "--n", "256", "-o", path)
            with open(path, "rb") as stream:
                self.assertIn(head, stream.read(400))


class BadInput(Case):
    def test_one_sentence_each(self):
        for words, arguments in {
            "unknown kind \"windw\"": ["windw:3"],
            "window: left: got -1, allowed 0 and more": ["window:-1"],
            "dilation: got 0, allowed 1 and more": ["dilated:4:0"],
            "a stride of 300 is larger than 256 tokens": ["strided:300"],
            "a block of 48 does not divide 256 tokens": ["bigbird:48:1:1:1"],
            "17 random blocks, and there are 16 in 256 tokens": ["bigbird:16:1:1:17"],
            "2 dilations for 3 heads": ["dilated:4:1,2", "--heads", "3"],
            "--head: got 2, there are 2 heads": ["full", "--heads", "2", "--head", "2"],
            "unknown format": ["full", "-o", "x.gif"],
        }.items():
            with self.subTest(arguments):
                self.refuses(USAGE, words, "pattern", *arguments)


if __name__ == "__main__":
    unittest.main()
