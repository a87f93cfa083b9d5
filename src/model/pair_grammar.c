/* pair_grammar.c: a small English–Spanish grammar whose translations and alignments are known.
 *
 * A sentence is drawn as a structure (who does what to whom, where) and said in both languages at once, so that every word knows which word it comes from. What it takes to say it in
 * Spanish: articles and adjectives that agree in gender and number, adjectives behind the noun but for a few, "el" before a feminine noun that begins with a stressed a, del and al, the
 * personal a, verbs that agree with a subject that may not be said, ser for what a thing is and estar for how and where it is. */
#include "pair_task.h"

/* ---- words ------------------------------------------------------------------------------------------------------------------------ */

typedef struct noun {
  const char *one, *many;            /* English */
  const char *uno, *muchos;          /* Spanish */
  bool feminine, person, stressed_a; /* stressed_a: begins with it, and is feminine */
} noun;

static const noun nouns[] = {
    {"cat", "cats", "gato", "gatos", false, false, false},
    {"dog", "dogs", "perro", "perros", false, false, false},
    {"horse", "horses", "caballo", "caballos", false, false, false},
    {"bird", "birds", "pájaro", "pájaros", false, false, false},
    {"eagle", "eagles", "águila", "águilas", true, false, true},
    {"house", "houses", "casa", "casas", true, false, false},
    {"door", "doors", "puerta", "puertas", true, false, false},
    {"table", "tables", "mesa", "mesas", true, false, false},
    {"key", "keys", "llave", "llaves", true, false, false},
    {"book", "books", "libro", "libros", false, false, false},
    {"letter", "letters", "carta", "cartas", true, false, false},
    {"song", "songs", "canción", "canciones", true, false, false},
    {"pencil", "pencils", "lápiz", "lápices", false, false, false},
    {"map", "maps", "mapa", "mapas", false, false, false},
    {"photo", "photos", "foto", "fotos", true, false, false},
    {"apple", "apples", "manzana", "manzanas", true, false, false},
    {"garden", "gardens", "jardín", "jardines", false, false, false},
    {"tree", "trees", "árbol", "árboles", false, false, false},
    {"flower", "flowers", "flor", "flores", true, false, false},
    {"city", "cities", "ciudad", "ciudades", true, false, false},
    {"street", "streets", "calle", "calles", true, false, false},
    {"school", "schools", "escuela", "escuelas", true, false, false},
    {"classroom", "classrooms", "aula", "aulas", true, false, true},
    {"river", "rivers", "río", "ríos", false, false, false},
    {"mountain", "mountains", "montaña", "montañas", true, false, false},
    {"boat", "boats", "barco", "barcos", false, false, false},
    {"car", "cars", "coche", "coches", false, false, false},
    {"girl", "girls", "niña", "niñas", true, true, false},
    {"boy", "boys", "niño", "niños", false, true, false},
    {"woman", "women", "mujer", "mujeres", true, true, false},
    {"man", "men", "hombre", "hombres", false, true, false},
    {"teacher", "teachers", "profesor", "profesores", false, true, false},
    {"doctor", "doctors", "médico", "médicos", false, true, false},
    {"friend", "friends", "amigo", "amigos", false, true, false},
};

/* The forms of what agrees: masculine and feminine of one, of many. */
typedef struct agreeing {
  const char *english, *form[2][2]; /* [many][feminine] */
} agreeing;

#define SAME(one, many)                                                                                                                    \
  {                                                                                                                                        \
    {one, one}, { many, many }                                                                                                             \
  }
#define ENDS_IN_O(stem)                                                                                                                    \
  {                                                                                                                                        \
    {stem "o", stem "a"}, { stem "os", stem "as" }                                                                                         \
  }

typedef struct adjective {
  agreeing word;
  bool before; /* the noun; its masculine of one is the short one */
  bool state;  /* how a thing is, with estar */
} adjective;

