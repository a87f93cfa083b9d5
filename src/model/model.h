/* model.h: a loaded model: its spec and its weights in the slots that the block reads. Immutable once loaded, counted, shared between contexts. */
#ifndef HD_MODEL_H
#define HD_MODEL_H

#include "../base/base.h"
#include "../../include/heed/model.h"
#include "../attn/rope.h"
#include "../kern/matrix.h"
#include "family.h"
#include "kinds.h"

#include <stdatomic.h>

struct hd_stepper;

/* Matrices with the same input whose outputs lie side by side: queries, keys and values; gate and up. Those of one storage type are packed as one. */
enum { HD_MAX_PARTS = 3 };
typedef struct hd_stack {
  int parts;
  hd_matrix part[HD_MAX_PARTS];
  int64_t outputs;   /* of all parts */
  const float *bias; /* [outputs] or NULL */
} hd_stack;

typedef struct hd_norm {
  const float *weight, *bias; /* [width]; bias of a layer norm only */
} hd_norm;

typedef struct hd_layer {
  hd_norm attention_norm, cross_norm, feed_forward_norm; /* weight NULL: the sublayer reads the stream itself */
  hd_norm attention_post, feed_forward_post;             /* of what a sublayer gives, where norms are around it */
  hd_norm query_norm, key_norm;
  const float *content, *place, *distances; /* [heads, head_dim] twice and [distances, heads · head_dim] of Transformer-XL's positions */
  hd_stack qkv;                             /* → [heads·head_dim | kv_heads·head_dim | kv_heads·head_dim] */
  const float *projection;                  /* [rows, head_dim] of linear attention with random features */
  hd_stack output;                          /* heads·head_dim → width */
  hd_stack cross_query, cross_kv, cross_output; /* the same of spec.cross; keys and values are made of the encoder's output */
  hd_stack up;                                  /* → [gate | up], or [up] */
  hd_stack down;                                /* → width */
} hd_layer;

/* How a chat message is wrapped; see chat.c. */
typedef struct hd_chat_form hd_chat_form;

/* The model, or its encoder: a stack of layers in the same arena, which has the spec, its name and the weights of its slots, and nothing of what is about texts. */
struct heed_model {
  atomic_int references;
  hd_arena arena; /* holds everything below and this struct */
  hd_transformer_spec spec;
  const char *family, *name, *path;
  heed_tokenizer *tokenizer; /* NULL: the files hold none */

  hd_matrix embedding;   /* [vocabulary, width] */
  hd_matrix position;    /* [context + position_offset, width] where positions are learned */
  const float *sinusoid; /* [sinusoids, width] of the first positions where they are sinusoidal */
  int64_t sinusoids;
  const float *relative;      /* [buckets, heads] where they are relative */
  const float *slopes;        /* [heads] where they are ALiBi's */
  int64_t distances;          /* rows of each layer's distances where they are Transformer-XL's */
  const float *of_distances;  /* [distances, width] what they are made of */
  hd_matrix segment;          /* [segments, width] where there are any */
  hd_norm embedding_norm;     /* weight NULL: none */
  hd_rope_turns turns, local; /* where they are rotary: of layers, and of layers with a window where spec.rotary_local is */
  hd_layer *layers;
  hd_attention_kinds kinds; /* of attention, as spec.attention says */
  hd_norm final_norm;       /* weight NULL: none */
  hd_stack head_dense;      /* before a head for tokens, or the pooler of a class; parts 0: the head reads the stream itself */
  hd_norm head_norm;
  const hd_matrix *head;                      /* the embedding where tied */
  const float *head_bias;                     /* [outputs] or NULL */
  const char *const *labels;                  /* [spec.labels] */
  heed_model *encoder;                        /* what reads the source where spec.cross, else NULL */
  const struct hd_recurrent_model *recurrent; /* the whole of it where it is no transformer (recurrent.h); spec then only tells its size */

  const int32_t *ends; /* ids that end a text */
  int64_t end_count;
  /* Where spec.cross: what a target begins with, what fills batches up, the only token that may come first and as the last of the longest allowed (−1: none), and what is never chosen. */
  int32_t start, pad, forced_first, forced_last;
  const int32_t *never;
  int64_t never_count;
  const hd_chat_form *chat; /* NULL: no template, or one that heed does not know */
  const char *chat_system;  /* the system prompt that the template gives by itself, or NULL */
  bool chat_begins;         /* the template begins with the tokenizer's first token */
  bool has_template;

  /* What decodes with it (stepper.h), where it turns sources into targets; otherwise NULL. The stepper takes a reference. */
  heed_status (*stepper)(heed_context *context, heed_model *model, struct hd_stepper **out);

  int64_t parameters, weight_bytes;
};

/* rows of a stack's outputs, side by side with row stride y_stride. */
heed_status hd_stack_product(heed_context *context, const hd_stack *stack, const float *x, int64_t rows, int64_t x_stride, float *y,
                             int64_t y_stride);

/* Whether id ends a text. */
bool hd_model_ends(const heed_model *model, int32_t id);

/* A file in the directory of the configuration; *out is NULL where there is none, else it lives as long as the model. */
heed_status hd_model_beside(const hd_config *config, heed_model *model, const char *name, const char **out);

/* weights.c: every tensor into its slot. */
heed_status hd_weights_load(const hd_config *config, heed_model *model);

/* chat.c: finds the model's template beside its weights and recognises its form. */
heed_status hd_chat_load(const hd_config *config, heed_model *model);
/* The name of the token that ends a turn in the form, or NULL. */
const char *hd_chat_turn_end(const hd_chat_form *form);

#endif
