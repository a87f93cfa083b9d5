#!/usr/bin/env python3
"""cli_pairs.py: tasks of pairs from outside, each held to rules of its own: numbers are counted out by another way of speaking them, dates are read by a parser that knows nothing of styles,
Spanish sentences are checked for agreement word by word, by a dictionary that is written here a second time."""

import datetime
import json
import re
import unittest

from cli_case import Case, USAGE

PAIR_TASKS = "dates|numbers|reverse|double|grammar"

# ---- numbers ------------------------------------------------------------------------------------------------------------------

ENGLISH = {0: "zero", 1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve",
           13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty", 30: "thirty", 40: "forty",
           50: "fifty", 60: "sixty", 70: "seventy", 80: "eighty", 90: "ninety"}
SPANISH = {"cero": 0, "un": 1, "uno": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10, "once": 11, "doce": 12,
           "trece": 13, "catorce": 14, "quince": 15, "dieciséis": 16, "diecisiete": 17, "dieciocho": 18, "diecinueve": 19, "veinte": 20, "veintiún": 21, "veintiuno": 21,
           "veintidós": 22, "veintitrés": 23, "veinticuatro": 24, "veinticinco": 25, "veintiséis": 26, "veintisiete": 27, "veintiocho": 28, "veintinueve": 29,
           "treinta": 30, "cuarenta": 40, "cincuenta": 50, "sesenta": 60, "setenta": 70, "ochenta": 80, "noventa": 90, "cien": 100, "ciento": 100, "doscientos": 200,
           "trescientos": 300, "cuatrocientos": 400, "quinientos": 500, "seiscientos": 600, "setecientos": 700, "ochocientos": 800, "novecientos": 900}

# As the Real Academia Española writes them.
KNOWN = {
    "en 0": "zero", "en 7": "seven", "en 13": "thirteen", "en 40": "forty", "en 85": "eighty-five", "en 90": "ninety",
    "es 0": "cero", "es 1": "uno", "es 16": "dieciséis", "es 21": "veintiuno", "es 22": "veintidós", "es 23": "veintitrés", "es 26": "veintiséis", "es 30": "treinta",
    "es 31": "treinta y uno", "es 99": "noventa y nueve",
}


def english(n):
    """The words of a number, from the right."""
    if n < 20 or n < 100 and n % 10 == 0:
        return ENGLISH[n]
    if n < 100:
        return f"{ENGLISH[n - n % 10]}-{ENGLISH[n % 10]}"
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if n >= size:
            return f"{english(n // size)} {name}" + (f" {english(n % size)}" if n % size else "")


def spanish_value(words):
    """What Spanish words add up to, read from the left."""
    total = part = group = 0
    for word in words.split():
        if word == "mil":
            part += max(group, 1) * 1000
            group = 0
        elif word in ("millón", "millones"):
            total += (part + group) * 10**6
            part = group = 0
        elif word != "y":
            group += SPANISH[word]
    return total + part + group


# ---- dates ----------------------------------------------------------------------------------------------------------------------

# Of each language: months and weekdays, in full and shortened, and the words that say nothing.
LANGUAGES = [[part.split() for part in language] for language in (
    ("january february march april may june july august september october november december", "jan feb mar apr may jun jul aug sep oct nov dec",
     "monday tuesday wednesday thursday friday saturday sunday", "mon tue wed thu fri sat sun", "the of st nd rd th"),
    ("januar februar märz april mai juni juli august september oktober november dezember", "jan feb märz apr mai juni juli aug sept okt nov dez",
     "montag dienstag mittwoch donnerstag freitag samstag sonntag", "mo di mi do fr sa so", "am den dem der"),
    ("janvier février mars avril mai juin juillet août septembre octobre novembre décembre", "janv févr mars avr mai juin juil août sept oct nov déc",
     "lundi mardi mercredi jeudi vendredi samedi dimanche", "lun mar mer jeu ven sam dim", "le en date du er"),
    ("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre", "ene feb mar abr may jun jul ago sept oct nov dic",
     "lunes martes miércoles jueves viernes sábado domingo", "lun mar mié jue vie sáb dom", "a de del el"),
)]