static const adjective adjectives[] = {
    {{"red", ENDS_IN_O("roj")}, false, false},
    {{"white", ENDS_IN_O("blanc")}, false, false},
    {{"black", ENDS_IN_O("negr")}, false, false},
    {{"yellow", ENDS_IN_O("amarill")}, false, false},
    {{"green", SAME("verde", "verdes")}, false, false},
    {{"blue", SAME("azul", "azules")}, false, false},
    {{"big", SAME("grande", "grandes")}, false, false},
    {{"small", ENDS_IN_O("pequeñ")}, false, false},
    {{"old", ENDS_IN_O("viej")}, false, false},
    {{"new", ENDS_IN_O("nuev")}, false, false},
    {{"pretty", ENDS_IN_O("bonit")}, false, false},
    {{"young", SAME("joven", "jóvenes")}, false, false},
    {{"strong", SAME("fuerte", "fuertes")}, false, false},
    {{"slow", ENDS_IN_O("lent")}, false, false},
    {{"tired", ENDS_IN_O("cansad")}, false, true},
    {{"clean", ENDS_IN_O("limpi")}, false, true},
    {{"dirty", ENDS_IN_O("suci")}, false, true},
    {{"happy", ENDS_IN_O("content")}, false, true},
    {{"good", {{"buen", "buena"}, {"buenos", "buenas"}}}, true, false},
    {{"bad", {{"mal", "mala"}, {"malos", "malas"}}}, true, false},
};

typedef enum number_of { ONE = 1, MANY = 2, ANY = ONE | MANY } number_of;

typedef struct determiner {
  const char *english[2]; /* of one, of many */
  agreeing spanish;
  number_of number;
  bool shortens; /* "la" and "una" become "el" and "un" before a stressed a */
} determiner;

static const determiner determiners[] = {
    {{"the", "the"}, {NULL, {{"el", "la"}, {"los", "las"}}}, ANY, true},
    {{"a", NULL}, {NULL, {{"un", "una"}, {NULL, NULL}}}, ONE, true},
    {{NULL, "some"}, {NULL, {{NULL, NULL}, {"unos", "unas"}}}, MANY, false},
    {{"this", "these"}, {NULL, {{"este", "esta"}, {"estos", "estas"}}}, ANY, false},
    {{"that", "those"}, {NULL, {{"ese", "esa"}, {"esos", "esas"}}}, ANY, false},
    {{"my", "my"}, {NULL, SAME("mi", "mis")}, ANY, false},
    {{"your", "your"}, {NULL, SAME("tu", "tus")}, ANY, false},
    {{"her", "her"}, {NULL, SAME("su", "sus")}, ANY, false},
    {{"our", "our"}, {NULL, ENDS_IN_O("nuestr")}, ANY, false},
    {{NULL, "two"}, {NULL, SAME(NULL, "dos")}, MANY, false},
    {{NULL, "three"}, {NULL, SAME(NULL, "tres")}, MANY, false},
    {{NULL, "many"}, {NULL, {{NULL, NULL}, {"muchos", "muchas"}}}, MANY, false},
    {{"every", NULL}, {NULL, SAME("cada", NULL)}, ONE, false},
};
enum { THE = 0, A = 1, SOME = 2 }; /* places of the articles */

/* Persons by which verbs agree. */
typedef enum person { I, YOU, HE, WE, THEY } person;

typedef struct verb {
  const char *base, *third, *particle; /* English; the particle stands behind */
  const char *spanish[5];              /* by person */
} verb;

static const verb transitive[] = {
    {"see", "sees", NULL, {"veo", "ves", "ve", "vemos", "ven"}},
    {"buy", "buys", NULL, {"compro", "compras", "compra", "compramos", "compran"}},
    {"find", "finds", NULL, {"encuentro", "encuentras", "encuentra", "encontramos", "encuentran"}},
    {"want", "wants", NULL, {"quiero", "quieres", "quiere", "queremos", "quieren"}},
    {"draw", "draws", NULL, {"dibujo", "dibujas", "dibuja", "dibujamos", "dibujan"}},
    {"lose", "loses", NULL, {"pierdo", "pierdes", "pierde", "perdemos", "pierden"}},
    {"follow", "follows", NULL, {"sigo", "sigues", "sigue", "seguimos", "siguen"}},
    {"carry", "carries", NULL, {"llevo", "llevas", "lleva", "llevamos", "llevan"}},
    {"hear", "hears", NULL, {"oigo", "oyes", "oye", "oímos", "oyen"}},
    {"look", "looks", "for", {"busco", "buscas", "busca", "buscamos", "buscan"}},
    {"remember", "remembers", NULL, {"recuerdo", "recuerdas", "recuerda", "recordamos", "recuerdan"}},
    {"paint", "paints", NULL, {"pinto", "pintas", "pinta", "pintamos", "pintan"}},
};

