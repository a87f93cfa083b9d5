/* options.c: reads the words of a command line by the command's table, and says what is wrong with a word in one line that a newcomer can act on.
 *
 * Options may stand before or after positionals; `--opt value`, `--opt=value`, `-o value` and `-ovalue` are the same; `--` ends options; `-` is a
 * positional. An option that needs a value takes the next word whatever it looks like, so `--causal -3` needs no quoting. */
#include "options.h"

#include "console.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COMMON(field) offsetof(common_values, field)

static const struct {
  unsigned takes; /* a command has the option if it takes this, or if this is 0 */
  option option;
} common_options[] = {
    {TAKES_SEED, {"seed", 0, OPTION_WHOLE, "N", COMMON(seed), "seed of everything random (default 0)", 0, 0x1p62, 0, 0}},
    {TAKES_JSON, {"json", 0, OPTION_FLAG, 0, COMMON(json), "print JSON", 0, 0, 0, 0}},
    {TAKES_MACHINE, {"threads", 0, OPTION_WHOLE, "N", COMMON(threads), "threads to use (default: all processors)", 1, 4096, 0, 0}},
    {TAKES_MACHINE, {"level", 0, OPTION_CHOICE, "LEVEL", COMMON(level), "instruction set (default auto)", 0, 0, LEVEL_CHOICES, 0}},
    {0,
     {"color", 0, OPTION_CHOICE, "WHEN", COMMON(color), "colours (default auto: on a terminal, unless NO_COLOR is set)", 0, 0,
      "auto|always|never", 0}},
    {0, {"quiet", 'q', OPTION_FLAG, 0, COMMON(quiet), "no progress and no notes on standard error", 0, 0, 0, 0}},
    {0, {"help", 'h', OPTION_FLAG, 0, COMMON(help), "print this help", 0, 0, 0, 0}},
};

enum { COMMON_COUNT = sizeof common_options / sizeof common_options[0], NAMES_MAX = 64 };

const option *command_option(const command *of, int index) {
  int own = 0;
  for (; of->options[own].name; own++)
    if (own == index) return &of->options[own];
  index -= own;
  for (int i = 0; i < COMMON_COUNT; i++) {
    bool has = (common_options[i].takes & of->takes) == common_options[i].takes;
    if (has && index-- == 0) return &common_options[i].option;
  }
  return NULL;
}

bool option_is_positional(const option *o) { return isupper((unsigned char)o->name[0]); }

/* ---- suggestions --------------------------------------------------------------------------------------------------------- */

/* Damerau–Levenshtein distance (insert, delete, replace, swap neighbours) of two short words; long ones are far from everything. */
static int distance(const char *a, const char *b) {
  enum { LONGEST = 31 };
  int rows = (int)strlen(a), columns = (int)strlen(b);
  if (rows > LONGEST || columns > LONGEST) return LONGEST;
  int d[LONGEST + 1][LONGEST + 1];
  for (int i = 0; i <= rows; i++) d[i][0] = i;
  for (int j = 0; j <= columns; j++) d[0][j] = j;
  for (int i = 1; i <= rows; i++) {
    for (int j = 1; j <= columns; j++) {
      int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
      d[i][j] = best;
    }
  }
  return d[rows][columns];
}

const char *closest_name(const char *word, int count, const char *const *names) {
  const char *best = NULL;
  size_t length = strlen(word);
  int allowed = length < 6 ? 1 + (length > 2) : (int)length / 3; // two slips in a short word, a third of a long one
  for (int i = 0; i < count; i++) {
    int d = distance(word, names[i]);
    if (length > 2 && strncmp(word, names[i], length) == 0) d = 1; // the beginning of a name is a good guess
    if (d <= allowed && d < (int)strlen(names[i])) {
      allowed = d - 1;
      best = names[i];
    }
  }
  return best;
}