def readings(text):
    """The dates that a text may mean in some language: with a name of a month, whose other words are the right weekday or say nothing; or numbers alone, day before month."""
    words, numbers = re.findall(r"[^\W\d_]+", text.lower()), [int(n) for n in re.findall(r"\d+", text)]
    year = next(n for n in numbers if n > 31)
    if len(numbers) == 3:
        return {datetime.date(year, *(numbers[1:] if numbers[0] == year else numbers[1::-1]))}
    day, found = next(n for n in numbers if n <= 31), set()
    for months, short_months, weekdays, short_weekdays, fillers in LANGUAGES:
        for place, name in enumerate(words):
            if name not in months + short_months:
                continue
            date = datetime.date(year, (months.index(name) if name in months else short_months.index(name)) + 1, day)
            others = words[:place] + words[place + 1 :]
            if all(w in fillers or w in (weekdays[date.weekday()], short_weekdays[date.weekday()]) for w in others):
                found.add(date)
    return found


# ---- grammar ----------------------------------------------------------------------------------------------------------------------

FEMININE = "águila casa puerta mesa llave carta canción foto manzana flor ciudad calle escuela aula montaña niña mujer"
MASCULINE = "gato perro caballo pájaro libro lápiz mapa jardín árbol río barco coche niño hombre profesor médico amigo"
PEOPLE = "niña mujer niño hombre profesor médico amigo"
NOUNS = {"cat": "gato", "dog": "perro", "horse": "caballo", "bird": "pájaro", "eagle": "águila", "house": "casa", "door": "puerta", "table": "mesa", "key": "llave",
         "book": "libro", "letter": "carta", "song": "canción", "pencil": "lápiz", "map": "mapa", "photo": "foto", "apple": "manzana", "garden": "jardín", "tree": "árbol",
         "flower": "flor", "city": "ciudad", "street": "calle", "school": "escuela", "classroom": "aula", "river": "río", "mountain": "montaña", "boat": "barco",
         "car": "coche", "girl": "niña", "boy": "niño", "woman": "mujer", "man": "hombre", "teacher": "profesor", "doctor": "médico", "friend": "amigo"}
ADJECTIVES = {"red": "rojo", "white": "blanco", "black": "negro", "yellow": "amarillo", "green": "verde", "blue": "azul", "big": "grande", "small": "pequeño", "old": "viejo",
              "new": "nuevo", "pretty": "bonito", "young": "joven", "strong": "fuerte", "slow": "lento", "tired": "cansado", "clean": "limpio", "dirty": "sucio",
              "happy": "contento", "good": "bueno", "bad": "malo"}
VERBS = {"see": "veo ves ve vemos ven", "buy": "compro compras compra compramos compran", "find": "encuentro encuentras encuentra encontramos encuentran",
         "want": "quiero quieres quiere queremos quieren", "draw": "dibujo dibujas dibuja dibujamos dibujan", "lose": "pierdo pierdes pierde perdemos pierden",
         "follow": "sigo sigues sigue seguimos siguen", "carry": "llevo llevas lleva llevamos llevan", "hear": "oigo oyes oye oímos oyen",
         "look": "busco buscas busca buscamos buscan", "remember": "recuerdo recuerdas recuerda recordamos recuerdan", "paint": "pinto pintas pinta pintamos pintan",
         "sleep": "duermo duermes duerme dormimos duermen", "run": "corro corres corre corremos corren", "sing": "canto cantas canta cantamos cantan",
         "walk": "camino caminas camina caminamos caminan", "work": "trabajo trabajas trabaja trabajamos trabajan", "fall": "caigo caes cae caemos caen",
         "swim": "nado nadas nada nadamos nadan", "wait": "espero esperas espera esperamos esperan", "live": "vivo vives vive vivimos viven"}
TRANSITIVE = "see buy find want draw lose follow carry hear look remember paint".split()
SER, ESTAR = "soy eres es somos son".split(), "estoy estás está estamos están".split()
STATES = "cansado limpio sucio contento".split()
# Determiners: masculine and feminine of one, of many; "" has none.
DETERMINERS = {"the": "el la los las", "a": "un una", "an": "un una", "some": "unos unas", "this": "este esta", "these": "estos estas", "that": "ese esa", "those": "esos esas",
               "my": "mi mis", "your": "tu tus", "her": "su sus", "our": "nuestro nuestra nuestros nuestras", "two": "dos", "three": "tres", "many": "muchos muchas",
               "every": "cada"}
