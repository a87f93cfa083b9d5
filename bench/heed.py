#!/usr/bin/env python3
"""heed.py: libheed in Python by ctypes, for measurements.

Structs, enumerations and prototypes are read from include/heed, so that no copy of them can fall behind it; what the reader does not understand is an
error. `heed.py --check CC` compiles the same header and compares every size and offset."""

import ctypes
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = [os.path.join(ROOT, "include", "heed", name) for name in ("types.h", "heed.h", "nn.h", "text.h", "model.h", "train.h", "translate.h")]

PLAIN = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}


class Header:
    """What the public headers declare: structs {name: ctypes.Structure}, constants {name: number}, functions {name: (result, [argument])}."""

    def __init__(self, paths=HEADERS):
        text = ""
        for path in paths:
            with open(path, encoding="utf-8") as stream:
                text += stream.read()
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        self.constants = {name: int(value) for name, value in re.findall(r"^#define (HEED_\w+) (\d+)$", text, flags=re.M)}
        self.types, self.structs, self.functions = dict(PLAIN), {}, {}
        statuses = re.search(r"#define HEED_STATUS_LIST\(X\)((?:.*\\\n)*.*\n)", text).group(1)
        self._enumerate("heed_status", ["HEED_" + name for name in re.findall(r"X\((\w+),", statuses)])
        text = re.sub(r"^#(?:.*\\\n)*.*$", "", text, flags=re.M)
        for match in re.finditer(r"typedef enum (\w+) \{(.*?)\}|typedef struct (\w+) \{(.*?)\} \w+;|typedef ([^;{}]*\([^;{}]*);", text, flags=re.S):
            enum, items, struct, fields, function = match.groups()
            if enum and enum != "heed_status":
                self._enumerate(enum, items.split(","))
            elif struct:
                self._struct(struct, fields)
            elif function:
                self.types[re.search(r"\(\s*\*\s*(\w+)\s*\)", function).group(1)] = ctypes.c_void_p
        for result, name, arguments in re.findall(r"HEED_API ([\w\s*]+?)(\w+)\(([^;]*)\);", text):
            self.functions[name] = (self._type(result, name), [self._type(re.sub(r"\w+$", "", a), name) for a in arguments.split(",") if a.strip() != "void"])

    def _enumerate(self, name, items):
        self.types[name], value = ctypes.c_int, -1
        for item in filter(None, (i.strip() for i in items)):
            key, _, given = (part.strip() for part in item.partition("="))
            value = int(given, 0) if given else value + 1
            self.constants[key] = value

    def _type(self, words, where):
        """The ctypes type of "const heed_view *"; every pointer is a void pointer, except text."""
        words = words.replace("const", " ").split()
        joined = "".join(words)
        if joined == "char*":
            return ctypes.c_char_p
        if "*" in joined:
            return ctypes.c_void_p
        if joined == "void":
            return None
        if joined not in self.types:
            raise ValueError(f"{where}: the type {joined} is not known")
        return self.types[joined]

    def _struct(self, name, body):
        fields = []
        for statement in filter(None, (s.strip() for s in body.split(";"))):
            pointer = re.match(r".*?\(\s*\*\s*(\w+)\s*\)\s*\(", statement, flags=re.S)
            if pointer:
                fields.append((pointer.group(1), ctypes.c_void_p))
                continue
            statement = re.sub(r"\b(const|struct)\b", " ", statement).strip()
            base = re.match(r"\w+", statement).group(0)
            for declarator in statement[len(base) :].split(","):
                stars, field, count = re.fullmatch(r"([\s*]*)(\w+)\s*(?:\[(\w+)\])?\s*", declarator).groups()
                kind = self._type(base + stars, f"{name}.{field}")
                if count:
                    kind *= self.constants[count] if count in self.constants else int(count)
                fields.append((field, kind))
        self.types[name] = self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})


class Failure(Exception):
    pass


