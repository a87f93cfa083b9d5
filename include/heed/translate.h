/* translate.h: sequence to sequence: sources in, the best targets out, by an encoder–decoder model.
 *
 * Sources are ids as the model reads them (most want an end token behind each), results are ids as it writes them. What comes out for a source, ids, scores and weights, has the same bits
 * whatever other sources it is translated with. */
#ifndef HEED_TRANSLATE_H
#define HEED_TRANSLATE_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sequences one behind another: number i has the ids [begin[i], begin[i + 1]). */
typedef struct heed_sources {
  const int32_t *ids;
  const int64_t *begin; /* [count + 1], ascending from 0 */
  int64_t count;
} heed_sources;

/* When a search with finished targets enough, as many as it is wide, stops. Those of transformers' early_stopping: False, True and "never". */
typedef enum heed_early_stopping {
  HEED_EARLY_LIKELY, /* when the best target under way, were it to end as long as it is now, would score no better than the worst finished one */
  HEED_EARLY_FIRST, /* at once */
  HEED_EARLY_NEVER /* when no target under way can score better than the worst finished one: with a length penalty above 0 it is taken as if it could go on to the longest length unharmed */
} heed_early_stopping;

/* How targets are searched for. Zero is greedy: each time the likeliest token.
 * Beam search as in transformers 5: a step looks at the (1 + end tokens) · width likeliest continuations of all targets under way; those that end are finished if they are among the first
 * `width`, the first `width` of the others go on. score = Σ log p / length^length_penalty, log p of the model's softmax (a forced token has log p = 0), the length counting all tokens of
 * the result, the end token too. Among equal scores come first: of finished targets the one that ended earlier, of continuations those of the better target, then the likelier token,
 * then the lower id. Width 1 is greedy: the first target that ends is the result. */
typedef struct heed_translate_options {
  size_t size;
  int64_t width; /* targets under way of each source; 0: 1 */
  int64_t best;  /* results of each source, at most `width` unless they are sampled; 0: 1 */
  int64_t most;  /* tokens of a result, its end token too; 0: what the model allows, at most 256 */
  bool has_length_penalty;
  double length_penalty; /* otherwise 1 */
  heed_early_stopping early;

  /* Instead of a search each token is drawn, `best` results of a source independently; they come in the order of their scores. The seed of a result follows from sampling.seed, from the
   * number of its source and from which of the source's results it is. */
  bool sample;
  heed_sampling sampling; /* its own size need not be set */
  const int64_t *numbers; /* [sources] their numbers, where a text is translated piece by piece; NULL: 0, 1, ... */

  bool want_weights;        /* cross-attention of each token of the results */
  bool has_layer, has_head; /* otherwise the mean of all layers, of all heads */
  int64_t layer, head;
  bool
      by_value; /* a head's weight of a token counts as it reaches the result: times the length of the token's value vector, the row brought back to the sum 1. A token that is looked at for want of
                    anything better tends to have a short one (Kobayashi et al., "Attention is not only a weight", 2020; here without the output matrix) */

  int64_t batch; /* sources that are under way at once, shared out to the threads; 0: 32 for each thread, at most 256. Changes no bit. */

  /* Instead of a search each source has the target that stands here, whatever the model would have written: what comes is what it makes of it, scores and weights. Every token counts as the
   * model's softmax has it, forced ones too; a target is over where its ids end. NULL: none are given. */
  const heed_sources *targets;
} heed_translate_options;

typedef struct heed_translation {
  const int32_t *ids; /* [count], with the end token where it ended, without the start token */
  int64_t count;
  double score, log_probability; /* Σ log p / count^length_penalty, Σ log p */
  bool ended;                    /* by an end token; otherwise it is as long as is allowed */
  const float *weights;          /* [count, tokens of the source]: what each token was written from; NULL: not asked */
} heed_translation;

/* Results of a call, best first. They belong to its context. */
typedef struct heed_translations heed_translations;
HEED_API void heed_translations_free(heed_translations *translations);
HEED_API int64_t heed_translations_sources(const heed_translations *translations);
/* The results of a source; *count may be below `best` where the search found fewer targets. NULL outside [0, sources). Borrowed. */
HEED_API const heed_translation *heed_translations_of(const heed_translations *translations, int64_t source, int64_t *count);

/* options NULL: greedy. HEED_E_UNSUPPORTED (not a model that has sources; weights of one that does not attend), HEED_E_ARGUMENT (options, an empty source, one beyond the model's positions, an
 * id out of range: the sentence names the source; logits that hold NaN), HEED_E_MEMORY, HEED_E_CANCELLED (progress "translate", in sources). *out is NULL on error. */
HEED_API heed_status heed_translate(heed_context *context, heed_model *model, const heed_sources *sources,
                                    const heed_translate_options *options, heed_translations **out);

/* What a model that translates is like. */
typedef struct heed_translate_info {
  size_t size;
  int64_t layers, heads;           /* of cross-attention; 0: it does not attend */
  int64_t longest_source, longest; /* tokens of a source; tokens of a target, its end token too */
  int32_t start, end; /* the id that every target is begun with, and the one that ends it (the first, where there are several; −1: none) */
} heed_translate_info;
/* HEED_E_UNSUPPORTED (not a model that has sources), HEED_E_ARGUMENT, HEED_E_MEMORY. */
HEED_API heed_status heed_translate_describe(heed_context *context, heed_model *model, heed_translate_info *info);

#ifdef __cplusplus
}
#endif
#endif