SINGULAR, PLURAL = "el la un una este esta ese esa mi tu su nuestro nuestra cada del al".split(), "los las unos unas estos estas esos esas mis tus sus nuestros nuestras dos tres muchos muchas".split()
MALE, FEMALE = "el un este ese nuestro los unos estos esos nuestros muchos del al".split(), "la una esta esa nuestra las unas estas esas nuestras muchas".split()
OTHERS = {("and", "y"), ("not", "no"), ("very", "muy"), ("in", "en"), ("near", "cerca"), ("near", "de"), ("under", "debajo"), ("under", "de"), ("behind", "detrás"),
          ("behind", "de"), ("with", "con"), ("without", "sin"), ("for", "para"), ("of", "de"), ("of", "del"), ("near", "del"), ("under", "del"), ("behind", "del"),
          ("the", "del"), ("the", "al"), ("often", "a"), ("often", "menudo"), ("always", "siempre"), ("never", "nunca"), ("today", "hoy"), ("here", "aquí"),
          ("now", "ahora"), ("he", "él"), ("she", "ella"), ("they", "ellos"), ("there", "hay"), ("is", "hay"), ("are", "hay")}


def singular(noun):
    """A Spanish noun of one, and whether it was of many."""
    every = f"{FEMININE} {MASCULINE}".split()
    for one in every:
        if noun == one:
            return one, False
        plural = {"canción": "canciones", "lápiz": "lápices", "jardín": "jardines"}.get(one, one + ("s" if one[-1] in "aeo" else "es"))
        if noun == plural:
            return one, True
    return None, None


def agreed(adjective, feminine, many, before):
    """The form of an adjective that is named by its masculine of one."""
    if adjective in ("bueno", "malo"):
        if not before:
            return None
        if not feminine and not many:
            return adjective[:-1]
    stem = adjective[:-1] + "a" if adjective[-1] == "o" and feminine else adjective
    stem = {"joven": "jóven"}.get(stem, stem) if many else stem
    return stem + ("" if not many else "s" if stem[-1] in "aeo" else "es")


def english_singular(noun):
    return {"women": "woman", "men": "man", "cities": "city", "many": "many"}.get(noun, noun if noun in NOUNS else noun[:-1])


def base(verb):
    return {"carries": "carry"}.get(verb, verb if verb in VERBS else verb[:-1])


