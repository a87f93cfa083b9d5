#!/usr/bin/env python3
"""make.py: sets of translations with what sacreBLEU says of them, into cases.json beside this file: pip install sacrebleu==2.6.0."""

import json
import os
import random

from sacrebleu.metrics import BLEU, CHRF

VERSES = [
    "In the beginning God created the heaven and the earth.",
    "And the earth was without form, and void; and darkness was upon the face of the deep.",
    "And God said, Let there be light: and there was light.",
    "And God saw the light, that it was good: and God divided the light from the darkness.",
    "En el principio creó Dios los cielos y la tierra.",
    "Y la tierra estaba desordenada y vacía, y las tinieblas estaban sobre la haz del abismo.",
    "¿Dónde está la biblioteca? ¡Aquí, a 3,5 km de la plaza (más o menos)!",
    "Zwölf Boxkämpfer jagten Viktor quer über den großen Sylter Deich — für 1.000,50 €.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au-delà des îles…",
    "“Quotes” and ‘others’, state-of-the-art 10-year-old re-runs; 1-2-3, a/b, x&y, #7 @home 100%.",
    "漢字とひらがな、カタカナ。東京は日本の首都です。",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "آتزمون برلين نادر",
    "👩‍👩‍👧 went to the 🏖️ on 2024-02-29 at 7:05 p.m.",
]

# What the tokenisation "13a" and the cutting at white space meet seldom.
AWKWARD = [
    ("a..b...c", "a..b.. .c"),
    ("1.5 1. .5 1.a a.1 3,000,000.", "1.5 1. .5 1.a a.1 3.000.000,"),
    ("7-up x-7 7- -7 --7", "7-up x-7 7- -7 - -7"),
    ("<skipped>text <skipped", "text <skipped>"),
    ("&amp;lt; &quot;x&quot; &amp;amp; &gt;", "&lt; \"x\" &amp; >"),
    ("line-\nbreak and\nmore-\n", "linebreak and more-"),
    ("a\u00a0b\u3000c\u2028d\x1ce\u200bf", "a b c d e\u200bf"),
    ("tab\tand\x0bmore   \t ", "tab and more"),
    ("e\u0301 é ﬁ fi", "é e\u0301 fi ﬁ"),
    ("[x]{y}~z`w'v^u_t|s\\r", "[ x ] { y } ~ z ` w'v ^ u _ t | s \\ r"),
    ("(hi) \"quoted\", ... ! !!", "( hi ) \"quoted\" , …!"),
    ("\u0665.\u0666 ½,½", "\u0665 . \u0666 ½ , ½"),
    ("", "something"),
    ("something", ""),
    (" ", " "),
    ("x", "x"),
]


def damaged(sentence, pick):
    """The sentence with words left out, doubled, exchanged, cut."""
    out = []
    for word in sentence.split(" "):
        chance = pick.random()
        if chance < 0.10:
            continue
        out += [word, word] if chance < 0.15 else [word[:-1]] if chance < 0.22 else [pick.choice(sentence.split(" "))] if chance < 0.3 else [word]
    return " ".join(out)


def sets():
    pick = random.Random(3)
    yield "verses", [(damaged(v, pick), v) for v in VERSES for _ in range(6)]
    yield "awkward", AWKWARD
    yield "awkward, the other way", [(b, a) for a, b in AWKWARD]
    yield "equal", [(v, v) for v in VERSES]
    yield "short", [("a b", "a b"), ("c", "c d"), ("e f g", "e f")]
    yield "no four words", [("a b c", "a b c")]
    yield "nothing shared", [("alpha beta gamma delta epsilon", "uno dos tres cuatro cinco")]
    yield "one order without a match", [("a x b y c z d", "a q b r c s d")]
    yield "too short", [(v[: len(v) // 2], v) for v in VERSES]
    yield "repeated", [("the the the the the the the", "the cat is on the mat")]
    yield "dates", [("2024-02-29", "2024-02-29"), ("1987-11-03", "1987-11-30"), ("2001-01-01", "2001-10-01")]
    letters = "ab c"
    yield "random", [tuple("".join(pick.choice(letters) for _ in range(pick.randint(0, 40))) for _ in range(2)) for _ in range(60)]
    marks = "a1. ,-&;'é"
    yield "random marks", [tuple("".join(pick.choice(marks) for _ in range(pick.randint(0, 30))) for _ in range(2)) for _ in range(60)]
    wide = "aé.漢👍\u0301" + "".join(chr(c) for c in range(0x110000) if chr(c).isspace())
    yield "random characters", [tuple("".join(pick.choice(wide) for _ in range(pick.randint(0, 50))) for _ in range(2)) for _ in range(60)]


def case(name, pairs):
    hypotheses, references = [h for h, _ in pairs], [[r for _, r in pairs]]
    bleu, chrf, chrfpp = BLEU(), CHRF(), CHRF(word_order=2)
    b = bleu.corpus_score(hypotheses, references)
    return {
        "name": name,
        "hypotheses": hypotheses,
        "references": references[0],
        "bleu": b.score,
        "bleu_precisions": b.precisions,
        "bp": b.bp,
        "sys_len": b.sys_len,
        "ref_len": b.ref_len,
        "signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(hypotheses, references).score,
        "chrf_signature": str(chrf.get_signature()),
        "chrfpp": chrfpp.corpus_score(hypotheses, references).score,
        "chrfpp_signature": str(chrfpp.get_signature()),
    }


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json"), "w") as out:
    json.dump([case(name, pairs) for name, pairs in sets()], out, indent=0, ensure_ascii=False)
    out.write("\n")
