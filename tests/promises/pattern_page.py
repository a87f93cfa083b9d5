#!/usr/bin/env python3
"""pattern_page.py SOURCE LIBRARY COMPILER [FLAGS...]: docs/adding-a-pattern.md does what it says. Every block of code is taken out of the page and put where its
heading line says (a whole file, or a place in a file of the library), attention is compiled with them, and the page's own test must pass.

Only src/attn is compiled anew: the rest does not read heed_attention and comes from LIBRARY."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# place named in the page: (file, text that must be there once, what it becomes; CODE stands for the block)
PLACES = {
    "heed_pattern_kind": ("include/heed/heed.h", "  HEED_PATTERN_UNION,\n", "CODE  HEED_PATTERN_UNION,\n"),
    "HD_PATTERN_LIST": ("src/attn/pattern.h", "X(bigbird)", "X(bigbird) CODE"),
    "hd_reference_shows": ("src/attn/reference_pattern.c", "  case HEED_PATTERN_UNION:\n", "CODE  case HEED_PATTERN_UNION:\n"),
}


def main():
    source, library, compiler, flags = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    page = (source / "docs/adding-a-pattern.md").read_text()
    blocks = re.findall(r"^```c (\S+)\n(.*?)^```$", page, re.M | re.S)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for part in ("include", "src"):
            shutil.copytree(source / part, root / part)
        (root / "tests/unit").mkdir(parents=True)
        for header in (source / "tests").glob("*.h"):
            shutil.copy(header, root / "tests")
        files, used = [], set()
        for name, code in blocks:
            if name in PLACES:
                path, mark, new = PLACES[name]
                text = (root / path).read_text()
                if text.count(mark) != 1:
                    sys.exit(f"{path}: {text.count(mark)} times {mark!r}; the page and this test name a place that is no more")
                inline = "\n" not in mark and not mark.startswith("}")
                (root / path).write_text(text.replace(mark, new.replace("CODE", code.rstrip("\n") if inline else code)))
            else:
                (root / name).write_text(code)
                files.append(name)
            used.add(name)
        if missing := set(PLACES) - used:
            sys.exit(f"docs/adding-a-pattern.md: no code for {', '.join(sorted(missing))}")
        tests = [f for f in files if f.startswith("tests/")]
        if len(tests) != 1 or len(files) < 2:
            sys.exit(f"docs/adding-a-pattern.md: one pattern and one test are due, found {', '.join(files)}")
        program = root / "test"
        attn = sorted(str(p) for p in (root / "src/attn").glob("*.c"))
        command = [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-missing-field-initializers", "-ffp-contract=off", "-D_GNU_SOURCE", "-fopenmp",
                   "-Itests", "-o", str(program), tests[0], *attn, library, *flags]
        if subprocess.run(command, cwd=root).returncode:
            sys.exit("docs/adding-a-pattern.md: its code does not compile")
        result = subprocess.run([program], capture_output=True, text=True)
        print(result.stdout + result.stderr, end="")
        if result.returncode or "[  PASSED  ] 1 test" not in result.stdout + result.stderr:
            sys.exit("docs/adding-a-pattern.md: its test fails")


main()