class Grammar(Case):
    def check(self, source, target, links):
        english_words, spanish_words = source.split(), target.split()
        sure = [(link["source"], link["target"]) for link in links if not link["possible"]]
        self.assertEqual(len(set(sure)), len(sure))
        for i, j in sure:
            self.assertTrue(self.translate(english_words[i], spanish_words[j]), (english_words[i], spanish_words[j]))
        linked_source = {i for i, _ in sure} | {link["source"] for link in links}
        self.assertEqual(linked_source, set(range(len(english_words))))
        unlinked = [w for j, w in enumerate(spanish_words) if j not in {t for _, t in sure}]
        self.assertTrue(all(w == "a" for w in unlinked), unlinked)
        self.check_nouns(english_words, spanish_words, sure)
        self.check_contractions(target)

    def translate(self, word, spanish):
        if (word, spanish) in OTHERS or spanish in DETERMINERS.get(word, "").split():
            return True
        if singular(spanish)[0]:
            return NOUNS.get(english_singular(word)) == singular(spanish)[0]
        if word in ADJECTIVES:
            return spanish in [agreed(ADJECTIVES[word], f, m, b) for f in (0, 1) for m in (0, 1) for b in (0, 1)]
        if word in ("am", "is", "are"):
            return spanish in SER + ESTAR
        if word in ("i", "you", "we"):
            person = {"i": 0, "you": 1, "we": 3}[word]
            return spanish in [forms.split()[person] for forms in VERBS.values()] + [SER[person], ESTAR[person]]
        if word == "for":
            return spanish in VERBS["look"].split()
        return spanish in VERBS[base(word)].split()

    def check_nouns(self, english_words, spanish_words, sure):
        """Number, gender, place: of each noun with what stands around it."""
        for i, j in sure:
            one, many = singular(spanish_words[j])
            if not one:
                continue
            self.assertEqual(many, english_words[i] != english_singular(english_words[i]))
            feminine = one in FEMININE.split()
            first = j - 1
            if spanish_words[first] in ("buen", "buena", "buenos", "buenas", "mal", "mala", "malos", "malas"):
                self.assertIn(spanish_words[first], (agreed("bueno", feminine, many, True), agreed("malo", feminine, many, True)))
                first -= 1
            determiner = spanish_words[first]
            self.assertIn(determiner, PLURAL if many else SINGULAR, spanish_words)
            if one in ("águila", "aula") and not many and first == j - 1 and determiner in ("el", "un", "la", "una", "del"):
                self.assertIn(determiner, ("el", "un", "del"))
            elif determiner in MALE + FEMALE:
                self.assertIn(determiner, FEMALE if feminine else MALE, spanish_words)
            behind = j + 1 + (j + 1 < len(spanish_words) and spanish_words[j + 1] == "muy")
            is_behind = [a for a, b in sure if b == behind and english_words[a] in ADJECTIVES and a == i - 1]
            for a in is_behind:
                self.assertEqual(spanish_words[behind], agreed(ADJECTIVES[english_words[a]], feminine, many, False))
            if i and english_words[i - 1] in ADJECTIVES and not is_behind:
                self.assertIn(english_words[i - 1], ("good", "bad"))

    def check_contractions(self, target):
        for wrong in (" de el ", " a el ", " y y "):
            self.assertNotIn(wrong, f" {target} ")

    def check_verb(self, source, target, links):
        """The verb agrees with the subject, ser and estar are where they belong, and people that something is done to have their a."""
        words, spanish = source.split(), target.split()
        sure = {(link["source"], link["target"]) for link in links if not link["possible"]}
        verb = next((i for i, w in enumerate(words) if base(w) in VERBS or w in ("am", "is", "are")), None)
        at = next(j for i, j in sorted(sure) if i == verb)
        if words[0] == "there":
            return
        pronouns = {"i": 0, "you": 1, "he": 2, "she": 2, "we": 3, "they": 4}
        subject = words[: verb - 2 if words[verb - 1] == "not" and words[verb - 2] in ("do", "does") else verb]
        if words[0] in pronouns:
            person, feminine, many = pronouns[words[0]], words[0] == "she", words[0] in ("we", "they")
        else:
            # "of" opens a possessor, which is no subject; "and" makes two.
            heads = []
            for i, w in enumerate(subject):
                if english_singular(w) in NOUNS and "of" not in subject[max(0, i - 4) : i]:
                    heads.append(w)
            many = len(heads) > 1 or heads[0] != english_singular(heads[0])
            feminine = all(NOUNS[english_singular(h)] in FEMININE.split() for h in heads)
            person = 4 if many else 2
        if words[verb] in ("am", "is", "are"):
            after = next(w for w in words[verb + 1 :] if w not in ("not", "very"))
            how = ADJECTIVES.get(after)
            self.assertEqual(spanish[at], (SER if how and how not in STATES else ESTAR)[person], (source, target))
            if how:
                said = next(j for i, j in sure if words[i] == after and i > verb)
                self.assertEqual(spanish[said], agreed(how, feminine, many, False), (source, target))
        else:
            self.assertEqual(spanish[at], VERBS[base(words[verb])].split()[person], (source, target))
            if base(words[verb]) in TRANSITIVE:
                heads = [w for w in words[verb + 1 :] if english_singular(w) in NOUNS]
                person_is_object = NOUNS[english_singular(heads[0])] in PEOPLE.split()
                self.assertEqual(spanish[at + 1] in ("a", "al"), person_is_object, (source, target))

    def test_rules(self):
        pairs = json.loads(self.prints("pairs", "grammar", "-n", "6000", "--links", "--json", "--seed", "4"))
        seen = set()
        for pair in pairs:
            with self.subTest(pair["source"]):
                self.check(pair["source"], pair["target"], pair["links"])
                self.check_verb(pair["source"], pair["target"], pair["links"])
            seen |= set(pair["source"].split())
        self.assertTrue(set(NOUNS) | set(ADJECTIVES) | set(VERBS) | set(DETERMINERS) <= seen)
        one = {}
        for pair in pairs:
            self.assertEqual(one.setdefault(pair["source"], pair["target"]), pair["target"])  # a sentence has one translation


