#!/usr/bin/env python3
"""peers.py: libheed beside PyTorch and ONNX Runtime in one process, on the same arrays.

Calls take turns, so that a neighbour on the machine disturbs all alike; a ratio is taken within each round, and its median and quartiles over the rounds are
printed. The machine's peak is measured around every case. Results are compared first: a case whose results differ counts as failed, whatever its speed.

    make bench-peers PEERS_ARGS="--cases 'forward d64'"

A case is a function that CASES names; see `forward` for the form."""

import argparse
import ctypes
import json
import math
import os
import re
import statistics
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # two runtimes whose idle threads spin would steal from each other; read when they load
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import heed  # noqa: E402
from peers_torch import PEERS  # noqa: E402

# What libheed may use, said to the others' own dispatchers before they load.
LIMITS = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}


def arguments():
    parser = argparse.ArgumentParser(description="libheed beside PyTorch and ONNX Runtime, one process, calls taking turns")
    parser.add_argument("--library", default=os.path.join(heed.ROOT, "build", "libheed.so"), help="the shared library (default: that of build/)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of each (default: all processors)")
    parser.add_argument("--level", default="auto", help="instruction set: auto, or avx2 for all of them")
    parser.add_argument("--cases", default="", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, of which the median counts (default 9)")
    parser.add_argument("--seconds", type=float, default=0.1, help="least time of one turn: short calls are repeated (default 0.1)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: processor time of all threads, for a machine that others use too; only ratios then mean something")
    parser.add_argument("--quick", action="store_true", help="three rounds of single calls at an eighth of the length: whether it all works")
    parser.add_argument("--alone", metavar="NAME", help="how much memory NAME takes at most (heed or torch; of the train cases): nothing is timed")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", metavar="FILE", help="also write everything there (- is standard output, then without the table)")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 3, 1e-3
    return options


# ---- arrays ----------------------------------------------------------------------------------------------------------------


class Arrays:
    """The one place where tensors become views: both sides read the same memory."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.kinds = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool"}

    def view(self, tensor):
        view = self.library.view(tensor.data_ptr(), self.kinds[tensor.dtype], list(tensor.shape), list(tensor.stride()))
        view.tensor = tensor
        return view

    def random(self, *shape, kind=None):
        return self.torch.randn(*shape).to(kind or self.torch.float32)


class Case:
    """Things that do the same work: contenders {name: call that returns its results, a list of tensors}. "heed" is one of them; results must agree with those
    of `judge`. flops and bytes are those of one call, what the result needs."""

    def __init__(self, contenders, flops=0, bytes=0, judge="torch", tolerance=2e-5, goal=None, check=None, close=lambda: None):
        self.contenders, self.flops, self.bytes, self.judge, self.tolerance, self.goal = contenders, flops, bytes, judge, tolerance, goal
        self.close = close  # gives back what is not Python's
        self.check = check  # instead of comparing with the judge: a function from heed's results to the difference


# ---- attention -------------------------------------------------------------------------------------------------------------


class Attention:
    """One description of attention with its arrays, called through both libraries."""

    def __init__(self, e, d, n, m=None, heads=4, kv_heads=None, batch=1, kind=None, causal=False, window=None, dropout=0.0):
        torch, kv_heads, m = e.torch, kv_heads or heads, m or n
        self.e, self.causal, self.dropout, self.grouped = e, causal, dropout, kv_heads != heads
        self.q = e.arrays.random(batch, heads, n, d, kind=kind)
        self.k, self.v = (e.arrays.random(batch, kv_heads, m, d, kind=kind) for _ in range(2))
        self.dout = e.arrays.random(batch, heads, n, d, kind=kind)
        self.out, self.dq, self.dk, self.dv = (torch.empty_like(t) for t in (self.q, self.q, self.k, self.v))
        self.lse = torch.empty(batch, heads, n)
        fields = {"causal": causal, "align": e.constants["HEED_ALIGN_END"]}
        if window is not None:
            fields.update(has_window_left=True, window_left=window)
        if dropout:
            fields.update(dropout=dropout, seed=e.SEED)
        self.description = e.library.struct("heed_attention", **fields)
        self.views = {name: e.arrays.view(getattr(self, name)) for name in ("q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv")}
        self.mask = None
        if window is not None:
            i = torch.arange(m)
            self.mask = (i[:, None] >= i) & (i[:, None] - i <= window)
        plan = e.library.struct("heed_plan")
        e.library.call("heed_attention_explain_plan", self.description, *self.qkv(), plan)
        self.pairs, self.d = plan.visible_pairs, d

    def qkv(self):
        return [self.views[name] for name in "qkv"]

    def heed_forward(self, lse=False):
        extras = self.e.library.struct("heed_attention_extras", lse=self.views["lse"]) if lse else None
        self.e.library.call("heed_attention_forward", self.description, *self.qkv(), self.views["out"], extras)
        return [self.out]

    def heed_backward(self):
        asked = self.e.library.struct("heed_attention_gradients", dq=self.views["dq"], dk=self.views["dk"], dv=self.views["dv"])
        self.e.library.call("heed_attention_backward", self.description, *self.qkv(), self.views["out"], self.views["lse"], self.views["dout"], asked)
        return [self.dq, self.dk, self.dv]

    def torch_output(self):
        causal = self.causal and self.mask is None
        attend = self.e.torch.nn.functional.scaled_dot_product_attention
        return attend(self.q, self.k, self.v, attn_mask=self.mask, is_causal=causal, dropout_p=self.dropout, enable_gqa=self.grouped)

    def torch_forward(self):
        with self.e.torch.no_grad():
            return [self.torch_output()]

    def torch_backward(self):
        """A function that runs the backward pass alone."""
        inputs = [t.requires_grad_(True) for t in (self.q, self.k, self.v)]
        out = self.torch_output()
        return lambda: list(self.e.torch.autograd.grad(out, inputs, self.dout, retain_graph=True))


def forward(e, d, n, causal, goal):
    a = Attention(e, d, e.size(n), causal=causal)
    contenders = {"heed": a.heed_forward, "torch": a.torch_forward, **onnx_attention(e, a)}
    return Case(contenders, flops=4 * d * a.pairs, goal=goal)


def backward(e, d, n, causal, goal):
    a = Attention(e, d, e.size(n), causal=causal)
    a.heed_forward(lse=True)
    return Case({"heed": a.heed_backward, "torch": a.torch_backward()}, flops=10 * d * a.pairs, goal=goal, tolerance=5e-5)


def window(e, n, goal):
    """scaled_dot_product_attention has no window, so it gets the mask that spells it out; FlexAttention compiles one, which takes half a minute."""
    a = Attention(e, 64, e.size(n), causal=True, window=511)
    return Case({"heed": a.heed_forward, "torch": a.torch_forward, **flex_window(e, a, 511)}, flops=4 * 64 * a.pairs, goal=goal)


def flex_window(e, a, left):
    """FlexAttention, where there is a compiler for it."""
    n = a.q.shape[2]
    try:
        from torch.nn.attention import flex_attention as flex

        mask = flex.create_block_mask(lambda batch, head, i, j: (i >= j) & (i - j <= left), 1, 1, n, n, device="cpu")
        attend = e.torch.compile(flex.flex_attention)

        def call():
            with e.torch.no_grad():
                return [attend(a.q, a.k, a.v, block_mask=mask)]

        call()
    except (ImportError, RuntimeError):
        return {}
    return {"flex": call}


def dropout(e, n, goal):
    """The two draw different numbers; heed's are checked by drawing them again."""
    a = Attention(e, 64, e.size(n), causal=True, dropout=0.1)
    return Case({"heed": a.heed_forward, "torch": a.torch_forward}, flops=4 * 64 * a.pairs, goal=goal, check=lambda out: dropout_difference(e, a, out[0]))


def philox(e, index, key):
    """Philox4x32-10 (Salmon et al., 2011) of counters [..., 4] as 64-bit integers, key the 64-bit seed: words [..., 4]."""
    low, words, keys = 0xFFFFFFFF, list(index.unbind(-1)), [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        high0, low0 = multiply_high_low(0xD2511F53, words[0])
        high1, low1 = multiply_high_low(0xCD9E8D57, words[2])
        words = [high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0]
        keys = [(keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low]
    return e.torch.stack(words, -1)


def multiply_high_low(a, b):
    """The two 32-bit halves of a product of 32-bit numbers held in 64-bit signed ones, by halves so that nothing overflows."""
    first, second = a * (b & 0xFFFF), a * (b >> 16)
    total = (first >> 16) + second
    return total >> 16, ((total & 0xFFFF) << 16) | (first & 0xFFFF)


def dropout_difference(e, a, out):
    """Some rows of the first head by the formula, in double precision."""
    torch, m = e.torch, a.k.shape[2]
    rows = torch.tensor([0, 1, 5, m // 3, m // 2, m - 2, m - 1])
    counters = torch.zeros(len(rows), -(-m // 4), 4, dtype=torch.int64)
    counters[..., 0], counters[..., 1] = torch.arange(counters.shape[1]), rows[:, None]
    kept = philox(e, counters, e.SEED).flatten(1)[:, :m] >= int(a.dropout * 2**32)
    scores = a.q[0, 0, rows].double() @ a.k[0, 0].double().T / math.sqrt(a.d)
    weights = torch.softmax(scores.masked_fill(torch.arange(m) > rows[:, None], -math.inf), -1)
    return difference([out[0, 0, rows]], [(weights * kept / (1 - a.dropout)) @ a.v[0, 0].double()])


def decode(e, kind, m, goal):
    """One query against a cache, and against the same keys and values as arrays."""
    a = Attention(e, 128, 1, m=e.size(m), heads=32, kv_heads=8, kind=getattr(e.torch, kind))
    stored = e.constants[f"HEED_CACHE_{e.arrays.kinds[a.k.dtype].upper()}"]
    cache, out = ctypes.c_void_p(), e.torch.empty_like(a.out)
    e.library.call("heed_cache_new", e.library.struct("heed_cache_spec", sequences=1, kv_heads=8, d=128, dv=128, type=stored), ctypes.byref(cache))
    e.library.call("heed_cache_append", cache, 0, *(e.arrays.view(t[0]) for t in (a.k, a.v)), context=False)
    view = e.arrays.view(out)

    def cached():
        e.library.call("heed_attention_cached", None, a.views["q"], cache, None, view, None)
        return [out]

    size = a.k.element_size()
    contenders = {"heed": cached, "heed arrays": a.heed_forward, "torch": a.torch_forward}
    return Case(contenders, flops=4 * 128 * a.pairs, bytes=2 * 8 * 128 * a.k.shape[2] * size, goal=goal, tolerance=2e-5 if size == 4 else 2e-2,
                close=lambda: e.library.library.heed_cache_free(cache))


def layer(e, goal):
    """PyTorch's MultiheadAttention against one of ours with its weights, forward and backward with every gradient."""
    torch, batch, n, width, heads = e.torch, 4, e.size(512), 768, 12
    module = torch.nn.MultiheadAttention(width, heads, batch_first=True)
    torch.nn.init.normal_(module.in_proj_bias, std=0.1)
    torch.nn.init.normal_(module.out_proj.bias, std=0.1)
    x = e.arrays.random(batch, n, width).requires_grad_(True)
    parameters = {"w_qkv": module.in_proj_weight, "b_qkv": module.in_proj_bias, "w_o": module.out_proj.weight, "b_o": module.out_proj.bias}
    dout, out = e.arrays.random(batch, n, width), torch.empty(batch, n, width)
    grads = {name: torch.empty_like(t, requires_grad=False) for name, t in (("x_query", x), *parameters.items())}
    made = e.library.struct("heed_multi_head", heads=heads, **{name: e.arrays.view(t) for name, t in parameters.items()})
    views = {"x": e.arrays.view(x), "out": e.arrays.view(out), "dout": e.arrays.view(dout)}
    floats = ctypes.c_int64()
    e.library.call("heed_multi_head_saved_size", made, views["x"], None, None, ctypes.byref(floats))
    saved = e.arrays.view(torch.empty(floats.value))
    extras = e.library.struct("heed_multi_head_extras", saved=saved)
    asked = e.library.struct("heed_multi_head_gradients", **{f"d{name}": e.arrays.view(t) for name, t in grads.items()})

    def ours():
        e.library.call("heed_multi_head_forward", made, views["x"], None, None, views["out"], extras)
        e.library.call("heed_multi_head_backward", made, views["x"], None, None, saved, views["dout"], asked)
        return [out, *grads.values()]

    def theirs():
        result = module(x, x, x, need_weights=False)[0]
        return [result, *torch.autograd.grad(result, (x, *parameters.values()), dout)]

    products, attention = 2 * batch * n * 4 * width * width, 4 * batch * n * n * width
    return Case({"heed": ours, "torch": theirs}, flops=3 * products + 3.5 * attention, goal=goal, tolerance=5e-5)


def additive(e, goal):
    """Bahdanau's score, forward and backward. The keys are the values, so their two gradients add up."""
    torch, batch, n, m, d_q, d_k, h = e.torch, 32, 40, 40, 256, 512, 256
    names = ("q", "k", "wq", "wk", "wv")
    shapes = ((batch, 1, n, d_q), (batch, 1, m, d_k), (h, d_q), (h, d_k), (h,))
    arrays = {name: e.arrays.random(*shape) / (1 if name in "qk" else 16) for name, shape in zip(names, shapes)}
    q, k, wq, wk, wv = (arrays[name].requires_grad_(True) for name in names)
    dout = torch.ones(batch, 1, n, d_k)
    grads = {name: torch.empty_like(t, requires_grad=False) for name, t in (*arrays.items(), ("v", k))}
    out, lse = torch.empty(batch, 1, n, d_k), torch.empty(batch, 1, n)
    views = {name: e.arrays.view(t) for name, t in (*arrays.items(), ("out", out), ("lse", lse), ("dout", dout))}
    score = e.library.struct("heed_score", kind=e.constants["HEED_SCORE_ADDITIVE"], **{name: views[name] for name in ("wq", "wk", "wv")})
    description = e.library.struct("heed_attention", score=score)
    extras = e.library.struct("heed_attention_extras", lse=views["lse"])
    asked = e.library.struct("heed_attention_gradients", **{f"d{name}": e.arrays.view(t) for name, t in grads.items()})
    inputs = [views[name] for name in ("q", "k", "k")]

    def ours():
        e.library.call("heed_attention_forward", description, *inputs, views["out"], extras)
        e.library.call("heed_attention_backward", description, *inputs, views["out"], views["lse"], views["dout"], asked)
        return [out, grads["q"], grads["k"] + grads["v"], grads["wq"], grads["wk"], grads["wv"]]

    def theirs():
        features = torch.tanh((q @ wq.T)[:, 0, :, None] + (k @ wk.T)[:, 0, None])
        result = torch.softmax(features @ wv, -1)[:, None] @ k
        return [result, *torch.autograd.grad(result, (q, k, wq, wk, wv), dout)]

    return Case({"heed": ours, "torch": theirs}, goal=goal, tolerance=1e-4)


# ---- products --------------------------------------------------------------------------------------------------------------


def gemm(e, rows, outputs, inputs, goal):
    a, b = e.arrays.random(rows, inputs), e.arrays.random(outputs, inputs)
    c = e.torch.empty(rows, outputs)
    views = [e.arrays.view(t) for t in (a, b, c)]
    form = e.library.struct("heed_gemm_form", transpose_b=True)

    def ours():
        e.library.call("heed_gemm", form, *views)
        return [c]

    def theirs():
        with e.torch.no_grad():
            return [e.torch.nn.functional.linear(a, b)]

    return Case({"heed": ours, "torch": theirs}, flops=2 * rows * outputs * inputs, goal=goal, tolerance=5e-5)


# ---- training ----------------------------------------------------------------------------------------------------------------


class Learner:
    """A model of ours and what teaches it; a step is loss, gradients, AdamW with the norm held to 1."""

    def __init__(self, e, kind, ids, targets, **size):
        self.call, self.library, self.constants = e.library.call, e.library.library, e.constants
        self.ids, self.targets = (e.library.view(t.data_ptr(), "i32", list(t.shape), list(t.stride())) for t in (ids, targets))
        self.kept, self.torch, self.struct = (ids, targets), e.torch, e.library.struct
        self.learner, self.tape, self.optimiser = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        options = e.library.struct("heed_learner_options", kind=e.constants[f"HEED_LEARNER_{kind}"], seed=e.SEED, **size)
        self.call("heed_learner_new", options, ctypes.byref(self.learner))
        self.parameters = self.library.heed_learner_parameters(self.learner)
        self.call("heed_tape_new", ctypes.byref(self.tape))
        self.call("heed_optimiser_new", self.parameters, e.library.struct("heed_optimiser_options", decay=DECAY), ctypes.byref(self.optimiser))

    def values(self):
        """{name: a tensor on the parameter's memory}"""
        found = {}
        for i in range(self.library.heed_parameters_count(self.parameters)):
            tensor = self.library.heed_parameters_at(self.parameters, i)
            view = self.library.heed_tensor_value(tensor)
            shape = view.dim[: view.ndim]
            memory = (ctypes.c_float * math.prod(shape)).from_address(view.data)
            found[self.library.heed_tensor_name(tensor).decode()] = self.torch.frombuffer(memory, dtype=self.torch.float32).view(shape)
        return found

    def step(self):
        self.library.heed_tape_reset(self.tape)
        self.library.heed_parameters_forget_gradients(self.parameters)
        inputs = [self.library.heed_tape_input(self.tape, ctypes.addressof(view)) for view in (self.ids, self.targets)]
        loss = self.library.heed_learner_loss(self.learner, self.tape, *inputs)
        self.call("heed_tape_backward", self.tape, loss, None, context=False)
        report = self.struct("heed_optimiser_report")
        self.call("heed_optimiser_step", self.optimiser, RATE, 1.0, report, context=False)
        value = ctypes.c_float.from_address(self.library.heed_tensor_value(loss).data).value
        return [self.torch.tensor([value]), self.torch.tensor([report.gradient_norm])]

    def close(self):
        self.library.heed_optimiser_free(self.optimiser)
        self.library.heed_tape_free(self.tape)
        self.library.heed_learner_free(self.learner)


RATE, DECAY = 1e-4, 0.01


def train(e, batch, goal, kind="GPT", **size):
    """A step from equal weights: loss and gradient norm of the first one are compared."""
    torch, width, layers, context, source = e.torch, size["width"], size.get("layers", 0), size["context"], size.get("source", 0)
    ids, targets = (torch.randint(size["vocabulary"], (batch, source + context), dtype=torch.int32) for _ in range(2))
    targets[:, :source] = -1

    def ours():
        learner = Learner(e, kind, ids, targets, **size)
        return learner.step, learner

    def theirs():
        learner = Learner(e, kind, ids, targets, **size)
        model = PEERS[kind][0](torch, **size)
        model.load_state_dict(PEERS[kind][1](torch, {name: t.clone() for name, t in learner.values().items()}))
        learner.close()
        optimiser, long_ids, long_targets = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY, fused=True), ids.long(), targets.long()

        def step():
            optimiser.zero_grad(set_to_none=True)
            loss = model(long_ids, long_targets)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            return [loss.detach()[None], norm[None]]

        return step

    if e.alone:  # their memory is compared, so only one is made
        return Case({e.alone: ours()[0] if e.alone == "heed" else theirs()})
    step, learner = ours()
    # Matrices that each token meets: of an encoder and the keys and values made of what it gave, those of the source.
    matrices, of_source = 0, 0
    for name, t in learner.values().items():
        if t.ndim == 2 and name != "position.weight":
            if name.startswith(("encoder.", "attention.key.", "decoder.context.")) or ".cross_kv." in name:
                of_source += t.numel()
            else:
                matrices += t.numel()
    scores = layers * width * (context * context + (source * source + source * context if source else 0))
    flops = 6 * batch * (matrices * context + of_source * source) + 12 * batch * scores
    return Case({"heed": step, "torch": theirs()}, flops=flops, goal=goal, tolerance=1e-4, close=learner.close)


# ---- translating ---------------------------------------------------------------------------------------------------------------


def translate(e, count, beams, goal, **size):
    """Beam search of sentences of many lengths with a Marian of ours, against transformers' generate() on the same files: what share of the sentences comes out otherwise is compared. The
    weights are random, so every target is as long as is allowed."""
    import tempfile

    from transformers import AutoModelForSeq2SeqLM

    torch, call, library, most = e.torch, e.library.call, e.library.library, size["context"]
    learner, model, start, end = ctypes.c_void_p(), ctypes.c_void_p(), 0, 1
    options = e.library.struct("heed_learner_options", kind=e.constants["HEED_LEARNER_SEQ2SEQ"], seed=e.SEED, has_ends=True, start=start, end=end, **size)
    call("heed_learner_new", options, ctypes.byref(learner))
    with tempfile.TemporaryDirectory() as folder:
        call("heed_learner_save", learner, None, folder.encode(), context=False)
        call("heed_model_load", folder.encode(), ctypes.byref(model))
        theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    library.heed_learner_free(learner)
    lengths = torch.randint(size["source"] // 3, size["source"] + 1, (count,)).tolist()
    rows = [torch.randint(2, size["vocabulary"], (n,), dtype=torch.int32) for n in lengths]
    ids, begin = torch.cat(rows), torch.tensor([0, *lengths]).cumsum(0)
    sources = e.library.struct("heed_sources", ids=ids.data_ptr(), begin=begin.data_ptr(), count=count)
    sources.arrays = (ids, begin)
    search = e.library.struct("heed_translate_options", width=beams, most=most)
    order = sorted(range(count), key=lambda i: -lengths[i])

    def ours():
        found = ctypes.c_void_p()
        call("heed_translate", model, ctypes.addressof(sources), search, ctypes.byref(found))
        out = torch.zeros(count, most, dtype=torch.int64)
        for i in range(count):
            best = library.heed_translations_of(found, i, None)
            translation = e.library.header.structs["heed_translation"].from_address(best)
            memory = (ctypes.c_int32 * translation.count).from_address(translation.ids)
            out[i, : translation.count] = torch.frombuffer(memory, dtype=torch.int32)
        library.heed_translations_free(found)
        return [out]

    latest = []

    def generate(at_once=64):
        out = torch.zeros(count, most, dtype=torch.int64)
        for i in range(0, count, at_once):
            part = order[i : i + at_once]
            padded = torch.nn.utils.rnn.pad_sequence([rows[k].long() for k in part], batch_first=True)
            mask = torch.arange(padded.shape[1]) < torch.tensor([lengths[k] for k in part])[:, None]
            with torch.inference_mode():
                found = theirs.generate(padded, attention_mask=mask.long(), num_beams=beams, max_new_tokens=most, pad_token_id=0, do_sample=False)
            out[part, : found.shape[1] - 1] = found[:, 1:]
        return [out]

    def they():
        latest[:] = generate()
        return latest

    check = lambda found: (found[0] != latest[0]).any(1).double().mean().item()
    return Case({"heed": ours, "transformers": they}, judge="transformers", goal=goal, check=check, tolerance=0.05, close=lambda: library.heed_model_free(model))


# ---- ONNX Runtime ------------------------------------------------------------------------------------------------------------


def onnx_attention(e, a):
    """Its MultiHeadAttention on [B,n,H·d]: the same numbers in the layout it takes. {} without onnxruntime and onnx."""
    if not e.onnxruntime:
        return {}
    from onnx import TensorProto, helper

    batch, heads, n, d = a.q.shape
    arrays = {name: t.transpose(1, 2).reshape(batch, n, heads * d).contiguous() for name, t in zip("qkv", (a.q, a.k, a.v))}
    attributes = {"num_heads": heads, "unidirectional": int(a.causal)}
    node = helper.make_node("MultiHeadAttention", list("qkv"), ["y"], domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(t.shape)) for name, t in arrays.items()]
    graph = helper.make_graph([node], "attention", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    options = e.onnxruntime.SessionOptions()
    options.intra_op_num_threads = e.threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    session = e.onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {name: t.numpy() for name, t in arrays.items()}

    def call():
        return [e.torch.from_numpy(session.run(None, feed)[0]).view(batch, n, heads, d).transpose(1, 2)]

    return {"onnxruntime": call}


# ---- the list --------------------------------------------------------------------------------------------------------------


def cases():
    """{name: function of the environment}. The last numbers are what heed is to reach, in times the speed of PyTorch."""
    lengths = (512, 1024, 2048, 4096)
    goals = {
        ("forward", 64, False): (1.3, 1.3, 1.3, 1.3),
        ("forward", 64, True): (2.4, 1.75, 1.5, 1.35),
        ("backward", 64, False): (1.12, 1.12, 1.12, 1.12),
        ("backward", 64, True): (2.1, 1.55, 1.4, 1.25),
        ("forward", 128, False): (1.0, 1.0, 1.0, 1.0),
        ("forward", 128, True): (1.75, 1.2, 1.3, 1.2),
        ("backward", 128, False): (None,) * 4,
        ("backward", 128, True): (None,) * 4,
    }
    found = {}
    for (direction, d, causal), numbers in goals.items():
        for n, goal in zip(lengths, numbers):
            name = f"{direction} d{d} {'causal' if causal else 'full'} n{n}"
            found[name] = lambda e, make=globals()[direction], d=d, n=n, causal=causal, goal=goal: make(e, d, n, causal, goal)
    found["window 512 n4096"] = lambda e: window(e, 4096, 8)
    found["causal dropout n4096"] = lambda e: dropout(e, 4096, 10)
    found["layer b4 n512 width 768 heads 12"] = lambda e: layer(e, 1.08)
    found["additive b32 n40 m40 h256"] = lambda e: additive(e, 5)
    for rows, outputs, inputs in ((512, 2304, 768), (512, 768, 3072), (1024, 1024, 1024)):
        found[f"gemm {rows}x{outputs}x{inputs}"] = lambda e, s=(rows, outputs, inputs): gemm(e, *s, None)
    found["train nano-char-cpu"] = lambda e: train(e, 12, 1.8, layers=4, heads=4, width=128, context=64, vocabulary=65)
    found["train 10.8 M"] = lambda e: train(e, 8, 1.15, layers=6, heads=6, width=384, context=256, vocabulary=65)
    translator = dict(kind="SEQ2SEQ", layers=3, heads=4, width=256, source=30, context=30)
    for vocabulary in (64, 8000):
        found[f"train seq2seq transformer, vocabulary {vocabulary}"] = lambda e, v=vocabulary: train(e, 64, 1.3, vocabulary=v, **translator)
    found["train GPT-2 124 M"] = lambda e: train(e, 4, 1.35, layers=12, heads=12, width=768, context=64, vocabulary=50257)
    for vocabulary in (64, 8000):
        found[f"train seq2seq recurrent, vocabulary {vocabulary}"] = lambda e, v=vocabulary: train(e, 64, 1.5, kind="RECURRENT", width=256, source=30, context=30, vocabulary=v)
    found["translate 256 sentences, beam 5"] = lambda e: translate(e, e.size(256), 5, 4, **{k: v for k, v in translator.items() if k != "kind"}, vocabulary=8000)
    for kind, name in (("float32", "f32"), ("bfloat16", "bf16")):
        found[f"decode 32/8 heads m32768 {name}"] = lambda e, kind=kind: decode(e, kind, 32768, None)
    return found


# ---- measuring -------------------------------------------------------------------------------------------------------------


class Environment:
    SEED = 0x123456789

    def __init__(self, options):
        os.environ.update(LIMITS.get(options.level, {}))
        import torch

        try:
            import onnx  # noqa: F401
            import onnxruntime

            onnxruntime.set_default_logger_severity(3)
        except ImportError:
            onnxruntime = None
        torch.manual_seed(1)
        torch.set_num_threads(options.threads)
        self.torch, self.onnxruntime, self.threads, self.quick, self.alone = torch, onnxruntime, options.threads, options.quick, options.alone
        self.library = heed.Library(options.library, options.threads, options.level)
        self.constants, self.arrays = self.library.constants, Arrays(torch, self.library)

    def size(self, n):
        return n // 8 if self.quick else n

    def about(self, options):
        return {
            "processor": processor(),
            "level": self.library.level(),
            "threads": self.library.threads(),
            "heed": self.library.library.heed_version().decode(),
            "torch": self.torch.__version__,
            "onnxruntime": self.onnxruntime.__version__ if self.onnxruntime else None,
            "clock": options.clock,
            "date": time.strftime("%Y-%m-%d"),
        }


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        names = [line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")]
    return names[0] if names else "unknown"


def difference(found, expected):
    """The largest difference relative to the largest magnitude; infinite where a number is missing."""
    worst = 0.0
    for x, y in zip(found, expected, strict=True):
        x, y = x.detach().double(), y.detach().double()
        relative = ((x - y).abs().max() / y.abs().max()).item()
        worst = max(worst, relative if math.isfinite(relative) else math.inf)
    return worst


def timed(call, repeats, clock):
    begin = clock()
    for _ in range(repeats):
        call()
    return (clock() - begin) / repeats


def take_turns(case, rounds, seconds, clock):
    """{name: [seconds a call, one a round]}. Every other round runs backwards, so that nobody always follows the same one."""
    repeats, names = {}, list(case.contenders)
    for name, call in case.contenders.items():
        call()
        repeats[name] = max(1, math.ceil(seconds / timed(call, 1, time.perf_counter)))
    times = {name: [] for name in names}
    for i in range(rounds):
        for name in names if i % 2 == 0 else reversed(names):
            times[name].append(timed(case.contenders[name], repeats[name], clock))
    return times


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def measure(e, case, options):
    results = {name: [t.clone() for t in call()] for name, call in case.contenders.items()}
    differences = {}
    for name in results:
        if name == "heed" and case.check:
            differences[name] = case.check(results[name])
        elif name != case.judge and not case.check:
            differences[name] = difference(results[name], results[case.judge])
    before = e.library.machine(options.seconds, reads=case.bytes > 0)
    times = take_turns(case, options.rounds, options.seconds, time.process_time if options.clock == "cpu" else time.perf_counter)
    after = e.library.machine(options.seconds, reads=case.bytes > 0)
    peak, read = ((b + a) / 2 for b, a in zip(before, after))
    row = {"goal": None if options.quick else case.goal, "peak_gflops": [before[0] / 1e9, after[0] / 1e9], "read_gbs": [before[1] / 1e9, after[1] / 1e9] if case.bytes else None, "contenders": {}}
    for name, seconds in times.items():
        low, median, high = quartiles(seconds)
        entry = {"median_s": median, "q1_s": low, "q3_s": high, "difference": differences.get(name), "agrees": differences.get(name, 0) <= case.tolerance}
        entry["of_peak"] = case.flops / median / peak if case.flops and options.clock == "wall" else None
        entry["of_bandwidth"] = case.bytes / median / read if case.bytes and options.clock == "wall" else None
        if name != "heed":
            ratios = [theirs / ours for theirs, ours in zip(seconds, times["heed"])]
            entry["ratio_q1"], entry["ratio"], entry["ratio_q3"] = quartiles(ratios)
        row["contenders"][name] = entry
    return row


def resident(which):
    with open("/proc/self/status", encoding="utf-8") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith(which + ":"))


def print_memory(e, name, make):
    """The most memory that a few calls take, beyond what was there before. One a process, since allocators keep what they have had."""
    before = resident("VmRSS")
    case = make(e)
    for _ in range(3):
        case.contenders[e.alone]()
    print(f"{name:32s} {e.alone:>12s} {(resident('VmHWM') - before) / 1e6:9.1f} MB", flush=True)


def print_row(name, row):
    ours = row["contenders"]["heed"]
    share = "of_bandwidth" if row["read_gbs"] else "of_peak"
    for other, entry in row["contenders"].items():
        if other == "heed":
            continue
        goal = row["goal"] if other == "torch" else None
        mark = "" if goal is None else f"  {'reaches' if entry['ratio'] >= goal else 'SHORT OF'} {goal:g}"
        wrong = "" if ours["agrees"] and entry["agrees"] else f"  RESULTS DIFFER by {max(ours['difference'] or 0, entry['difference'] or 0):.1e}"
        shares = "   -    -" if ours[share] is None else f"{ours[share]:.2f} {entry[share]:.2f}"
        quarters = f"{entry['ratio_q1']:.2f}–{entry['ratio_q3']:.2f}"
        print(f"{name:32s} {ours['median_s'] * 1e3:9.3f} {other:>12s} {entry['median_s'] * 1e3:9.3f}  {entry['ratio']:6.2f} {quarters:>11s}   {shares}{mark}{wrong}", flush=True)


def main():
    options = arguments()
    chosen = {name: make for name, make in cases().items() if re.search(options.cases, name)}
    if options.list or not chosen:
        print("\n".join(chosen) if chosen else f"no case matches {options.cases}")
        return 0 if chosen else 2
    e = Environment(options)
    report, table = {"about": e.about(options), "cases": {}}, options.json != "-"
    if table:
        print(" · ".join(f"{key} {value}" for key, value in report["about"].items()))
        print(f"{'case':32s} {'heed ms':>9s} {'other':>12s} {'ms':>9s}  {'ratio':>6s} {'quartiles':>11s}   of peak or bandwidth")
    for name, make in chosen.items():
        if e.alone:
            print_memory(e, name, make)
            continue
        case = make(e)
        report["cases"][name] = row = measure(e, case, options)
        case.close()
        if table:
            print_row(name, row)
    if options.json:
        with open(options.json, "w", encoding="utf-8") if table else os.fdopen(1, "w") as stream:
            json.dump(report, stream, indent=1)
            stream.write("\n")
    return 0 if all(entry["agrees"] for row in report["cases"].values() for entry in row["contenders"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
