"""peers_torch.py: the models that libheed trains, as PyTorch writes them, and our parameters under its names."""

import math
import re


def torch_gpt(torch, layers, heads, width, context, vocabulary):
    """PyTorch's way to write the same model, its parameters in the order and under the names of ours."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.qkv, self.output = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed_forward_norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (t.view(*t.shape[:2], heads, -1).transpose(1, 2) for t in self.qkv(self.attention_norm(x)).split(width, 2))
            x = x + self.output(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.layers, self.final_norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width)

        def forward(self, ids, targets):
            x = self.embedding(ids) + self.position(torch.arange(ids.shape[1]))
            for block in self.layers:
                x = block(x)
            logits = functional.linear(self.final_norm(x), self.embedding.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return GPT()


def torch_translator(torch, layers, heads, width, context, source, vocabulary):
    """PyTorch's Transformer with encoder and decoder between an embedding that serves source, target and head."""
    nn, functional = torch.nn, torch.nn.functional
    common = dict(d_model=width, nhead=heads, dim_feedforward=4 * width, dropout=0.0, batch_first=True)
    half = torch.arange(width // 2, dtype=torch.float64)
    angle = torch.arange(max(context, source), dtype=torch.float64)[:, None] * 10000 ** (-half / (width // 2))

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**common), layers, enable_nested_tensor=False)
            decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**common), layers)
            self.transformer = nn.Transformer(width, heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
            self.embedding = nn.Embedding(vocabulary, width)
            self.register_buffer("sinusoid", torch.cat([angle.sin(), angle.cos()], 1).float(), persistent=False)
            self.register_buffer("later", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

        def embed(self, ids):
            return self.embedding(ids) * math.sqrt(width) + self.sinusoid[: ids.shape[1]]

        def forward(self, ids, targets):
            x = self.transformer(self.embed(ids[:, :source]), self.embed(ids[:, source:]), tgt_mask=self.later, tgt_is_causal=True)
            return functional.cross_entropy(functional.linear(x, self.embedding.weight).flatten(0, 1), targets[:, source:].flatten())

    return Translator()


def translator_state(torch, values):
    """Our parameters under PyTorch's names, where the queries, keys and values of an attention are one matrix."""
    norms = {"encoder": {"attention_norm": "norm1", "feed_forward_norm": "norm2"}, "decoder": {"attention_norm": "norm1", "cross_norm": "norm2", "feed_forward_norm": "norm3"}}
    found = {"embedding.weight": values["embedding.weight"]}
    for name, value in values.items():
        match = re.fullmatch(r"(encoder\.|)layers\.(\d+)\.(\w+)\.(weight|bias)", name)
        if not match or match.group(3) == "cross_kv":
            continue
        stack, layer, part, kind = ("encoder" if match.group(1) else "decoder", *match.groups()[1:])
        if part == "cross_query":
            value = torch.cat([value, values[name.replace("cross_query", "cross_kv")]])
        part = {"up": "linear1", "down": "linear2", "output": "self_attn.out_proj", "cross_output": "multihead_attn.out_proj"}.get(part) or norms[stack].get(part) or part
        part = {"qkv": f"self_attn.in_proj_{kind}", "cross_query": f"multihead_attn.in_proj_{kind}"}.get(part, f"{part}.{kind}")
        found[f"transformer.{stack}.layers.{layer}.{part}"] = value.clone()
    return found


def torch_recurrent(torch, width, context, source, vocabulary):
    """Bahdanau's model in PyTorch: nn.GRU reads, nn.GRUCell writes in a loop, keys projected once; its parameters under the names of ours."""
    nn, functional = torch.nn, torch.nn.functional

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.encoder = nn.Embedding(vocabulary, width), nn.GRU(width, width, batch_first=True, bidirectional=True)
            self.initial, self.key, self.query = nn.Linear(width, width), nn.Linear(2 * width, width), nn.Linear(width, width, bias=False)
            self.score, self.cell, self.head = nn.Linear(width, 1, bias=False), nn.GRUCell(3 * width, width), nn.Linear(width, vocabulary)

        def forward(self, ids, targets):
            states, last = self.encoder(self.embedding(ids[:, :source]))
            keys, state, x, out = self.key(states), torch.tanh(self.initial(last[1])), self.embedding(ids[:, source:]), []
            for t in range(context):
                weights = torch.softmax(self.score(torch.tanh(self.query(state)[:, None] + keys)).transpose(1, 2), -1)
                state = self.cell(torch.cat([x[:, t], torch.bmm(weights, states)[:, 0]], 1), state)
                out.append(state)
            return functional.cross_entropy(self.head(torch.stack(out, 1)).flatten(0, 1), targets[:, source:].flatten())

    return Recurrent()


def recurrent_state(torch, values):
    names = {"embedding.weight": "embedding.weight", "attention.score.weight": "score.weight", "attention.query.weight": "query.weight"}
    for kind in ("weight", "bias"):
        names |= {f"initial.{kind}": f"initial.{kind}", f"attention.key.{kind}": f"key.{kind}", f"head.{kind}": f"head.{kind}"}
        names |= {f"encoder.{ours}.{kind}": f"encoder.{kind}_{theirs}" for ours, theirs in (("input", "ih_l0"), ("state", "hh_l0"), ("reverse_input", "ih_l0_reverse"), ("reverse_state", "hh_l0_reverse"))}
    names |= {"decoder.input.bias": "cell.bias_ih", "decoder.state.weight": "cell.weight_hh", "decoder.state.bias": "cell.bias_hh"}
    found = {theirs: values[ours].clone() for ours, theirs in names.items()}
    found["score.weight"] = found["score.weight"][None]
    found["cell.weight_ih"] = torch.cat([values["decoder.input.weight"], values["decoder.context.weight"]], 1)
    return found


# By kind: PyTorch's way to write it, and our parameters under its names.
PEERS = {"GPT": (torch_gpt, lambda torch, values: values), "SEQ2SEQ": (torch_translator, translator_state), "RECURRENT": (torch_recurrent, recurrent_state)}