class Others(Case):
    def pairs(self, *arguments):
        return [line.split("\t") for line in self.prints("pairs", *arguments).splitlines()]

    def test_numbers(self):
        """English is what another way of speaking gives; Spanish adds up to the number, and each number has one way to say it."""
        known, said = dict(KNOWN), {}
        for digits in ("2", "6", "12"):
            for source, target in self.pairs("numbers", "-n", "20000", "--digits", digits):
                language, n = source.split()
                self.assertEqual(known.pop(source, target), target)
                if language == "en":
                    self.assertEqual(target, english(int(n)))
                else:
                    self.assertEqual(spanish_value(target), int(n), target)
                    self.assertEqual(said.setdefault(target, n), n)
                    self.check_spanish(target)
        self.assertEqual(known, {})

    def check_spanish(self, words):
        """What adding up does not see: shortened forms, y, and how a thousand and a hundred are said."""
        self.assertNotRegex(words, r"\b(uno|veintiuno) mil")
        self.assertNotRegex(words, r"(^|millón |millones )un mil\b")  # mil, not un mil
        self.assertNotRegex(words, r"\b(un|veintiún)$")
        self.assertNotRegex(words, r"\bciento( (mil|millón|millones)\b|$)")
        self.assertNotRegex(words, r"\bcien (?!mil\b|millones\b)")
        self.assertNotRegex(words, r"^un millones|^(?!un ).* millón\b")
        tens = "treinta|cuarenta|cincuenta|sesenta|setenta|ochenta|noventa"
        for before, after in re.findall(r"(\S+) y (\S+)", words):
            self.assertRegex(before, f"^({tens})$")
            self.assertRegex(after, "^(un|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve)$")
        self.assertNotRegex(words, rf"\b({tens}) (un|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve)\b")

    def test_dates(self):
        styles = set()
        for source, target in self.pairs("dates", "-n", "8000"):
            self.assertIn(datetime.date.fromisoformat(target), readings(source), source)
            self.assertEqual(len(readings(source)), 1, source)
            styles.add(re.sub(r"\d+(st|nd|rd|th|er)?", "0", re.sub(r"[^\W\d]{3,}\.?", "W", source)))
        self.assertGreater(len(styles), 24)
        years = {target[:4] for _, target in self.pairs("dates", "-n", "8000")}
        self.assertEqual((min(years), max(years), len(years)), ("1900", "2099", 200))

    def test_links_of_dates(self):
        for pair in json.loads(self.prints("pairs", "dates", "-n", "2000", "--links", "--json")):
            source, target = pair["source"], pair["target"]
            sure = [(link["source"], link["target"]) for link in pair["links"] if not link["possible"]]
            for i, j in sure:
                self.assertEqual(source[i], target[j], pair)
            year = source.index(target[:4])
            self.assertTrue({(year + k, k) for k in range(4)} <= set(sure), pair)
            self.assertIn(9, [j for _, j in sure])
            for link in pair["links"]:
                self.assertNotIn(target[link["target"]], "-")
                self.assertTrue(not link["possible"] or link["target"] in (5, 6, 8), pair)

    def test_columns(self):
        self.assertEqual(self.pairs("reverse", "-n", "2", "--letters", "3", "--least-letters", "3", "--symbols", "1", "--links"), [["aaa", "aaa", "2-0 1-1 0-2"]] * 2)
        self.assertEqual(self.pairs("double", "-n", "1", "--letters", "2", "--least-letters", "2", "--symbols", "1", "--links"), [["aa", "aaaa", "0-0 1-1 0-2 1-3"]])
        self.assertTrue(all(line[2] == "" for line in self.pairs("numbers", "--links")))
        self.assertEqual(self.prints("pairs", "dates", "-n", "0"), "")
        self.assertEqual(self.pairs("dates"), self.pairs("dates", "--seed", "0"))
        self.assertNotEqual(self.pairs("dates"), self.pairs("dates", "--seed", "1"))
        shown, held_out = ({target for _, target in self.pairs("dates", "-n", "3000", *more)} for more in ([], ["--held-out"]))
        self.assertFalse(shown & held_out)

    def test_refusals(self):
        for fragments, arguments in (
            (("TASK",), ()),
            (("tasks", PAIR_TASKS), ("tasks",)),
            (("--letters", "dates has no use"), ("dates", "--letters", "3")),
            (("--digits", "reverse has no use"), ("reverse", "--digits", "3")),
            (("--digits", "13"), ("numbers", "--digits", "13")),
            (("--least-letters", "9 and 8"), ("double", "--letters", "8", "--least-letters", "9")),
        ):
            self.refuses(USAGE, fragments, "pairs", *arguments)


if __name__ == "__main__":
    unittest.main()
