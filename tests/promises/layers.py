#!/usr/bin/env python3
"""tools/check-layers finds every kind of breach: each case adds one bad file to a tree that passes, and names what must be said of it."""

import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

sys.dont_write_bytecode = True
check_layers = SourceFileLoader("check_layers", str(Path(sys.argv[1]) / "tools/check-layers")).load_module()

GOOD = {
    "include/heed/heed.h": "",
    "include/heed/types.h": "",
    "include/heed/model.h": "",
    "src/base/base.h": '#include "../../include/heed/types.h"\n#include <stdlib.h>\n',
    "src/base/memory.c": '#include "base.h"\nvoid *f(void) { return malloc(1); }\n',
    "src/kern/kern.h": '#include "../base/base.h"\n#include <immintrin.h>\n',
    "src/attn/attn.c": '#include "../kern/kern.h"\n/* exit(1) in a comment, */ const char *text = "printf(";\n',
    "src/io/io.c": '#include "../base/base.h"\n#include "../../include/heed/model.h"\n#include <jansson.h>\n',
    "cli/main.c": '#include <heed/heed.h>\n#include <stdio.h>\n#include "../include/heed/model.h"\nint main(void) { return printf("x"); }\n',
}
# file, text, what the message holds
BAD = (
    ("src/base/x.c", '#include "base.h"\n#include "../kern/kern.h"\n', "src/base/x.c:2: src/base may include only itself and libc, not src/kern"),
    ("src/kern/x.h", '#include "../base/base.h"\n#include "../attn/x.h"\n', "does not exist"),
    ("src/attn/x.c", '#include "../base/base.h"\n#include "../io/io.c"\n', "src/attn may include kern, base, not src/io"),
    ("src/attn/x.c", '#include "../base/base.h"\n#include "../../include/heed/model.h"\n', "not model.h"),
    ("src/attn/x.c", '#include "../base/base.h"\n#include <jansson.h>\n', "not <jansson.h>"),
    ("src/attn/x.c", '#include "../base/base.h"\n#include <immintrin.h>\n', "only src/kern holds intrinsics"),
    ("src/view/x.c", '#include "../base/base.h"\n#include <heed/view.h>\n', "by relative path"),
    ("src/view/x.c", '#include <stdio.h>\n#include "../base/base.h"\n', "the first include must be base.h"),
    ("src/odd/x.c", '#include "../base/base.h"\n', "src/odd is not a layer"),
    ("src/attn/x.c", '#include "../base/base.h"\nvoid f(void) { exit(1); }\n', "src/attn/x.c:2: exit: a library does not end its host"),
    ("src/attn/x.c", '#include "../base/base.h"\nvoid f(void) { abort (); }\n', "abort"),
    ("src/attn/x.c", '#include "../base/base.h"\nvoid f(void) { fprintf(stderr, "x"); }\n', "stderr: a library does not print"),
    ("src/attn/x.c", '#include "../base/base.h"\nvoid f(void) { printf("x"); }\n', "printf: a library does not print"),
    ("src/base/x.c", '#include "base.h"\nchar *f(void) { return getenv("X"); }\n', "getenv: a library does not read the environment"),
    ("src/io/x.c", '#include "../base/base.h"\nvoid *f(void) { return malloc(1); }\n', "malloc: memory goes through the context"),
    ("cli/x.c", '#include "../src/base/base.h"\n', "cli/ uses the public headers only"),
    ("examples/x.c", '#include "../src/base/base.h"\n', "examples/ uses the public headers only"),
    ("src/attn/x.c", '#include "../base/base.h"\n' + "\n" * 900, "901 lines"),
)


def check(extra):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **extra}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.Checker(Path(folder).resolve()).run()


breaches = check({})
failures = [f"the good tree is refused: {breaches}"] if breaches else []
for name, text, expected in BAD:
    breaches = check({name: text})
    if len(breaches) != 1 or expected not in breaches[0]:
        failures.append(f"{name} {text[:80]!r}: expected '{expected}' alone, got {breaches}")
for failure in failures:
    print(failure)
print(f"{1 + len(BAD)} trees, {len(failures)} wrong")
sys.exit(bool(failures))
