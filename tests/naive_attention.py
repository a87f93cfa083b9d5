"""naive_attention.py: attention in plain Python and double precision, written from the formula and for nothing but being obviously right: an answer to compare the program's with.

Arrays are nested lists q [H][n][d], k [Hkv][m][d], v [Hkv][m][dv]; gradients are central differences, so no derivative is written down here."""

import itertools
import math


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., 2011): four words of a counter of four words and a key of 64 bits."""
    low, (c0, c1, c2, c3), (k0, k1) = 0xFFFFFFFF, counter, (key & 0xFFFFFFFF, key >> 32)
    for _ in range(10):
        p0, p2 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p2 >> 32) ^ c1 ^ k0, p2 & low, (p0 >> 32) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0, c1, c2, c3


def places(lengths):
    """(document, place in it) of each of the rows that documents of these lengths fill."""
    return [(document, place) for document, length in enumerate(lengths) for place in range(length)]


def product(x, matrix):
    return [sum(a * b for a, b in zip(x, row)) for row in matrix]


class Attention:
    """inputs: {"q", "k", "v", and where wanted "bias" [H][n][m], "sink" [H], "wq", "wk", "wv"}. causal is the key position of query 0, or "bottom-right"."""

    def __init__(self, inputs, scale=None, causal=None, alibi=None, documents=None, key_documents=None, dropout=0, seed=0, stream=0, score="dot"):
        self.inputs, self.scale, self.causal, self.alibi, self.score = inputs, scale, causal, alibi, score
        self.dropout, self.seed, self.stream = dropout, seed, stream
        self.queries = places(documents or [len(inputs["q"][0])])
        self.keys = places(key_documents or documents or [len(inputs["k"][0])])

    def score_of(self, x, y):
        f = self.inputs
        scale = self.scale if self.scale is not None else 1 / math.sqrt(len(x)) if self.score == "dot" else 1
        if self.score == "additive":
            return scale * sum(w * math.tanh(a + b) for w, a, b in zip(f["wv"], product(x, f["wq"]), product(y, f["wk"])))
        return scale * sum(a * b for a, b in zip(x, y if self.score == "dot" else product(y, f["wq"])))

    def scores(self, head):
        """Of every pair, hidden or not."""
        queries, keys = self.inputs["q"][head], self.inputs["k"][head // (len(self.inputs["q"]) // len(self.inputs["k"]))]
        return [[self.score_of(x, y) for y in keys] for x in queries]

    def row(self, head, i):
        """(scores as the softmax sees them, weights before dropout, lse) of one query."""
        f = self.inputs
        group = len(f["q"]) // len(f["k"])
        document, place = self.queries[i]
        count = [sum(d == document for d, _ in rows) for rows in (self.queries, self.keys)]
        position = place + (count[1] - count[0] if self.causal in (None, "bottom-right") else self.causal)
        scores = []
        for j, (its_document, its_place) in enumerate(self.keys):
            if its_document != document or (self.causal is not None and its_place > position):
                scores.append(-math.inf)
                continue
            s = self.score_of(f["q"][head][i], f["k"][head // group][j])
            s += f["bias"][head][i][j] if "bias" in f else 0
            scores.append(s - (self.alibi[head] * abs(position - its_place) if self.alibi else 0))
        everything = scores + ([f["sink"][head]] if "sink" in f else [])
        top = max(everything)
        if max(scores) == -math.inf:
            return scores, [0.0] * len(scores), -math.inf
        total = sum(math.exp(s - top) for s in everything)
        return scores, [math.exp(s - top) / total for s in scores], top + math.log(total)

    def kept(self, head, i, j):
        return philox((j // 4, i, head, self.stream), self.seed)[j % 4] >= self.dropout * 2**32

    def run(self):
        """{"out" [H][n][dv], "lse" [H][n], and [H][n][m]: "scores", "biased" (hidden: −inf), "weights", "dropped"}"""
        f = self.inputs
        group, found = len(f["q"]) // len(f["k"]), {name: [] for name in ("out", "lse", "scores", "biased", "weights", "dropped")}
        for head in range(len(f["q"])):
            rows = [self.row(head, i) for i in range(len(self.queries))]
            values = list(zip(*f["v"][head // group]))
            mixed = [[w * self.kept(head, i, j) / (1 - self.dropout) for j, w in enumerate(weights)] if self.dropout else weights for i, (_, weights, _) in enumerate(rows)]
            found["scores"].append(self.scores(head))
            found["biased"].append([scores for scores, _, _ in rows])
            found["dropped"].append(mixed)
            found["out"].append([product(weights, values) for weights in mixed])
            found["weights"].append([weights for _, weights, _ in rows])
            found["lse"].append([lse for _, _, lse in rows])
        return found

    def gradients(self, dout, step=1e-5):
        """{input: flat gradient of the sum of out · dout}"""
        wanted = flat(dout)

        def loss():
            return math.fsum(a * b for a, b in zip(flat(self.run()["out"]), wanted))

        found = {name: [] for name in self.inputs}
        for name, array in self.inputs.items():
            for row, at in elements(array):
                here = row[at]
                row[at] = here + step
                above = loss()
                row[at] = here - step
                found[name].append((above - loss()) / (2 * step))
                row[at] = here
        return found


def elements(array):
    """(innermost list, place in it) of every number, in order."""
    for place, each in enumerate(array):
        if isinstance(each, list):
            yield from elements(each)
        else:
            yield array, place


def flat(array):
    return [row[at] for row, at in elements(array)]


def nested(values, shape):
    """Nested lists of the shape from an iterator of numbers."""
    values = iter(values)
    return [next(values) for _ in range(shape[0])] if len(shape) == 1 else [nested(itertools.islice(values, math.prod(shape[1:])), shape[1:]) for _ in range(shape[0])]