static int unknown_option(const command *of, const char *word, size_t length) {
  const char *names[NAMES_MAX];
  int count = 0;
  char name[64];
  for (int i = 0; command_option(of, i) && count < NAMES_MAX; i++)
    if (!option_is_positional(command_option(of, i))) names[count++] = command_option(of, i)->name;
  size_t dashes = strspn(word, "-");
  snprintf(name, sizeof name, "%.*s", (int)(length - dashes), word + dashes);
  const char *near = closest_name(name, count, names);
  if (near) return usage_error("%.*s: unknown option (did you mean --%s?)", (int)length, word, near);
  return usage_error("%.*s: unknown option (`heed %s --help` lists those of %s; after -- nothing is an option)", (int)length, word,
                     of->name, of->name);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

bool parse_whole(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  if (!isdigit((unsigned char)text[0]) && text[0] != '-') return false;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno) return false;
  *out = value;
  return true;
}

bool parse_number(const char *text, double *out) {
  char *end;
  if (isspace((unsigned char)text[0]) || !text[0]) return false;
  *out = strtod(text, &end);
  return !*end && isfinite(*out);
}

static bool in_range(const option *o, double value) { return (o->low == 0 && o->high == 0) || (value >= o->low && value <= o->high); }

/* What stands before an option's name in messages. */
static const char *dashes_of(const option *o) { return option_is_positional(o) ? "" : "--"; }

static int bad_number(const option *o, const char *word, const char *kind) {
  const char *dashes = dashes_of(o);
  if (o->low == 0 && o->high == 0) return usage_error("%s%s: not %s (got %s)", dashes, o->name, kind, word);
  if (o->high >= 0x1p53) return usage_error("%s%s: not %s in range (got %s, allowed %g or more)", dashes, o->name, kind, word, o->low);
  return usage_error("%s%s: not %s in range (got %s, allowed %.15g to %.15g)", dashes, o->name, kind, word, o->low, o->high);
}

int choice_place(const char *choices, const char *word) {
  size_t length = strlen(word);
  int place = 0;
  for (const char *at = choices; *at; place++) {
    size_t span = strcspn(at, "|");
    if (span == length && strncmp(at, word, span) == 0) return place;
    at += span + (at[span] == '|');
  }
  return -1;
}

const char *choice_at(const char *choices, int64_t place, char buffer[CHOICE_MAX]) {
  for (; place > 0; place--) choices += strcspn(choices, "|") + 1;
  snprintf(buffer, CHOICE_MAX, "%.*s", (int)strcspn(choices, "|"), choices);
  return buffer;
}

static int bad_choice(const option *o, const char *word) {
  return usage_error("%s%s: unknown choice (got %s, allowed %s)", dashes_of(o), o->name, word, o->choices);
}

/* One word of a list; slot is the whole_list or number_list. */
static int store_item(const option *o, const char *item, void *slot) {
  whole_list *wholes = slot;
  number_list *numbers = slot;
  int *count = o->kind == OPTION_NUMBERS ? &numbers->count : &wholes->count;
  int64_t whole = 0;
  double number = 0;
  if (*count == LIST_MAX) return usage_error("--%s: too many of them (allowed %d)", o->name, LIST_MAX);
  if (o->kind == OPTION_CHOICES) {
    if ((whole = choice_place(o->choices, item)) < 0) return bad_choice(o, item);
  } else if (o->kind == OPTION_WHOLES) {
    if (!parse_whole(item, &whole) || !in_range(o, (double)whole)) return bad_number(o, item, "a whole number");
  } else if (!parse_number(item, &number) || !in_range(o, number)) {
    return bad_number(o, item, "a number");
  }
  if (o->kind == OPTION_NUMBERS) numbers->items[(*count)++] = number;
  else wholes->items[(*count)++] = whole;
  return EXIT_OK;
}

/* "512,2048" replaces what the list held. */
static int store_list(const option *o, const char *word, void *slot) {
  char item[CHOICE_MAX];
  *(int *)slot = 0; // the count stands first in every list
  for (const char *at = word;; at++) {
    size_t span = strcspn(at, ",");
    snprintf(item, sizeof item, "%.*s", (int)(span < sizeof item ? span : sizeof item - 1), at);
    int code = store_item(o, item, slot);
    at += span;
    if (code != EXIT_OK || !*at) return code;
  }
}

