/* stepper.h: how decoding sees a model that turns sources into targets: as rows that grow by a token a step.
 *
 * A row is one target under way: a source and the tokens so far. decode.c decides which rows go on with which tokens, a stepper computes what may follow; neither knows more of the
 * other than this page. A row's numbers have the same bits whatever other rows there are, so decoding may batch as it likes. */
#ifndef HD_STEPPER_H
#define HD_STEPPER_H

#include "../base/base.h"
#include "../../include/heed/translate.h"

/* What a model's files say about how its targets begin and end. */
typedef struct hd_target_rules {
  int32_t start;                     /* what every row is given first; it belongs to no result */
  const int32_t *ends, *never;       /* ids that end a target; ids that are never chosen, such as the padding */
  int64_t end_count, never_count;    /* an id may be in neither, not in both */
  int32_t forced_first, forced_last; /* the only token that may come first, and as the last of the longest allowed; −1: any */
} hd_target_rules;

/* The weights that a step is asked for: of one layer and one head, or with −1 their mean over all layers, over all heads. */
typedef struct hd_step_weights {
  int64_t layer, head;
  bool by_value; /* each times the length of its value, the values of a head shared out so that a row sums to 1 */
  float *
      to; /* [rows,stride]: row r gets the weights of all places of its source, which is at most `stride` long; the rest of a row stays as it is */
  int64_t stride;
} hd_step_weights;

typedef struct hd_stepper hd_stepper;

typedef struct hd_stepper_kind {
  /* Forgets all rows and reads the sources (at least one, none of them empty, ids in [0, sources), none longer than longest_source). Row r is then a target of source r without a token. */
  heed_status (*start)(hd_stepper *stepper, const heed_sources *sources);
  /* Gives every row its next token, ids [rows], and tells what follows it: logits [rows,targets]. weights NULL: not asked; they are those of the query that gave these logits.
   * Called at most `longest` times after a start. HEED_E_UNSUPPORTED: there are no weights. */
  heed_status (*step)(hd_stepper *stepper, const int32_t *ids, float *logits, const hd_step_weights *weights);
  /* The rows are now [0, rows), of which row r goes on from what was row parents[r]. Any parent may come more than once, or not at all: it is then forgotten. */
  heed_status (*choose)(hd_stepper *stepper, int64_t rows, const int32_t *parents);
  void (*close)(hd_stepper *stepper);
  /* Another of the same model, without rows, that works in a context of its own, at the same time. NULL: there is only one. */
  heed_status (*again)(const hd_stepper *stepper, heed_context *context, hd_stepper **out);
} hd_stepper_kind;

/* What every stepper begins with. After an error only close may follow. */
struct hd_stepper {
  const hd_stepper_kind *kind;
  heed_context *context;
  const char *name;                /* of the model, for messages */
  int64_t sources, targets;        /* vocabularies */
  int64_t longest_source, longest; /* tokens of a source; steps of a row, the start token counted and the last token of the result not */
  int64_t layers, heads;           /* of weights; 0: there are none */
  int64_t most_rows;               /* that there will ever be; set before a start by who decodes */
  hd_target_rules rules;
};

static inline void hd_stepper_free(hd_stepper *stepper) {
  if (stepper) stepper->kind->close(stepper);
}

/* stepper.c: what all steppers have of their model: its name and the rules of its targets; layers and sizes are the kind's own. HEED_E_UNSUPPORTED where its files do not say how a target begins. */
heed_status hd_stepper_begin(heed_context *context, const heed_model *model, const hd_stepper_kind *kind, hd_stepper *out);
/* stepper_transformer.c: of a transformer with encoder and decoder. HEED_E_UNSUPPORTED, HEED_E_MEMORY. */
heed_status hd_stepper_transformer(heed_context *context, heed_model *model, hd_stepper **out);
/* stepper_recurrent.c: the same of a recurrent encoder–decoder. */
heed_status hd_stepper_recurrent(heed_context *context, heed_model *model, hd_stepper **out);

/* decode.c: what heed_translate does with a model's stepper. Options as there; they are checked here. */
heed_status hd_decode(hd_stepper *stepper, const heed_sources *sources, const heed_translate_options *options, heed_translations **out);

#endif
