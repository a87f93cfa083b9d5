#!/usr/bin/env python3
"""What `transformers` decodes with a model whose logits are a hash of the source and of the tokens so far: writes cases.json beside this file.

tests/unit/decode.c has the same hash, so that only decoding itself is compared. Run with transformers 5.24 and torch."""

import json
import os

import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

MASK = 0xFFFFFFFF
START, TARGETS = 0, 12
SOURCES = [[3, 1, 4], [1, 5, 9, 2, 6, 5], [3], [5, 8, 9, 7, 9], [3, 2, 3, 8], [4, 6], [2, 6, 4, 3, 3, 8, 3, 2, 7], [9, 5]]


def mix(a):
    a = ((a ^ a >> 16) * 0x7FEB352D) & MASK
    a = ((a ^ a >> 15) * 0x846CA68B) & MASK
    return a ^ a >> 16


def fold(history, ids):
    for i in ids:
        history = mix((history * 31 + i + 1) & MASK)
    return history


def logits(history):
    """In [-4,4), multiples of 1/512: exact in any float."""
    return [(mix((history + 0x9E3779B9 * (t + 1)) & MASK) >> 8) % 4096 / 512 - 4 for t in range(TARGETS)]


class Hashed(PreTrainedModel, GenerationMixin):
    config_class = PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.beams = 1
        self.post_init()

    def prepare_inputs_for_generation(self, input_ids, **rest):
        return {"input_ids": input_ids}

    def forward(self, input_ids, **rest):
        rows = [logits(fold(fold(0, SOURCES[r // self.beams]), ids)) for r, ids in enumerate(input_ids.tolist())]
        return CausalLMOutput(logits=torch.tensor(rows, dtype=torch.float32)[:, None, :])


def decode(case):
    config = PretrainedConfig(vocab_size=TARGETS, is_encoder_decoder=False)
    model = Hashed(config)
    model.beams = case["width"]
    ends = case["ends"]
    generation = GenerationConfig(
        num_beams=case["width"],
        num_return_sequences=case["best"],
        max_new_tokens=case["most"],
        length_penalty=case["length_penalty"],
        early_stopping={"likely": False, "first": True, "never": "never"}[case["early"]],
        eos_token_id=ends,
        pad_token_id=11,
        bos_token_id=START,
        do_sample=False,
        use_cache=False,
        forced_bos_token_id=case["forced_first"],
        forced_eos_token_id=case["forced_last"],
        bad_words_ids=[[i] for i in case["never"]] or None,
        return_dict_in_generate=True,
        output_scores=True,
    )
    out = model.generate(torch.full((len(SOURCES), 1), START), generation_config=generation)
    rows = out.sequences.tolist()
    scores = out.sequences_scores.tolist() if case["width"] > 1 else [None] * len(rows)
    results = []
    for row in rows:
        ids = row[1:]
        for i, t in enumerate(ids):
            if t in ends:
                ids = ids[: i + 1]
                break
        results.append(ids)
    return [{"ids": ids, "score": score} for ids, score in zip(results, scores)]


def main():
    cases = []
    for width, best in ((1, 1), (2, 1), (4, 4), (5, 3)):
        for early in ("likely", "first", "never"):
            for penalty in (1.0, 0.0, 2.0, -1.0):
                plain = {"ends": [2], "forced_first": None, "forced_last": None, "never": []}
                kinds = [plain]
                if penalty == 1.0:
                    kinds += [dict(plain, ends=[2, 7]), dict(plain, forced_last=2), dict(plain, forced_first=5, never=[11, 4])]
                for kind in kinds:
                    if width == 1 and (early, penalty) != ("likely", 1.0):
                        continue
                    case = dict(width=width, best=best, most=9, early=early, length_penalty=penalty, **kind)
                    case["results"] = decode(case)
                    cases.append(case)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json"), "w", encoding="utf-8") as stream:
        stream.write('{"start": %d, "targets": %d,\n "sources": %s,\n "cases": [\n' % (START, TARGETS, json.dumps(SOURCES)))
        stream.write(",\n".join("  " + json.dumps(case) for case in cases) + "\n]}\n")


main()