static int store(const option *o, const char *word, void *values) {
  void *slot = (char *)values + o->at;
  switch (o->kind) {
  case OPTION_FLAG: *(bool *)slot = true; return EXIT_OK;
  case OPTION_WHOLE: {
    int64_t value;
    if (!parse_whole(word, &value) || !in_range(o, (double)value)) return bad_number(o, word, "a whole number");
    *(int64_t *)slot = value;
    return EXIT_OK;
  }
  case OPTION_NUMBER: {
    double value;
    if (!parse_number(word, &value) || !in_range(o, value)) return bad_number(o, word, "a number");
    *(double *)slot = value;
    return EXIT_OK;
  }
  case OPTION_CHOICE:
    if (choice_place(o->choices, word) < 0) return bad_choice(o, word);
    *(const char **)slot = word;
    return EXIT_OK;
  case OPTION_TEXT: *(const char **)slot = word; return EXIT_OK;
  case OPTION_TEXTS: {
    text_list *list = slot;
    if (list->count == LIST_MAX) return usage_error("--%s: given too often (allowed %d times)", o->name, LIST_MAX);
    list->items[list->count++] = word;
    return EXIT_OK;
  }
  case OPTION_WHOLES:
  case OPTION_NUMBERS:
  case OPTION_CHOICES: return store_list(o, word, slot);
  }
  return EXIT_USAGE;
}

/* ---- words --------------------------------------------------------------------------------------------------------------- */

