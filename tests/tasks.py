#!/usr/bin/env python3
"""tasks.py [TASK...]: every task of `heed train task` with its defaults, duplication also with LSH attention of 4 rounds, for three seeds: at least 99.5 % of fresh held-out sequences right to the letter in under 120 seconds, and what copying and
reversing look at. `make tasks`; it wants the machine for itself, for some 25 minutes. tests/cli_train.py has a short form."""

import json
import sys
import time

import cli_train

TASKS = sys.argv[1:] or ["copy", "reverse", "sort", "addition", "duplicate", "duplicate --attention lsh:4"]
SEEDS, EXACT, SECONDS, ON_LINE = (1, 2, 3), 0.995, 120, 0.75


class Tasks(cli_train.Training):
    def runTest(self):
        for task in TASKS:
            for seed in SEEDS:
                with self.subTest(task=task, seed=seed):
                    self.learns(task, seed)

    def learns(self, task, seed):
        run, begin = self.path(f"{task.replace(' ', '')}-{seed}"), time.monotonic()
        self.prints("train", "task", *task.split(), "--seed", str(seed), "--quiet", "--out", run, seconds=600)
        seconds = time.monotonic() - begin
        exact = json.loads(self.prints("eval", run, "-n", "5000", "--seed", "100", "--json", seconds=600))["exact_match"]
        seen = self.share_on_line(run, task, cli_train.words(40, 4, 20, 26)) if task in ("copy", "reverse") else None
        print(f"{task:8}  seed {seed}  {100 * exact:6.2f} % exact  {seconds:4.0f} s" + (f"  {100 * seen:3.0f} % of the steps on the line" if seen is not None else ""), flush=True)
        self.assertGreaterEqual(exact, EXACT)
        self.assertLess(seconds, SECONDS)
        if seen is not None:
            self.assertGreaterEqual(seen, ON_LINE)


sys.argv[1:] = []
cli_train.unittest.TextTestRunner().run(Tasks()).wasSuccessful() or sys.exit(1)
