/* learner.h: a learner is what all share (context, parameters by name, memory) and a body: a table of functions that make its parameters, run it on the tape and describe it in files. */
#ifndef HD_LEARNER_H
#define HD_LEARNER_H

#include "../base/base.h"
#include "../../include/heed/train.h"
#include "kinds.h"
#include "spec.h"

typedef struct hd_maker hd_maker;
typedef struct hd_export hd_export; /* export.h */

typedef struct hd_learner_body {
  size_t bytes; /* of its learner, whose first member is a heed_learner */
  /* Checks the options, fills source, positions and width of the learner, takes memory for what is no parameter. */
  heed_status (*start)(heed_learner *learner, const heed_learner_options *options);
  /* All parameters, in order, by hd_make_part. Twice: the first time they are only counted. */
  void (*make)(hd_maker *maker);
  /* ids [B,source + n] that are within the limits -> what the head reads: [B,n,width], [B,width] where a sequence has one answer. */
  heed_tensor *(*states)(heed_learner *learner, heed_tape *tape, heed_tensor *ids);
  /* Rows of that -> logits. */
  heed_tensor *(*head)(heed_learner *learner, heed_tape *tape, heed_tensor *x);
  /* What it is in files: arrays and configuration. */
  heed_status (*describe)(const heed_learner *learner, hd_export *out);
} hd_learner_body;

struct heed_learner {
  heed_context *context;
  const hd_learner_body *body;
  heed_parameters *parameters;
  hd_arena arena;
  heed_model *model; /* whose matrices frozen parameters are; NULL: none */
  double dropout, smoothing;
  int64_t source;     /* columns of ids that are the source; 0: there is none */
  int64_t positions;  /* behind them, at most */
  int64_t width;      /* of what the head reads */
  bool has_ends;      /* otherwise its tokenizer says */
  int32_t start, end; /* tokens that a target begins and ends with */
};

/* The learner of a kind; NULL: there is none. */
const hd_learner_body *hd_learner_body_of(heed_learner_kind kind);
/* A learner that lacks its body's part and its parameters. Where what follows fails it is to be freed. */
heed_status hd_learner_open(heed_context *context, const hd_learner_body *body, heed_learner **out);

/* The mean cross-entropy of what heed_learner_logits has given, without smoothing. */
heed_tensor *hd_learner_loss_of(heed_learner *learner, heed_tape *tape, heed_tensor *logits, heed_tensor *targets);

/* ---- parameters ------------------------------------------------------------------------------------------------------------------ */

/* A parameter as it comes to be: "encoder.layers.3.qkv.weight" is weight of part "qkv" in layer 3; outside layers the layer is −1. */
typedef struct hd_part {
  const char *name, *part;
  int64_t layer;
  int ndim;
  const int64_t *dim;
  heed_initial kind; /* how it begins, if by chance */
  double gain;
} hd_part;

/* Who makes them, one after another. The first error stays. */
struct hd_maker {
  heed_learner *learner;
  heed_status (*make)(hd_maker *maker, const hd_part *part, heed_tensor **out);
  void *user;
  heed_status status;
  uint64_t seed, made;
  double spread;        /* standard deviation of matrices that begin by chance; 0: the usual */
  bool xavier;          /* they are Xavier's uniform ones where no spread is given */
  const char *of;       /* what stands before all names, "encoder."; NULL: nothing */
  int64_t layer, bytes; /* layer: −1 outside layers */
};
/* The maker of what begins by chance. */
heed_status hd_learner_begin_by_chance(hd_maker *maker, const hd_part *part, heed_tensor **out);

/* Names of parameters: "layers.3.qkv.weight". */
#define HD_PARAMETER_NAME_LENGTH 64

heed_tensor *hd_make_part(hd_maker *maker, const char *part, const char *suffix, int ndim, const int64_t *dim, heed_initial kind,
                          double gain);
/* part.weight [outputs,inputs], normal with scale · spread. */
heed_tensor *hd_make_matrix(hd_maker *maker, const char *part, int64_t outputs, int64_t inputs, double scale);
/* part.bias [n] of zeros; has false: NULL. */
heed_tensor *hd_make_bias(hd_maker *maker, bool has, const char *part, int64_t n);
heed_nn_norm hd_make_norm(hd_maker *maker, const hd_transformer_spec *spec, const char *part);

/* ---- rows of ids ----------------------------------------------------------------------------------------------------------------- */