static const option *find_long(const command *of, const char *name, size_t length) {
  const option *o;
  for (int i = 0; (o = command_option(of, i)); i++)
    if (!option_is_positional(o) && strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
  return NULL;
}

static const option *find_letter(const command *of, char letter) {
  const option *o;
  for (int i = 0; (o = command_option(of, i)); i++)
    if (o->letter == letter) return o;
  return NULL;
}

static const option *find_positional(const command *of, int index) {
  const option *o;
  for (int i = 0; (o = command_option(of, i)); i++)
    if (option_is_positional(o) && index-- == 0) return o;
  return NULL;
}

/* words[*at] is an option; moves *at past its value. */
static int take_option(const command *of, int count, char **words, int *at, void *values) {
  const char *word = words[(*at)++], *attached = NULL;
  bool is_long = word[1] == '-';
  size_t length = is_long ? strcspn(word, "=") : 2;
  const option *o = is_long ? find_long(of, word + 2, length - 2) : find_letter(of, word[1]);
  if (!o) return unknown_option(of, word, is_long ? length : strlen(word));
  if (word[length]) attached = word + length + is_long;
  if (o->kind == OPTION_FLAG) {
    if (attached) return usage_error("%.*s: takes no value (got %s)", (int)length, word, attached);
    return store(o, NULL, values);
  }
  if (!attached && *at == count) return usage_error("%s: needs a value (%s)", word, o->choices ? o->choices : o->value);
  return store(o, attached ? attached : words[(*at)++], values);
}

static int missing(const command *of, const option *o) {
  if (option_is_positional(o)) return usage_error("%s: %s is missing: %s (see `heed %s --help`)", of->name, o->name, o->help, of->name);
  return usage_error("%s: --%s is missing: %s (see `heed %s --help`)", of->name, o->name, o->help, of->name);
}

static bool was_given(const option *o, const void *values) {
  bool is_text = o->kind == OPTION_TEXT || o->kind == OPTION_CHOICE;
  return !is_text || *(const char *const *)((const char *)values + o->at) != NULL;
}

int options_parse(const command *of, int count, char **words, void *values) {
  if (of->defaults) memcpy(values, of->defaults, of->values_size);
  else memset(values, 0, of->values_size);
  int positionals = 0, code;
  bool options_end = false;
  for (int at = 0; at < count;) {
    const char *word = words[at];
    if (!options_end && strcmp(word, "--") == 0) {
      options_end = true;
      at++;
    } else if (!options_end && word[0] == '-' && word[1]) {
      if ((code = take_option(of, count, words, &at, values)) != EXIT_OK) return code;
    } else {
      const option *o = find_positional(of, positionals++);
      if (!o) return usage_error("%s: one argument too many (got %s; a text of several words needs quotes)", of->name, word);
      if ((code = store(o, word, values)) != EXIT_OK) return code;
      at++;
    }
  }
  if (((const common_values *)values)->help) return EXIT_OK;
  const option *o;
  for (int i = 0; (o = command_option(of, i)); i++)
    if (o->required && !was_given(o, values)) return missing(of, o);
  return EXIT_OK;
}

/* ---- lists whose limits only the model knows ------------------------------------------------------------------------------- */

/* Reads a whole number at *at, which may be negative, and moves past it. */
static bool scan_whole(const char **at, int64_t *out) {
  char *end;
  errno = 0;
  if (!isdigit((unsigned char)**at) && !(**at == '-' && isdigit((unsigned char)(*at)[1]))) return false;
  *out = strtoll(*at, &end, 10);
  *at = end;
  return errno == 0;
}

static int mark_selection(const char *option_name, const char *thing, const char *text, int64_t count, bool *chosen) {
  for (const char *at = text;; at++) {
    int64_t first, last;
    if (!scan_whole(&at, &first))
      return usage_error("%s: not a list of numbers (got %s, allowed a form such as 0,3-5,-1 or all)", option_name, text);
    last = first;
    if (*at == '-') {
      at++;
      if (!scan_whole(&at, &last)) return usage_error("%s: a range without an end (got %s)", option_name, text);
    }
    if (*at && *at != ',')
      return usage_error("%s: not a list of numbers (got %s, allowed a form such as 0,3-5,-1 or all)", option_name, text);
    int64_t ends[2] = {first, last};
    for (int i = 0; i < 2; i++) {
      if (ends[i] < -count || ends[i] >= count)
        return usage_error("%s: no %s %lld (allowed 0 to %lld, or -%lld to -1 from the end)", option_name, thing, (long long)ends[i],
                           (long long)count - 1, (long long)count);
      if (ends[i] < 0) ends[i] += count;
    }
    if (ends[0] > ends[1]) return usage_error("%s: a range that runs backwards (got %s)", option_name, text);
    for (int64_t i = ends[0]; i <= ends[1]; i++) chosen[i] = true;
    if (!*at) return EXIT_OK;
  }
}

int parse_selection(const char *option_name, const char *thing, const char *text, int64_t count, int64_t **list, int64_t *list_count) {
  bool *chosen = allocate("a list", count, sizeof *chosen);
  int code = EXIT_OK;
  if (strcmp(text, "all") == 0) memset(chosen, true, (size_t)count * sizeof *chosen);
  else code = mark_selection(option_name, thing, text, count, chosen);
  if (code == EXIT_OK) {
    *list = allocate("a list", count, sizeof **list);
    *list_count = 0;
    for (int64_t i = 0; i < count; i++)
      if (chosen[i]) (*list)[(*list_count)++] = i;
  }
  free(chosen);
  return code;
}

int parse_ids(const char *option_name, const char *text, int64_t vocabulary, int32_t **list, int64_t *list_count) {
  int32_t *ids = allocate("token ids", (int64_t)strlen(text) / 2 + 1, sizeof *ids); // every id has a digit and a comma
  int64_t count = 0, id;
  for (const char *at = text;; at++) {
    while (*at == ' ') at++;
    if (!scan_whole(&at, &id) || (*at && *at != ',')) {
      free(ids);
      return usage_error("%s: not a list of token ids (at \"%.20s\", allowed a form such as 5,17,3)", option_name, at);
    }
    if (id < 0 || id >= vocabulary) {
      free(ids);
      return usage_error("%s: no token %lld (allowed 0 to %lld)", option_name, (long long)id, (long long)vocabulary - 1);
    }
    ids[count++] = (int32_t)id;
    if (!*at) break;
  }
  *list = ids;
  *list_count = count;
  return EXIT_OK;
}
