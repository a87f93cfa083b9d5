#!/usr/bin/env python3
"""Writes cases.json and cases.safetensors from ONNX's node tests: every case of Attention, RotaryEmbedding, LinearAttention and FlexAttention, with the tensors' bytes as they are.

    make.py FOLDER    FOLDER holds test_attention_4d/model.onnx, test_attention_4d/test_data_set_0/input_0.pb, ...
                      (onnx/backend/test/data/node in a checkout of https://github.com/onnx/onnx)

Tensors are named CASE/PARAMETER, with the operator's own names of its inputs and outputs by position: one that is absent is not given.
The models whose operator is expanded into others (..._expanded) are left out, they test nothing else. Needs no module but Python's own.
"""
import json
import pathlib
import struct
import sys

INPUTS = {
    "Attention": ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"],
    "RotaryEmbedding": ["X", "cos_cache", "sin_cache", "position_ids"],
    "LinearAttention": ["query", "key", "value", "past_state", "decay", "beta"],
    "FlexAttention": ["Q", "K", "V"],
}
OUTPUTS = {
    "Attention": ["Y", "present_key", "present_value", "qk_matmul_output"],
    "RotaryEmbedding": ["Y"],
    "LinearAttention": ["output", "present_state"],
    "FlexAttention": ["Y"],
}
TYPES = {1: ("F32", 4), 7: ("I64", 8), 9: ("BOOL", 1), 10: ("F16", 2), 11: ("F64", 8)}  # TensorProto.DataType


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field of a protobuf message; lengths give bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def packed(value):
    """A repeated integer: one number, or several in one field."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        numbers.append(number)
    return numbers


def tensor(path):
    """What is in a file of a TensorProto with raw data: type, shape, bytes."""
    return tensor_in(path.read_bytes(), path)


def tensor_in(data, path):
    dims, kind, raw = [], 0, b""
    for number, value in fields(data):
        if number == 1:
            dims += packed(value)
        elif number == 2:
            kind = value
        elif number == 9:
            raw = value
    name, size = TYPES[kind]
    count = 1
    for dim in dims:
        count *= dim
    assert len(raw) == count * size, path
    return name, dims, raw


def graph(data):
    """GraphProto: the operators in order, and its constants that are one finite number."""
    found = {"operators": [], "constants": {}}
    for number, value in fields(data):
        of = dict(fields(value)) if number in (1, 5) else {}
        if number == 1:
            found["operators"].append(of[4].decode())
        elif number == 5:
            raw = of.get(9) or of.get(4, b"")
            if of[2] == 1 and len(raw) == 4 and raw != struct.pack("<f", float("-inf")):  # JSON has no such number
                found["constants"][of[8].decode()] = struct.unpack("<f", raw)[0]
    return found


def attribute(data):
    """AttributeProto of a float, an integer, a text or a graph."""
    of = dict(fields(data))
    kinds = {  # FLOAT, INT, STRING, GRAPH
        1: lambda: struct.unpack("<f", of[2])[0],
        2: lambda: of[3],
        3: lambda: of[4].decode(),
        5: lambda: graph(of[6]),
    }
    return of[1].decode(), kinds[of[20]]()


def node(path):
    """The model's one node and its version of the operators; None where there are several."""
    opset, nodes = 0, []
    for number, value in fields(path.read_bytes()):
        if number == 7:
            nodes = [inner for kind, inner in fields(value) if kind == 1]
        elif number == 8:
            of = dict(fields(value))
            if not of.get(1):
                opset = of[2]
    if len(nodes) != 1:
        return None
    found = {"op": "", "inputs": [], "outputs": [], "attributes": {}, "opset": opset}
    for number, value in fields(nodes[0]):
        if number == 1:
            found["inputs"].append(value.decode())
        elif number == 2:
            found["outputs"].append(value.decode())
        elif number == 4:
            found["op"] = value.decode()
        elif number == 5 and found["op"] in INPUTS:
            name, of = attribute(value)
            found["attributes"][name] = of
    return found if found["op"] in INPUTS else None


def read_case(folder):
    found = node(folder / "model.onnx")
    if not found:
        return None
    arrays = {}
    for kind, names, formal in (("input", found["inputs"], INPUTS), ("output", found["outputs"], OUTPUTS)):
        present = [formal[found["op"]][i] for i, name in enumerate(names) if name]
        for i, name in enumerate(present):
            arrays[name] = tensor(folder / "test_data_set_0" / f"{kind}_{i}.pb")
    return {"op": found["op"], "opset": found["opset"], "attributes": dict(sorted(found["attributes"].items()))}, arrays


def main():
    source, target = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
    cases, header, parts, at = {}, {"__metadata__": {"source": "onnx/backend/test/data/node, Apache-2.0"}}, [], 0
    for folder in sorted(source.glob("test_*")):
        read = (folder / "model.onnx").exists() and read_case(folder)
        if not read:
            continue
        name = folder.name.removeprefix("test_")
        cases[name] = read[0]
        for parameter, (kind, dims, raw) in read[1].items():
            header[f"{name}/{parameter}"] = {"dtype": kind, "shape": dims, "data_offsets": [at, at + len(raw)]}
            parts.append(raw)
            at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (target / "cases.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    (target / "cases.json").write_text("{\n" + lines + "\n}\n")
    print({op: sum(case["op"] == op for case in cases.values()) for op in INPUTS})


if __name__ == "__main__":
    main()