static const verb intransitive[] = {
    {"sleep", "sleeps", NULL, {"duermo", "duermes", "duerme", "dormimos", "duermen"}},
    {"run", "runs", NULL, {"corro", "corres", "corre", "corremos", "corren"}},
    {"sing", "sings", NULL, {"canto", "cantas", "canta", "cantamos", "cantan"}},
    {"walk", "walks", NULL, {"camino", "caminas", "camina", "caminamos", "caminan"}},
    {"work", "works", NULL, {"trabajo", "trabajas", "trabaja", "trabajamos", "trabajan"}},
    {"fall", "falls", NULL, {"caigo", "caes", "cae", "caemos", "caen"}},
    {"swim", "swims", NULL, {"nado", "nadas", "nada", "nadamos", "nadan"}},
    {"wait", "waits", NULL, {"espero", "esperas", "espera", "esperamos", "esperan"}},
    {"live", "lives", NULL, {"vivo", "vives", "vive", "vivimos", "viven"}},
};

static const char *const be[] = {"am", "are", "is", "are", "are"};
static const char *const ser[] = {"soy", "eres", "es", "somos", "son"}, *const estar[] = {"estoy", "estás", "está", "estamos", "están"};

typedef struct preposition {
  const char *english, *spanish[2]; /* the second may be "de", which may become del */
} preposition;

static const preposition prepositions[] = {
    {"in", {"en", NULL}},    {"near", {"cerca", "de"}},  {"under", {"debajo", "de"}}, {"behind", {"detrás", "de"}},
    {"with", {"con", NULL}}, {"without", {"sin", NULL}}, {"for", {"para", NULL}},
};
enum { PLACES = 4 }; /* the first of them */

static const char *const frequency[][3] = {{"often", "a", "menudo"}, {"always", "siempre", NULL}, {"never", "nunca", NULL}};
static const char *const at_the_end[][2] = {{"today", "hoy"}, {"here", "aquí"}, {"now", "ahora"}};

/* ---- saying ----------------------------------------------------------------------------------------------------------------------- */

/* Words of one language are written left to right; a translation may be decided before its place comes. */
typedef struct speech {
  hd_dice *d;
  hd_draft *out;
} speech;

static int32_t english(speech *s, const char *word) { return hd_write_word(&s->out->source, word); }

static int32_t spanish(speech *s, const char *word) { return hd_write_word(&s->out->target, word); }

static void sure(speech *s, int32_t source, int32_t target) { hd_link(s->out, source, target, false); }

static void possible(speech *s, int32_t source, int32_t target) { hd_link(s->out, source, target, true); }

static void both(speech *s, const char *source, const char *target) {
  const int32_t at = english(s, source);
  sure(s, at, spanish(s, target));
}

static bool chance(speech *s, double p) { return hd_uniform(s->d) < p; }

#define PICK(s, list) (&(list)[hd_roll((s)->d, HD_COUNT(list))])

/* ---- noun phrases ----------------------------------------------------------------------------------------------------------------- */

typedef struct phrase {
  const determiner *det;
  const adjective *adjective; /* NULL: none */
  bool very;                  /* the adjective is */
  const noun *noun;
  bool many;
} phrase;

static phrase draw_phrase(speech *s) {
  phrase p = {.noun = PICK(s, nouns), .many = chance(s, 0.4)};
  do p.det = chance(s, 0.5) ? &determiners[hd_roll(s->d, 2)] : PICK(s, determiners);
  while (!(p.det->number & (p.many ? MANY : ONE)));
  if (chance(s, 0.5)) p.adjective = PICK(s, adjectives);
  p.very = p.adjective && !p.adjective->before && chance(s, 0.15);
  return p;
}

/* What stands before a noun phrase in Spanish and may become one word with its article: "de" or "a"; NULL: nothing. With the English word that it translates, −1: none. */
typedef struct lead {
  const char *word;
  int32_t from;
} lead;

static bool begins_with_vowel(const char *word) { return strchr("aeiou", word[0]) != NULL; }

