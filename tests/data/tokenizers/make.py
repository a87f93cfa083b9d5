#!/usr/bin/env python3
"""tests/data/tokenizers/make.py: trains the small tokenizers of this folder and asks the reference implementation for the ids of awkward texts.

Needs the Python package tokenizers (written with 0.23.3). NAME.json is a tokenizer, NAME.expected.json a list of {"text", "ids"} with special tokens parsed and
added. The vocabularies are tiny; what is tested is how text is cut, normalised, merged and framed."""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent

PROSE = """The river had been low all summer, and the children walked across it without wetting their knees. "It won't last," said
the miller; he'd seen it rise in one night. They didn't believe him, they'll say so still, and I'm not sure you're wiser than they've been. On the
12th of August 1907, at 10:45, it rained: 300 millimetres in 24 hours, 1000000 drops a second. The bridge went first, then the mill, then the road.
    def f(x):
        return x ** 2  # as fast as it gets

Zürich, café, naïve, Ωmega, señor, crème brûlée. привет мир, как дела. 日本語のテキスト と 中文字符. नमस्ते दुनिया. 🙂 👩‍👩‍👧
"""

AWKWARD = [
    "Hello world", " leading", "  two  spaces   three", "trailing ", "", "x", "tabs\tand\nnew\n\nlines\r\n", "don't we'll I'M you're it's 'ſ I'LL 'Re",
    "3.14159 1000000 12 345 6789 ١٢٣ ½ ² Ⅷ", "naïve café Zürich Ωmega ﬁ", "日本語のテキスト と 中文", "emoji 👩‍👩‍👧 🙂🏽 flags 🇫🇷",
    "a\u0301 combining \u200b zero\u00a0nbsp", "mongolian \u180e \u180e\u180e x", "next line \u0085 and \u2028 separators\u2029", "\ud7ff\x00null",
    "a\u2581b \u2581\u2581 c", "\u2581", "    def f(x):\n        return x**2  # ok\n\n\n    pass", "a \n b\n\n \n c", "!!!\n\n??? ...\r\n\r\n",
    "\u3000ideographic\u3000 space", "\x1c\x1d\x1e\x1f controls", "word" * 30, " " * 60, "\n" * 30, " \n" * 20, "'s't're've'm'll'd", "_under_score__ a_b",
    "İstanbul ſtraße ẞ", "\ufeffmark", "नमस्ते दुनिया", "ก็ภาษาไทย", "\u1112\u1161\u11ab 한", "The miller said it's 1907.",
    "<|im_start|>user\nhi<|im_end|>\n", "a <mask> b  <mask>", "<tool_call>{}", "x<pad>  y", "<pad>x", "<|im_start", "<s>inside</s> <unk>",
]

POOLS = ["abcdefghijklmnopqrstuvwxyzABC", "0123456789", "  \t\n\r", "'.,!?-_#$%\"()", "éüßñçøåÉ", "日本語中文字テキ", "\u00a0\u2003\u3000\u0085\u200b\u180e\u2028", "🙂👩🏽\u200d🇫",
         "\u0301\u0308\u093f", "½²Ⅷ١٢", "\u1e9b\u0323\ufb01\u2126\u212b"]

GPT2_LATER = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def texts(seed):
    source = random.Random(seed)
    found = list(AWKWARD)
    for _ in range(40):
        text = ""
        while len(text) < 30:
            pool = source.choice(POOLS)
            text += "".join(source.choice(pool) for _ in range(source.randrange(1, 5)))
        found.append(text)
    return found


def save(name, tokenizer):
    (HERE / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in texts(name)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / f"{name}.expected.json").write_text(f"[\n{lines}\n]\n")


def visible(byte):
    """GPT-2's spelling of a byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return chr(byte if byte in shown else 0x100 + sum(other not in shown for other in range(byte)))


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(name, cuts, own_regex=False, normalizer=None, added=(), bos=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_regex)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([PROSE] + AWKWARD, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False))
    tokenizer.add_tokens(list(added))
    if bos:
        frame = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), frame])
    save(name, tokenizer)


def sentencepiece(name, decoder, normalizer=None, pre_tokenizer=None, bytes_too=True, fuse=True):
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if bytes_too else [])
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=bytes_too, fuse_unk=fuse))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.train_from_iterator([PROSE], trainers.BpeTrainer(vocab_size=len(specials) + 180, special_tokens=specials, limit_alphabet=70,
                                                               show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if not token["content"].startswith("<0x")]
    document["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(document))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    save(name, tokenizer)


def trained():
    """What heed must make of one text by itself: trained.txt → trained-char, -byte, -bpe."""
    text = PROSE + "\n".join(AWKWARD).replace("\0", "")
    (HERE / "trained.txt").write_text(text, newline="")
    char = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(sorted(set(text)))}, merges=[]))
    char.decoder = decoders.Fuse()
    byte = Tokenizer(models.BPE(vocab={visible(i): i for i in range(256)}, merges=[]))
    byte.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    byte.decoder = decoders.ByteLevel()
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator([text], trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    for name, tokenizer in (("char", char), ("byte", byte), ("bpe", bpe)):
        save(f"trained-{name}", tokenizer)


trained()
byte_level("gpt2", [], own_regex=True)
byte_level("smollm", [pre_tokenizers.Digits(individual_digits=True)], own_regex=True)
byte_level("llama3", [split(GPT2_LATER.replace("DIGITS", r"\p{N}{1,3}"))], bos="<|endoftext|>", ignore_merges=True)
byte_level("qwen2", [split(GPT2_LATER.replace("DIGITS", r"\p{N}"))], normalizer=normalizers.NFC(),
           added=[AddedToken("<tool_call>", special=False), AddedToken("<mask>", lstrip=True, special=True), AddedToken("<pad>", rstrip=True, special=True)])
byte_level("other_pattern", [split(r"[^\s\p{L}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lo}\p{M}]+|^\s+|\p{N}{1,2}|\S|\s+$|\s", "removed", True)])
sentencepiece("llama2", normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
              decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
sentencepiece("metaspace", pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always", split=True), decoder=decoders.Metaspace(prepend_scheme="always"),
              bytes_too=False, fuse=False)


def wordpiece(name, frame, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator([PROSE], trainers.WordPieceTrainer(vocab_size=220, limit_alphabet=90, show_progress=False,
                                                                     special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tokenizer.post_processor = frame
    save(name, tokenizer)


wordpiece("bert-uncased", processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]), lowercase=True)
wordpiece("bert-cased", processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), lowercase=False, handle_chinese_chars=False)
wordpiece("bert-accents", processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), lowercase=True, strip_accents=False, clean_text=False)

vocabulary = json.loads((HERE / "bert-uncased.json").read_text())["model"]["vocab"]
(HERE / "bert-vocabulary").mkdir(exist_ok=True)
(HERE / "bert-vocabulary" / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.get)))
