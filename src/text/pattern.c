/* pattern.c: the patterns that models in use cut their text with, by name, and the few places where the regular expressions of model files mean something else to PCRE2. */
#include "pretokenize.h"

/* ---- by name -------------------------------------------------------------------------------------------------------------- */

const char hd_pattern_digit[] = "\\p{N}", hd_pattern_digits[] = "\\p{N}+";
const char hd_pattern_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define AFTER_GPT2(digits)                                                                                                                 \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const hd_pre_tokenizer gpt2 = {.name = "gpt2", .count = 1, .pattern = {hd_pattern_gpt2}};
static const hd_pre_tokenizer smollm = {.name = "smollm", .count = 2, .pattern = {hd_pattern_digit, hd_pattern_gpt2}};
static const hd_pre_tokenizer llama3 = {.name = "llama3", .count = 1, .pattern = {AFTER_GPT2("\\p{N}{1,3}")}};
static const hd_pre_tokenizer qwen2 = {.name = "qwen2", .count = 1, .pattern = {AFTER_GPT2("\\p{N}")}};

/* The names in tokenizer.ggml.pre that mean the same cuts. */
static const struct {
  const char *name;
  const hd_pre_tokenizer *pre_tokenizer;
} names[] = {
    {"gpt-2", &gpt2},       {"gpt2", &gpt2},        {"phi-2", &gpt2},
    {"olmo", &gpt2},        {"mpt", &gpt2},         {"jais", &gpt2},
    {"smollm", &smollm},    {"refact", &smollm},    {"starcoder", &smollm},
    {"command-r", &smollm}, {"codeshell", &smollm}, {"llama-bpe", &llama3},
    {"llama3", &llama3},    {"llama-v3", &llama3},  {"qwen2", &qwen2},
    {"stablelm2", &qwen2},  {"hunyuan", &qwen2},    {"deepseek-r1-qwen", &qwen2},
};

const hd_pre_tokenizer *hd_pre_tokenizer_named(heed_text name) {
  for (int64_t i = 0; i < HD_COUNT(names); i++)
    if (strlen(names[i].name) == name.length && memcmp(names[i].name, name.data, name.length) == 0) return names[i].pre_tokenizer;
  return NULL;
}

static bool same_patterns(const hd_pre_tokenizer *a, const hd_pre_tokenizer *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count; i++)
    if (strcmp(a->pattern[i], b->pattern[i]) != 0 || a->drops_rest[i] != b->drops_rest[i]) return false;
  return true;
}

const char *hd_pre_tokenizer_name(const hd_pre_tokenizer *pre_tokenizer) {
  static const hd_pre_tokenizer *const known[] = {&gpt2, &smollm, &llama3, &qwen2};
  if (pre_tokenizer->count == 0) return "none";
  for (int64_t i = 0; i < HD_COUNT(known); i++)
    if (same_patterns(pre_tokenizer, known[i])) return known[i]->name;
  return "pattern";
}

const char *hd_pre_tokenizer_known(void) { return "gpt2, smollm, llama3, qwen2"; }

/* ---- translation ---------------------------------------------------------------------------------------------------------- */

/* White_Space; PCRE2's own \s also has U+180E, which has not been white space since Unicode 6.3. */
#define SPACE "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

typedef struct translation {
  char *out; /* NULL: only count */
  int64_t length;
} translation;

static void put(translation *t, const char *data, size_t length) {
  if (t->out) memcpy(t->out + t->length, data, length);
  t->length += (int64_t)length;
}

/* The escape at data, outside (or inside) a class; false for what PCRE2 reads differently. */
static bool put_escape(translation *t, const char *data, size_t length, bool in_class) {
  if (length < 2) return false;
  switch (data[1]) {
  case 's': put(t, in_class ? SPACE : "[" SPACE "]", strlen(SPACE) + (in_class ? 0 : 2)); return true;
  case 'S':
    if (in_class) return false; // a complement inside a class cannot be spelled out
    put(t, "[^" SPACE "]", strlen(SPACE) + 3);
    return true;
  case 'h': // a hexadecimal digit there, a horizontal space here
  case 'H':
  case 'Q': return false; // starts a quotation here only
  default: put(t, data, 2); return true;
  }
}

/* (?m) lets the dot match newlines there, and anchors match at lines here. */
static bool sets_mode_m(heed_text pattern, size_t at) {
  if (pattern.length - at < 3 || pattern.data[at] != '(' || pattern.data[at + 1] != '?') return false;
  for (at += 2; at < pattern.length && memchr("imxs-", pattern.data[at], 5); at++)
    if (pattern.data[at] == 'm') return true;
  return false;
}

int64_t hd_pattern_translate(heed_text pattern, char *out) {
  translation t = {out, 0};
  bool in_class = false;
  if (pattern.length > HD_MAX_PATTERN_BYTES) return -1;
  for (size_t at = 0; at < pattern.length; at++) {
    const char *c = pattern.data + at;
    size_t rest = pattern.length - at;
    if (*c == '\\') {
      if (!put_escape(&t, c, rest, in_class)) return -1;
      at++;
      continue;
    }
    if (in_class && (*c == '[' || (rest > 1 && c[0] == '&' && c[1] == '&'))) return -1; // nested classes and intersections
    if (!in_class && sets_mode_m(pattern, at)) return -1;
    if (*c == '[') in_class = true;
    else if (*c == ']') in_class = false;
    put(&t, c, 1);
  }
  return t.length;
}
