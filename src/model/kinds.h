/* kinds.h: what the layers of a stack attend with, from the text by which options and configurations say it.
 *
 * The text names kinds with '/' between them, which layers take in turn: "window:64/full" gives every second layer a window. A kind is a pattern, as heed_pattern_parse reads it, linear attention:
 *   linear (features elu + 1)   relu   performer:ROWS[:SEED] (FAVOR+, positive)   hyperbolic:ROWS[:SEED]
 * or LSH attention:
 *   lsh:ROUNDS[:SEED]
 * Random numbers are drawn from seed and number of the layer, so that they need no place in files. A layer of LSH attention has no keys of its own: its queries, as long as 1, are its keys. */
#ifndef HD_KINDS_H
#define HD_KINDS_H

#include "../base/base.h"
#include "../../include/heed/heed.h"
#include "spec.h"

typedef struct hd_attention_kind {
  const char *text;
  const heed_pattern *pattern; /* NULL: none */
  bool linear;
  heed_features features; /* of linear attention */
  int64_t rows;           /* random ones; 0: its features have none */
  int64_t rounds;         /* of LSH attention; 0: it is something else */
  uint64_t seed;
} hd_attention_kind;

typedef struct hd_attention_kinds {
  int64_t count; /* 0: all layers attend to every key that they may see */
  hd_attention_kind *kind;
} hd_attention_kinds;

/* Puts a text into spec->attention; NULL or "" leaves what is there. HEED_E_ARGUMENT: it is too long. */
heed_status hd_kinds_set(heed_context *context, const char *text, hd_transformer_spec *spec);
/* What spec->attention says, into the arena. HEED_E_ARGUMENT and HEED_E_SHAPE, with a sentence that begins with "attention: ": what is unknown, or does not fit the spec. */
heed_status hd_kinds_read(heed_context *context, hd_arena *arena, const hd_transformer_spec *spec, hd_attention_kinds *out);
/* The same errors, and nothing kept. */
heed_status hd_kinds_check(heed_context *context, const hd_transformer_spec *spec);

/* That of a layer. */
static inline hd_attention_kind hd_kind_of(const hd_attention_kinds *kinds, int64_t layer) {
  return kinds->count ? kinds->kind[layer % kinds->count] : (hd_attention_kind){0};
}
/* Whether any is linear, or LSH attention. */
bool hd_kinds_linear(const hd_attention_kinds *kinds);
bool hd_kinds_lsh(const hd_attention_kinds *kinds);

/* Columns of a layer's queries, keys and values: [queries | keys | values], or of LSH attention [queries | values]. */
int64_t hd_kind_columns(const hd_attention_kind *kind, const hd_transformer_spec *spec);

/* What linear attention of a kind is; `projection` [rows, head_dim] must last as long as the result. */
heed_linear_attention hd_kind_linear(const hd_attention_kind *kind, const hd_transformer_spec *spec, const heed_view *projection);
/* What LSH attention of a kind is in a layer. Its buckets are those of the spec's context, so that they do not depend on how long a text is or was padded to be. */
heed_lsh_attention hd_kind_lsh(const hd_attention_kind *kind, const hd_transformer_spec *spec, int64_t layer);

#endif