/* English, and where its words are. */
typedef struct places {
  int32_t det, very, adjective, noun;
} places;

static places say_english(speech *s, const phrase *p) {
  const char *noun = p->many ? p->noun->many : p->noun->one, *next = p->very ? "very" : p->adjective ? p->adjective->word.english : noun;
  const char *det = p->det->english[p->many];
  places at = {.very = -1, .adjective = -1};
  at.det = english(s, p->det == &determiners[A] && begins_with_vowel(next) ? "an" : det);
  if (p->very) at.very = english(s, "very");
  if (p->adjective) at.adjective = english(s, p->adjective->word.english);
  at.noun = english(s, noun);
  return at;
}

static const char *spanish_determiner(const phrase *p) {
  const bool next_is_noun = !(p->adjective && p->adjective->before);
  const bool feminine = p->noun->feminine && !(p->det->shortens && p->noun->stressed_a && next_is_noun && !p->many);
  return p->det->spanish.form[p->many][feminine];
}

static void say_lead_and_determiner(speech *s, const phrase *p, lead before, int32_t det) {
  const char *word = spanish_determiner(p);
  const bool joins = before.word && p->det == &determiners[THE] && !strcmp(word, "el");
  int32_t at;
  if (joins) {
    at = spanish(s, !strcmp(before.word, "de") ? "del" : "al");
    if (before.from >= 0) sure(s, before.from, at);
    sure(s, det, at);
    return;
  }
  if (before.word) {
    at = spanish(s, before.word);
    if (before.from >= 0) sure(s, before.from, at);
  }
  sure(s, det, spanish(s, word));
}

static void say_adjective(speech *s, const phrase *p, places at) {
  if (!p->adjective) return;
  if (p->very) sure(s, at.very, spanish(s, "muy"));
  sure(s, at.adjective, spanish(s, p->adjective->word.form[p->many][p->noun->feminine]));
}

static void say_spanish(speech *s, const phrase *p, lead before, places at) {
  const bool first = p->adjective && p->adjective->before;
  say_lead_and_determiner(s, p, before, at.det);
  if (first) say_adjective(s, p, at);
  sure(s, at.noun, spanish(s, p->many ? p->noun->muchos : p->noun->uno));
  if (!first) say_adjective(s, p, at);
}

static void say_phrase(speech *s, const phrase *p, lead before) { say_spanish(s, p, before, say_english(s, p)); }

static void say_preposition(speech *s, const preposition *p) {
  const phrase of = draw_phrase(s);
  const int32_t at = english(s, p->english);
  sure(s, at, spanish(s, p->spanish[0]));
  say_phrase(s, &of, (lead){p->spanish[1], at});
}

/* "of the old house", now and then. */
static void say_possessor(speech *s, double p) {
  if (!chance(s, p)) return;
  const phrase owner = draw_phrase(s);
  say_phrase(s, &owner, (lead){"de", english(s, "of")});
}

/* ---- subjects --------------------------------------------------------------------------------------------------------------------- */

typedef struct subject {
  person person;
  bool many, feminine;
  int32_t unsaid; /* the English word of a pronoun that Spanish leaves to the verb; −1: none */
} subject;

static subject say_pronoun(speech *s) {
  static const struct {
    const char *english, *spanish;
    subject as;
  } pronouns[] = {{"i", NULL, {I, false, false, -1}},         {"we", NULL, {WE, true, false, -1}},
                  {"he", "él", {HE, false, false, -1}},       {"she", "ella", {HE, false, true, -1}},
                  {"they", "ellos", {THEY, true, false, -1}}, {"you", NULL, {YOU, false, false, -1}}};
  const int64_t i = hd_roll(s->d, HD_COUNT(pronouns));
  subject as = pronouns[i].as;
  const int32_t at = english(s, pronouns[i].english);
  if (pronouns[i].spanish) sure(s, at, spanish(s, pronouns[i].spanish));
  else as.unsaid = at;
  return as;
}

static subject say_subject(speech *s) {
  if (chance(s, 0.25)) return say_pronoun(s);
  const phrase first = draw_phrase(s);
  subject as = {first.many ? THEY : HE, first.many, first.noun->feminine, -1};
  say_phrase(s, &first, (lead){NULL, -1});
  if (!chance(s, 0.15)) {
    say_possessor(s, 0.15);
    return as;
  }
  const phrase second = draw_phrase(s);
  both(s, "and", "y");
  say_phrase(s, &second, (lead){NULL, -1});
  return (subject){THEY, true, first.noun->feminine && second.noun->feminine, -1};
}

