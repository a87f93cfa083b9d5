#!/usr/bin/env python3
"""tutorial.py SOURCE BUILD CMAKE [--full TEXT] [--write]: docs/tutorial.md does what it says. heed is installed into a temporary prefix; listings are written under the names they have in
the page, and the commands are run in order in one folder. What is shown before the first `heed train` must come out letter by letter; what was trained depends on the number of
steps and on the last bits of the C library's logarithm, so there commands must succeed, and the trained models must be as good as the page says where it is run in full.

Without --full trainings are cut to a few steps and the text is the excerpt in tests/data. --write puts what came out into the page. A Python listing is run by the
interpreter that TUTORIAL_PYTHON names; without it the test says that it was left out."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FEW = 20  # steps
BLOCK = re.compile(r"^```(console|c|python)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def fail(text):
    sys.exit(f"docs/tutorial.md: {text}")


def commands_of(block):
    """[(command, what is shown)]."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif not found:
            fail(f"{line!r} stands before the first command of its block")
        else:
            found[-1][1].append(line)
    return found


def shortened(command):
    if "heed train" in command:
        words = re.sub(r" --steps \d+", "", command).split(" || ")
        return " || ".join([f"{words[0]} --steps {FEW}", *words[1:]])
    return command.replace("heed eval reverse", "heed eval reverse -n 20")  # of a task; a text is read whole


class Tutorial:
    def __init__(self, source, build, cmake, folder, full, write):
        self.folder, self.full, self.write, self.trained, self.count = folder / "work", full, write, False, 0
        prefix = folder / "prefix"
        subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        library = next(prefix.rglob("libheed.so")).parent
        self.env = {**os.environ, "PATH": f"{prefix}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(library), "PKG_CONFIG_PATH": f"{library}/pkgconfig"}
        self.folder.mkdir()
        shutil.copy(full or source / "tests/data/text/excerpt.txt", self.folder / "tinyshakespeare.txt")

    def run(self, command, shown):
        """What came out."""
        self.trained |= command.startswith("heed train")
        done = subprocess.run(["sh", "-c", command if self.full else shortened(command)], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        came = done.stdout.rstrip("\n")
        print(f"$ {command}\n{came}", flush=True)
        if done.returncode:
            fail(f"`{command}` ends with {done.returncode}")
        self.count += 1
        if not self.trained and not self.write and came != "\n".join(shown).rstrip("\n"):
            fail(f"`{command}` prints something else than is shown")
        return came

    def block(self, match):
        kind, name, text = match.groups()
        if kind == "console":
            lines = [f"$ {c}\n" + (f"{came}\n" if (came := self.run(c, shown)) else "") for c, shown in commands_of(text)]
            return f"```console\n{''.join(lines)}```"
        (self.folder / name).write_text(text)
        if kind == "python":
            self.python(name)
        return match.group(0)

    def python(self, name):
        interpreter = os.environ.get("TUTORIAL_PYTHON")
        if not interpreter:
            print(f"{name} was left out: TUTORIAL_PYTHON names no interpreter with transformers")
        elif subprocess.run([interpreter, name], cwd=self.folder, env={**self.env, "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}).returncode:
            fail(f"{name} fails")

    def number(self, model, key):
        done = subprocess.run(["heed", "eval", model, "--json"], cwd=self.folder, env=self.env, check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)[key]


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    source, build, cmake = Path(arguments[0]), *arguments[1:3]
    full = arguments[4] if len(arguments) > 4 and arguments[3] == "--full" else None
    if full and not os.path.isfile(full):
        sys.exit(f"{full}: not there; docs/tutorial.md says where the text is found")
    page = source / "docs/tutorial.md"
    with tempfile.TemporaryDirectory() as folder:
        tutorial = Tutorial(source, build, cmake, Path(folder), full, "--write" in sys.argv)
        text = BLOCK.sub(tutorial.block, page.read_text())
        if tutorial.count < 10:
            fail(f"only {tutorial.count} commands were found")
        if full and tutorial.number("reverse", "exact_match") < 0.95:
            fail("the model that reverses has not learned it")
        if full and tutorial.number("nano", "loss") > 1.93:
            fail("the loss of nano is higher than the page says")
    if tutorial.write:
        page.write_text(text)
    print(f"{tutorial.count} commands" + ("" if full else f", trainings cut to {FEW} steps"))


main()
