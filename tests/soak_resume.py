#!/usr/bin/env python3
"""soak_resume.py [KILLS [STEPS]]: a run killed at random moments and resumed ends in the bytes of the run left alone. `make soak-resume`, a run of about a minute; tests/cli_train.py has a short form."""

import os
import random
import subprocess
import sys
import time

import cli_train
from cli_case import OK, environment, HEED

KILLS, STEPS = (int(x) for x in (sys.argv[1:] + ["50", "200000"][len(sys.argv) - 1 :]))


class Soak(cli_train.Training):
    def runTest(self):
        settings = ("--steps", str(STEPS), "--save-every", str(max(STEPS // 200, 1)), "--eval-every", str(max(STEPS // 50, 1)), "--dropout", "0.1")
        begin = time.monotonic()
        whole = self.train("whole", *settings)
        seconds, pick, killed, resume = time.monotonic() - begin, random.Random(), 0, []
        while killed < KILLS:
            process = self.begin(self.gpt("killed", *settings, *resume))
            self.addCleanup(process.kill)
            try:
                _, error = process.communicate(timeout=pick.uniform(0.05, 1.5 * seconds / KILLS))
                self.fail(f"the run ended after {killed} of {KILLS} kills, exit code {process.returncode}: {error}")
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
            folder = self.path("killed/checkpoints")
            resume = ["--resume"] if os.path.isdir(folder) and any(n.startswith("checkpoint-") for n in os.listdir(folder)) else []
        done = subprocess.run([HEED, *self.gpt("killed", *settings, *resume)], capture_output=True, env=environment())
        self.assertEqual(done.returncode, OK, done.stderr)
        self.same_result(self.path("killed"), whole)
        self.leaves_nothing_aside(self.path("killed"))
        print(f"{killed} kills of a run of {seconds:.0f} s: the same bytes")


sys.argv[1:] = []
cli_train.unittest.TextTestRunner().run(Soak()).wasSuccessful() or sys.exit(1)
