/* kinds.c: kinds of attention from text, and whether they suit a stack. */
#include "kinds.h"

#include "../attn/lsh.h"
#include "../attn/pattern.h"

#include <stdio.h>

/* Far above any use, and far below what overflows in a product with other sizes. */
enum { MOST_ROWS = 1 << 16 };

static const struct {
  const char *name;
  heed_features features;
  bool random;
} linear[] = {{"linear", HEED_FEATURES_ELU, false},
              {"relu", HEED_FEATURES_RELU, false},
              {"performer", HEED_FEATURES_POSITIVE, true},
              {"hyperbolic", HEED_FEATURES_HYPERBOLIC, true}};

/* One kind: `text` up to its end. */
typedef struct reader {
  heed_context *context;
  hd_arena *arena;
  const hd_transformer_spec *spec;
  const char *text;
  int64_t turn, turns; /* the kind's place among all */
} reader;

static bool same_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* A whole number and nothing else up to ':' or the end. */
static bool read_number(const char **at, uint64_t most, uint64_t *out) {
  const char *begin = *at;
  for (*out = 0; **at >= '0' && **at <= '9'; (*at)++) {
    const uint64_t digit = (uint64_t)(**at - '0');
    if (*out > (most - digit) / 10) return false;
    *out = *out * 10 + digit;
  }
  return *at > begin && (**at == ':' || !**at);
}

/* COUNT[:SEED] behind the name of a kind; COUNT is called `many` in messages, and `what` it counts. */
static heed_status read_count(const reader *r, const char *at, int64_t most, const char *many, const char *what, int64_t *count,
                              uint64_t *seed) {
  const int name = (int)(at - r->text);
  uint64_t number = 0;
  bool good = *at++ == ':' && read_number(&at, (uint64_t)most, &number) && number > 0;
  if (good && *at == ':') at++, good = read_number(&at, INT64_MAX, seed) && !*at;
  HD_REQUIRE(good, r->context, HEED_E_ARGUMENT, "attention: \"%.64s\": expected %.*s:%s[:SEED], with 1 to %lld %s", r->text, name, r->text,
             many, (long long)most, what);
  *count = (int64_t)number;
  return HEED_OK;
}

/* What linear and LSH attention (`name`) cannot do in a stack, in the layers whose turn it is: every `turns`-th from `turn` on. */
static heed_status check_suits(const reader *r, const char *name) {
  static const char *const on_scores[] = {
      [HD_POSITIONS_RELATIVE] = "T5's", [HD_POSITIONS_ALIBI] = "ALiBi's", [HD_POSITIONS_XL] = "Transformer-XL's"};
  const hd_transformer_spec *spec = r->spec;
  const char *positions = NULL;
  for (int64_t i = r->turn; i < spec->layers; i += r->turns) {
    const hd_positions of = hd_spec_positions_of(spec, i);
    if (of < HD_COUNT(on_scores) && on_scores[of]) positions = on_scores[of];
  }
  HD_REQUIRE(
      !positions, r->context, HEED_E_ARGUMENT,
      "attention: \"%.64s\": %s attention has no scores for %s positions to act on; learned, sinusoidal and rotary ones, and none, suit it",
      r->text, name, positions);
  HD_REQUIRE(!spec->cross && !spec->headless, r->context, HEED_E_ARGUMENT,
             "attention: \"%.64s\": an encoder with a decoder has no %s attention, only patterns", r->text, name);
  HD_REQUIRE(spec->window == 0 && spec->attention_softcap == 0, r->context, HEED_E_ARGUMENT,
             "attention: \"%.64s\": %s attention has neither a window nor capped scores", r->text, name);
  return HEED_OK;
}

/* Rows serve as queries and as keys: there are as many of the ones as of the others, and one norm cannot be two. */
static heed_status check_shared(const reader *r) {
  const hd_transformer_spec *spec = r->spec;
  HD_REQUIRE(spec->kv_heads == spec->heads, r->context, HEED_E_ARGUMENT,
             "attention: \"%.64s\": queries are also the keys, so heads cannot share keys (got %lld heads, %lld of keys and values)",
             r->text, (long long)spec->heads, (long long)spec->kv_heads);
  HD_REQUIRE(spec->side_norm == HD_SIDE_NORM_NONE, r->context, HEED_E_ARGUMENT,
             "attention: \"%.64s\": queries are also the keys, but this model norms each by itself", r->text);
  return HEED_OK;
}

static heed_status unknown(const reader *r, size_t length) {
  char known[256] = "", *end = known;
  for (heed_pattern_kind i = 0; i < HEED_PATTERN_UNION; i++) {
    const hd_pattern_kind *kind = hd_pattern_kind_of(&(heed_pattern){.kind = i});
    if (kind->needed >= 0) end += snprintf(end, (size_t)(known + sizeof known - end), ", %s", kind->name);
  }
  return hd_fail(r->context, HEED_E_ARGUMENT,
                 "attention: unknown kind \"%.*s\", known are linear, relu, performer, hyperbolic, lsh, full, causal%s",
                 (int)HD_MIN(length, 32), r->text, known);
}