/* ---- predicates ------------------------------------------------------------------------------------------------------------------- */

/* What the subject's pronoun says is in the verb. */
static int32_t say_spanish_verb(speech *s, const subject *who, const char *word) {
  const int32_t at = spanish(s, word);
  if (who->unsaid >= 0) sure(s, who->unsaid, at);
  return at;
}

static void say_verb(speech *s, const subject *who, const verb *v) {
  const bool third = who->person == HE;
  const char *word = v->spanish[who->person];
  int32_t helper = -1, at, target;
  if (chance(s, 0.2)) {
    helper = english(s, third ? "does" : "do");
    both(s, "not", "no");
    at = english(s, v->base);
  } else {
    if (chance(s, 0.2)) {
      const char *const *adverb = frequency[hd_roll(s->d, HD_COUNT(frequency))];
      const int32_t from = english(s, adverb[0]);
      for (int i = 1; i < 3 && adverb[i]; i++) sure(s, from, spanish(s, adverb[i]));
    }
    at = english(s, third ? v->third : v->base);
  }
  target = say_spanish_verb(s, who, word);
  sure(s, at, target);
  if (helper >= 0) possible(s, helper, target);
  if (v->particle) sure(s, english(s, v->particle), target);
}

static void say_be(speech *s, const subject *who, bool state) {
  const int32_t at = english(s, be[who->person]);
  if (chance(s, 0.15)) both(s, "not", "no");
  sure(s, at, say_spanish_verb(s, who, (state ? estar : ser)[who->person]));
}

static void say_object(speech *s) {
  const phrase object = draw_phrase(s);
  say_phrase(s, &object, (lead){object.noun->person ? "a" : NULL, -1});
  say_possessor(s, 0.2);
}

static void do_something(speech *s, const subject *who) {
  say_verb(s, who, PICK(s, transitive));
  say_object(s);
  if (chance(s, 0.3)) say_preposition(s, PICK(s, prepositions));
}

static void just_do(speech *s, const subject *who) {
  say_verb(s, who, PICK(s, intransitive));
  if (chance(s, 0.6)) say_preposition(s, PICK(s, prepositions));
}

static void be_somehow(speech *s, const subject *who) {
  const adjective *a;
  do a = PICK(s, adjectives);
  while (a->before);
  say_be(s, who, a->state);
  if (chance(s, 0.3)) both(s, "very", "muy");
  both(s, a->word.english, a->word.form[who->many][who->feminine]);
}

static void be_somewhere(speech *s, const subject *who) {
  say_be(s, who, true);
  say_preposition(s, &prepositions[hd_roll(s->d, PLACES)]);
}

/* "there is a cat in the garden". */
static void there_is(speech *s) {
  phrase what;
  do what = draw_phrase(s);
  while (what.det != &determiners[A] && what.det != &determiners[SOME]);
  const int32_t there = english(s, "there"), is = english(s, what.many ? "are" : "is"), hay = spanish(s, "hay");
  sure(s, there, hay);
  sure(s, is, hay);
  say_phrase(s, &what, (lead){NULL, -1});
  say_preposition(s, &prepositions[hd_roll(s->d, PLACES)]);
}

static void make_sentence(const heed_pair_task *task, hd_dice *d, hd_draft *out) {
  (void)task;
  static void (*const predicates[])(speech * s, const subject *who) = {do_something, do_something, just_do, be_somehow, be_somewhere};
  speech s = {d, out};
  if (chance(&s, 0.1)) there_is(&s);
  else {
    const subject who = say_subject(&s);
    predicates[hd_roll(d, HD_COUNT(predicates))](&s, &who);
  }
  if (chance(&s, 0.15)) {
    const char *const *end = at_the_end[hd_roll(d, HD_COUNT(at_the_end))];
    both(&s, end[0], end[1]);
  }
  memcpy(out->question, out->source.text, (size_t)out->source.length + 1);
}

const hd_pair_kind hd_pair_grammar = {"grammar", "word", 0, 0, 0, false, make_sentence};