/* Rows of a batch as the tape takes them: 0 instead of the −1 behind rows that are shorter than the longest. */
typedef struct hd_id_rows {
  heed_tensor *ids;       /* [B,n] */
  const int64_t *lengths; /* [B], until the tape is reset; NULL: no row is padded */
  int64_t batch, columns;
} hd_id_rows;
/* Columns [begin, end) of ids [B,...]. trim: columns that are padding in every row are left out (but for one, if all are), on a tape that only plans none. HEED_E_ARGUMENT: a token behind padding. */
heed_status hd_learner_rows(heed_learner *learner, heed_tape *tape, heed_tensor *ids, int64_t begin, int64_t end, bool trim,
                            hd_id_rows *out);

/* A batch of pairs, ids [B, source + n]. Targets keep all their n columns; those that are padding in every row end in no logits, so that logits are [B, target.columns, outputs]. */
typedef struct hd_pairs {
  hd_id_rows source, target;
} hd_pairs;
heed_status hd_learner_pairs(heed_learner *learner, heed_tape *tape, heed_tensor *ids, hd_pairs *out);

/* ---- the transformer --------------------------------------------------------------------------------------------------------------- */

/* Layers one after another, with what comes before and behind them: a transformer of its own, or the encoder or decoder of one. */
typedef struct hd_learner_stack {
  hd_transformer_spec spec;
  heed_tensor *embedding, *position, *head;
  heed_tensor *relative;                                 /* where positions are T5's */
  heed_nn_norm embedding_norm, final_norm, head_norm;    /* those that the spec has */
  heed_tensor *head_dense, *head_dense_bias, *head_bias; /* dense: before a head for tokens, or the pooler of a class */
  heed_nn_block *layers;
  const char **layer_names; /* "layer 3", for messages */
  double dropout;
  heed_attention attention, cross;
  hd_attention_kinds kinds;
  heed_rope rope;
  heed_view cosine, sine; /* [context, rotary_dim/2] where positions are rotary */
  heed_view sinusoid;     /* [context, width] where they are sinusoidal */
  heed_view distances;    /* [distances, width] where they are Transformer-XL's: what rows of distances are made of */
  heed_view slopes;       /* [heads] where they are ALiBi's */
} hd_learner_stack;

/* Tables and room for layers, for the life of the learner. name is put before those of layers in messages. */
heed_status hd_stack_start(heed_learner *learner, const hd_transformer_spec *spec, const char *name, hd_learner_stack *out);
heed_tensor *hd_make_embedding(hd_maker *maker, const hd_transformer_spec *spec);
/* Its parameters. embedding NULL: one of its own. */
void hd_stack_make(hd_maker *maker, hd_learner_stack *stack, heed_tensor *embedding);
/* What the last layer gives, normed where the spec has it so: [B,n,width]. memory and its rows are NULL unless spec.cross. */
heed_tensor *hd_stack_states(const hd_learner_stack *stack, heed_tape *tape, const hd_id_rows *rows, heed_tensor *memory,
                             const hd_id_rows *memory_rows);
/* Rows of that -> logits. */
heed_tensor *hd_stack_head(const hd_learner_stack *stack, heed_tape *tape, heed_tensor *x);

typedef struct hd_transformer_learner {
  heed_learner learner;
  hd_learner_stack stack;         /* of who translates, the decoder */
  hd_learner_stack encoder;       /* where stack.spec.cross */
  const char *const *label_names; /* [spec.labels] */
} hd_transformer_learner;

extern const hd_learner_body hd_transformer_body;
heed_status hd_transformer_describe(const heed_learner *learner, hd_export *out);
static inline hd_transformer_learner *hd_transformer(const heed_learner *learner) { return (hd_transformer_learner *)learner; }
/* What specs make of a learner that is open and has its dropout. encoder NULL: there is none. */
heed_status hd_transformer_start(hd_transformer_learner *t, const hd_transformer_spec *spec, const hd_transformer_spec *encoder);
/* The names of labels where the head is for labels or a class, copied. HEED_E_ARGUMENT. */
heed_status hd_transformer_name_labels(hd_transformer_learner *t, const char *const *names);

/* ---- the recurrent encoder–decoder --------------------------------------------------------------------------------------------------- */

extern const hd_learner_body hd_recurrent_body; /* learner_recurrent.c */

#endif