static heed_status read_pattern(const reader *r, hd_attention_kind *out) {
  char sentence[HD_ERROR_LENGTH];
  heed_pattern *pattern;
  HD_TRY(hd_arena_allocate(r->arena, r->context, "a pattern", 1, sizeof *pattern, &pattern));
  heed_status status = hd_pattern_read(r->context, r->arena, r->text, pattern);
  if (status == HEED_OK) status = heed_pattern_check(r->context, pattern, r->spec->heads, r->spec->context);
  if (status == HEED_E_ARGUMENT || status == HEED_E_SHAPE) {
    snprintf(sentence, sizeof sentence, "%s", heed_error(r->context));
    return hd_fail(r->context, status, "attention: \"%.64s\": %s", r->text, sentence);
  }
  // A window without ends hides nothing.
  const bool full = pattern->kind == HEED_PATTERN_WINDOW && pattern->left == INT64_MAX && pattern->right == INT64_MAX;
  out->pattern = full ? NULL : pattern;
  return status;
}

static heed_status read_kind(const reader *r, hd_attention_kind *out) {
  const size_t length = strcspn(r->text, ":,+&()");
  *out = (hd_attention_kind){.text = r->text};
  for (int64_t i = 0; i < HD_COUNT(linear); i++) {
    if (!same_word(r->text, length, linear[i].name)) continue;
    out->linear = true;
    out->features = linear[i].features;
    if (linear[i].random) HD_TRY(read_count(r, r->text + length, MOST_ROWS, "ROWS", "random rows", &out->rows, &out->seed));
    HD_REQUIRE(linear[i].random || !r->text[length], r->context, HEED_E_ARGUMENT, "attention: \"%.64s\": %s stands alone", r->text,
               linear[i].name);
    return check_suits(r, "linear");
  }
  if (same_word(r->text, length, "lsh")) {
    HD_TRY(read_count(r, r->text + length, HD_LSH_MOST_ROUNDS, "ROUNDS", "rounds", &out->rounds, &out->seed));
    HD_TRY(check_suits(r, "LSH"));
    return check_shared(r);
  }
  const bool named =
      hd_pattern_named(r->text, length) || same_word(r->text, length, "full") || same_word(r->text, length, "causal") || *r->text == '(';
  return named ? read_pattern(r, out) : unknown(r, length);
}

heed_status hd_kinds_set(heed_context *context, const char *text, hd_transformer_spec *spec) {
  const size_t length = text ? strlen(text) : 0;
  HD_REQUIRE(length < HD_ATTENTION_TEXT, context, HEED_E_ARGUMENT, "attention: a text of %zu bytes, allowed %d", length,
             HD_ATTENTION_TEXT - 1);
  if (length) memcpy(spec->attention, text, length + 1);
  return HEED_OK;
}

heed_status hd_kinds_read(heed_context *context, hd_arena *arena, const hd_transformer_spec *spec, hd_attention_kinds *out) {
  const char *at = spec->attention;
  *out = (hd_attention_kinds){0};
  if (!*at) return HEED_OK;
  int64_t count = 1;
  for (const char *c = at; *c; c++) count += *c == '/';
  HD_REQUIRE(count <= spec->layers, context, HEED_E_ARGUMENT, "attention: %lld kinds for %lld layers", (long long)count,
             (long long)spec->layers);
  HD_TRY(hd_arena_allocate(arena, context, "kinds of attention", count, sizeof *out->kind, &out->kind));
  for (out->count = 0; out->count < count; out->count++) {
    const size_t length = strcspn(at, "/");
    char *text;
    HD_TRY(hd_arena_text(arena, context, at, length, &text));
    HD_TRY(read_kind(&(reader){context, arena, spec, text, out->count, count}, &out->kind[out->count]));
    at += length + 1;
  }
  return HEED_OK;
}

heed_status hd_kinds_check(heed_context *context, const hd_transformer_spec *spec) {
  hd_attention_kinds kinds;
  hd_arena arena;
  hd_arena_init(&arena, context);
  const heed_status status = hd_kinds_read(context, &arena, spec, &kinds);
  hd_arena_free(&arena);
  return status;
}

bool hd_kinds_linear(const hd_attention_kinds *kinds) {
  for (int64_t i = 0; i < kinds->count; i++)
    if (kinds->kind[i].linear) return true;
  return false;
}

bool hd_kinds_lsh(const hd_attention_kinds *kinds) {
  for (int64_t i = 0; i < kinds->count; i++)
    if (kinds->kind[i].rounds > 0) return true;
  return false;
}

int64_t hd_kind_columns(const hd_attention_kind *kind, const hd_transformer_spec *spec) {
  return (spec->heads + (kind->rounds > 0 ? 1 : 2) * spec->kv_heads) * spec->head_dim;
}

heed_linear_attention hd_kind_linear(const hd_attention_kind *kind, const hd_transformer_spec *spec, const heed_view *projection) {
  return (heed_linear_attention){.size = sizeof(heed_linear_attention),
                                 .features = kind->features,
                                 .causal = !spec->bidirectional,
                                 .has_scale = kind->rows > 0 && spec->attention_scale != 0,
                                 .scale = spec->attention_scale,
                                 .projection = kind->rows > 0 ? projection : NULL};
}

heed_lsh_attention hd_kind_lsh(const hd_attention_kind *kind, const hd_transformer_spec *spec, int64_t layer) {
  heed_lsh_attention a = {.size = sizeof a,
                          .causal = !spec->bidirectional,
                          .has_scale = spec->attention_scale != 0,
                          .scale = spec->attention_scale,
                          .rounds = kind->rounds,
                          .seed = kind->seed,
                          .stream = (uint32_t)layer};
  hd_lsh_buckets(spec->context, a.buckets);
  if (a.buckets[1] == 1) a.buckets[1] = 0;
  return a;
}
