/* pair_numbers.c: whole numbers in words, English (without "and") and Spanish as the academies write it (Ortografía 2010): up to thirty in one word, "uno" shortened before "mil" and "millón"
 * (veintiún, treinta y un), "cien" alone and before them, "ciento" before what is less. */
#include "pair_task.h"

enum { FEW = 100 }; /* numbers below are never held out: the others are made of them */

typedef void speak_fn(hd_side *to, int64_t n);

static void say(hd_side *to, const char *word) {
  if (to->length > 0) hd_write(to, " ");
  hd_write(to, word);
}

/* ---- English --------------------------------------------------------------------------------------------------------------------- */

static const char *const english_small[] = {"zero",     "one",     "two",     "three",     "four",     "five",    "six",
                                            "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
                                            "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
static const char *const english_tens[] = {"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};

static void english_below_thousand(hd_side *to, int64_t n) {
  if (n >= 100) {
    say(to, english_small[n / 100]);
    say(to, "hundred");
    n %= 100;
  }
  if (n == 0) return;
  if (n < 20) {
    say(to, english_small[n]);
    return;
  }
  say(to, english_tens[n / 10]);
  if (n % 10 == 0) return;
  hd_write(to, "-");
  hd_write(to, english_small[n % 10]);
}

static void speak_english(hd_side *to, int64_t n) {
  static const struct {
    int64_t value;
    const char *name;
  } scales[] = {{1000000000, "billion"}, {1000000, "million"}, {1000, "thousand"}};
  if (n == 0) say(to, english_small[0]);
  for (int64_t i = 0; i < HD_COUNT(scales); i++) {
    if (n < scales[i].value) continue;
    english_below_thousand(to, n / scales[i].value);
    say(to, scales[i].name);
    n %= scales[i].value;
  }
  english_below_thousand(to, n);
}

/* ---- Spanish --------------------------------------------------------------------------------------------------------------------- */

static const char *const spanish_small[] = {"cero",         "uno",         "dos",        "tres",        "cuatro",     "cinco",
                                            "seis",         "siete",       "ocho",       "nueve",       "diez",       "once",
                                            "doce",         "trece",       "catorce",    "quince",      "dieciséis",  "diecisiete",
                                            "dieciocho",    "diecinueve",  "veinte",     "veintiuno",   "veintidós",  "veintitrés",
                                            "veinticuatro", "veinticinco", "veintiséis", "veintisiete", "veintiocho", "veintinueve"};
static const char *const spanish_tens[] = {"", "", "", "treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"};
static const char *const spanish_hundreds[] = {"",           "ciento",      "doscientos",  "trescientos", "cuatrocientos",
                                               "quinientos", "seiscientos", "setecientos", "ochocientos", "novecientos"};

/* n < 1000; shortened: a noun or "mil" follows. */
static void spanish_below_thousand(hd_side *to, int64_t n, bool shortened) {
  if (n == 100) {
    say(to, "cien");
    return;
  }
  if (n > 100) say(to, spanish_hundreds[n / 100]);
  n %= 100;
  if (n >= 30) {
    say(to, spanish_tens[n / 10]);
    n %= 10;
    if (n > 0) say(to, "y");
  }
  if (n == 0) return;
  say(to, !shortened ? spanish_small[n] : n == 1 ? "un" : n == 21 ? "veintiún" : spanish_small[n]);
}

/* n < 1,000,000: a thousand is "mil" alone. */
static void spanish_below_million(hd_side *to, int64_t n, bool shortened) {
  if (n >= 2000) spanish_below_thousand(to, n / 1000, true);
  if (n >= 1000) say(to, "mil");
  spanish_below_thousand(to, n % 1000, shortened);
}

/* n < 10^12; thousands of millions are "mil millones". */
static void speak_spanish(hd_side *to, int64_t n) {
  const int64_t millions = n / 1000000;
  if (n == 0) say(to, spanish_small[0]);
  if (millions > 0) {
    spanish_below_million(to, millions, true);
    say(to, millions == 1 ? "millón" : "millones");
  }
  spanish_below_million(to, n % 1000000, false);
}

/* ---- the task -------------------------------------------------------------------------------------------------------------------- */

/* As many numbers of each count of digits. */
static void make_number(const heed_pair_task *task, hd_dice *d, hd_draft *out) {
  static const struct {
    const char *mark;
    speak_fn *speak;
  } languages[] = {{"en ", speak_english}, {"es ", speak_spanish}};
  const int64_t language = hd_roll(d, HD_COUNT(languages));
  int64_t low = 1;
  for (int64_t digits = 1 + hd_roll(d, task->most); digits > 1; digits--) low *= 10;
  const int64_t n = low == 1 ? hd_roll(d, 10) : low + hd_roll(d, 9 * low);
  hd_write(&out->source, languages[language].mark);
  hd_write_number(&out->source, n, 1);
  languages[language].speak(&out->target, n);
  if (n >= FEW) strcpy(out->question, out->source.text + strlen(languages[language].mark));
}

enum { USUAL_DIGITS = 6, MOST_DIGITS = 12 };
const hd_pair_kind hd_pair_numbers = {"numbers", "char", 0, USUAL_DIGITS, MOST_DIGITS, false, make_number};