class Library:
    """The shared library with the header it belongs to. lib.call("heed_x", ...) raises Failure with the library's sentence."""

    def __init__(self, path, threads=0, level="auto"):
        self.header = Header()
        self.constants = self.header.constants
        self.library = ctypes.CDLL(path)
        for name, (result, arguments) in self.header.functions.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        expected = ".".join(str(self.constants[f"HEED_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
        if self.library.heed_version().decode() != expected:
            raise Failure(f"{path} is version {self.library.heed_version().decode()}, its header {expected}")
        options = self.struct("heed_options", threads=threads, level=self.library.heed_level_from_name(level.encode()))
        self.context = ctypes.c_void_p()
        self.call("heed_context_new", ctypes.byref(options), ctypes.byref(self.context), context=False)

    def struct(self, name, **fields):
        """A description with its size filled in. Structs given as fields are pointed to, and kept alive."""
        made = self.header.structs[name]()
        if hasattr(made, "size"):
            made.size = ctypes.sizeof(made)
        made.kept = fields
        for field, value in fields.items():
            is_struct = isinstance(value, (ctypes.Structure, ctypes.Array)) and dict(made._fields_)[field] is ctypes.c_void_p
            setattr(made, field, ctypes.addressof(value) if is_struct else value)
        return made

    def call(self, name, *arguments, context=True):
        given = [ctypes.addressof(a) if isinstance(a, (ctypes.Structure, ctypes.Array)) else a for a in arguments]
        status = getattr(self.library, name)(*([self.context] if context else []), *given)
        if status != 0:
            sentence = self.library.heed_error(self.context).decode() if self.context else ""
            raise Failure(f"{name}: {self.library.heed_status_name(status).decode()}: {sentence}")

    def level(self):
        return self.library.heed_level_name(self.library.heed_context_level(self.context)).decode()

    def threads(self):
        return self.library.heed_context_threads(self.context)

    def machine(self, seconds=0.1, reads=False):
        """(flops a second, bytes a second or 0) that the machine reaches right now."""
        machine = self.struct("heed_machine")
        if not reads:
            machine.size = self.header.structs["heed_machine"].read_bytes.offset
        self.call("heed_machine_measure", seconds, machine)
        return machine.peak_flops, machine.read_bytes

    def view(self, data, kind, dim, stride):
        """A heed_view of memory somebody else owns; kind is "f32", "bf16", ..., strides count elements."""
        view = self.struct("heed_view", data=data, type=self.constants[f"HEED_{kind.upper()}"], ndim=len(dim))
        view.dim[: len(dim)], view.stride[: len(dim)] = dim, stride
        return view


def check(compiler):
    """Compares every struct with what a C compiler makes of the header; returns the differences and how much was compared."""
    header = Header()
    lines = []
    for name, struct in header.structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            lines.append(f'printf("sizeof({name}.{field}) %zu\\n", sizeof((({name} *)0)->{field}));')
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in header.constants]
    program = "".join(f'#include "{path}"\n' for path in HEADERS) + "#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "check.c"), os.path.join(folder, "check")
        with open(source, "w", encoding="utf-8") as stream:
            stream.write(program)
        subprocess.run([compiler, source, "-o", binary], check=True)
        said = subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {name: int(value) for name, value in (line.split() for line in said.splitlines())}
    here = dict(header.constants)
    for name, struct in header.structs.items():
        here[name] = ctypes.sizeof(struct)
        here.update({f"{name}.{field}": getattr(struct, field).offset for field, _ in struct._fields_})
        here.update({f"sizeof({name}.{field})": getattr(struct, field).size for field, _ in struct._fields_})
    return [f"{name}: {here.get(name)} here, {found.get(name)} in C" for name in sorted(here | found) if here.get(name) != found.get(name)], len(found)


if __name__ == "__main__":
    if sys.argv[1:2] != ["--check"] or len(sys.argv) != 3:
        sys.exit("usage: heed.py --check CC")
    differences, compared = check(sys.argv[2])
    print(f"{compared} sizes, offsets and constants compared, {len(differences)} differ")
    sys.exit("\n".join(differences) or 0)
