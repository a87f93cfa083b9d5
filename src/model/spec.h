/* spec.h: what steers the one transformer block.
 *
 * Every decoder and encoder that heed runs is a value of hd_transformer_spec; the forward pass reads these fields and never asks which family a model belongs to. Families (family.h)
 * only fill one from a file's configuration. */
#ifndef HD_SPEC_H
#define HD_SPEC_H

#include "../base/base.h"
#include "../../include/heed/model.h"
#include "../kern/kernels.h"

/* The most that a configuration may ask for: far above any model, far below what overflows in a product of three of them with a size. */
#define HD_MAX_LAYERS     10000
#define HD_MAX_HEADS      4096
#define HD_MAX_WIDTH      (1 << 18)
#define HD_MAX_HEAD_DIM   4096
#define HD_MAX_VOCABULARY (1 << 24)
#define HD_MAX_CONTEXT    (1 << 30)
#define HD_MAX_LABELS     (1 << 20)

/* Bytes of the texts that say what layers attend with and where their tokens stand, the end included. */
enum { HD_ATTENTION_TEXT = 512 };

typedef enum hd_norm_kind {
  HD_NORM_RMS,  /* x / sqrt(mean x² + eps) · weight (Zhang & Sennrich 2019) */
  HD_NORM_LAYER /* (x − mean) / sqrt(variance + eps) · weight + bias (Ba et al. 2016) */
} hd_norm_kind;

/* Where a sublayer f is normalised. */
typedef enum hd_norm_place {
  HD_NORM_BEFORE, /* x + f(norm(x)) */
  HD_NORM_AFTER,  /* norm(x + f(x)), and no norm after the last layer */
  HD_NORM_AROUND, /* x + norm(f(norm(x))), each norm of its own (Gemma 2) */
  HD_NORM_OUTPUT  /* x + norm(f(x)) (OLMo 2) */
} hd_norm_place;

/* What of queries and keys is normed by root mean square before they turn. */
typedef enum hd_side_norm {
  HD_SIDE_NORM_NONE,
  HD_SIDE_NORM_HEAD, /* each head for itself, with one weight for all of them (Gemma 3, Qwen 3) */
  HD_SIDE_NORM_ROW   /* all heads of a row together (OLMo 2) */
} hd_side_norm;

typedef enum hd_feed_forward_kind {
  HD_FEED_FORWARD_PLAIN, /* down(act(up(x))) */
  HD_FEED_FORWARD_GATED  /* down(act(gate(x)) · up(x)) (Shazeer 2020) */
} hd_feed_forward_kind;

typedef enum hd_positions {
  HD_POSITIONS_LEARNED,            /* a row added to the embedding */
  HD_POSITIONS_ROTARY_HALF,        /* turns the pairs (i, i + r/2): Hugging Face's order */
  HD_POSITIONS_ROTARY_INTERLEAVED, /* turns the pairs (2i, 2i + 1): the paper's order (Su et al. 2021), and that of llama in GGUF */
  HD_POSITIONS_SINUSOIDAL,         /* a row of half sines, then half cosines, added to the embedding (Vaswani et al. 2017) */
  HD_POSITIONS_RELATIVE, /* a number for each bucket of distances and head is added to scores, the same in all layers (Raffel et al. 2020) */
  HD_POSITIONS_ALIBI,    /* a slope of the distance, of each head its own, is taken off scores (Press et al. 2022) */
  HD_POSITIONS_XL,       /* queries also meet what is made of sinusoids of the distance (Dai et al. 2019) */
  HD_POSITIONS_NONE
} hd_positions;

typedef struct hd_transformer_spec {
  int64_t layers, width, heads, kv_heads, head_dim, feed_forward, vocabulary;
  int64_t context; /* positions the model was made for; a limit only where positions are learned */

  hd_norm_kind norm;
  hd_norm_place norm_place;
  double norm_eps;

  hd_feed_forward_kind feed_forward_kind;
  heed_activation activation;

  hd_positions positions; /* of all layers, unless the text says otherwise */
  /* Names (learned, sinusoidal, rope, alibi, xl, t5, none) with '/' between them that layers take in turn; "": `positions` in all. What is added to the embedding is there in all layers, whichever names it. */
  char layer_positions[HD_ATTENTION_TEXT];
  int64_t rotary_dim;             /* leading values of a head that are turned */
  int64_t rotary_exponent;        /* what frequencies take for that; 0: the same */
  heed_rope_scaling rotary;       /* by which their frequencies are made */
  heed_rope_scaling rotary_local; /* of layers with a window; size 0: as the others */
  int64_t position_offset;        /* the row that the first position gets, where rows are added */
  bool sinusoid_closed;           /* the last frequency of sinusoidal positions is 1/theta itself, not a step short of it (tensor2tensor) */
  int64_t relative_buckets, relative_distance; /* of relative positions: how many, and from where on all distances share the last */

  char attention[HD_ATTENTION_TEXT]; /* what layers attend with among their own (kinds.h); "": all to every key that they may see */
  double attention_scale;            /* 0: 1/sqrt(head_dim) */
  double attention_softcap;          /* 0: none */
  hd_side_norm side_norm;
  int64_t window;                        /* keys a query sees back from itself, itself included, and of an encoder as far ahead; 0: all */
  uint64_t full[HD_MAX_LAYERS / 64 + 1]; /* bits of layers that have no window in spite of it */
  double logit_softcap;                  /* 0: none */
  bool scaled_embedding;                 /* embeddings of tokens are multiplied by √width (Vaswani et al. 2017) */
  bool scaled_logits;                    /* a head for tokens reads the stream divided by √width (T5, where it is the embedding) */

  bool cross; /* each layer has a second attention, whose keys and values are made of what an encoder gave; its width is this one's */
  bool shared_embedding; /* of an encoder with a decoder: its embedding is the decoder's */
  bool headless;         /* what the last layer gives is the result: an encoder's for a decoder */
  bool bidirectional;    /* an encoder: every token sees all others, so a sequence runs at once */
  int64_t segments;      /* rows of the segment embedding, of which the first is added to every token; 0: none */
  bool embedding_norm;   /* what the embeddings add up to is normed */
  heed_head head;
  int64_t labels;      /* of a head that is not for tokens */
  bool head_transform; /* a head for tokens reads norm(act(dense(x))), as BERT's for masked ones (Devlin et al. 2019) */

  bool bias_qkv, bias_output, bias_feed_forward, bias_head;
  bool norm_unbiased;       /* norms have no bias */
  bool norm_shifted;        /* norms multiply by 1 + weight (Gemma) */
  bool first_bare;          /* the first layer's attention has no norm of its own: the embedding's is in front of it (ModernBERT) */
  bool parallel;            /* both sublayers read the same stream, and what they give is added together (Wang & Komatsuzaki 2021) */
  bool head_dense_unbiased; /* what a head for tokens reads is made without a bias */
  bool tied;                /* a head for tokens is the embedding */
} hd_transformer_spec;

/* Fills what follows from other fields (kv_heads, head_dim, feed_forward, rotary_dim where 0) and checks that all fit together. HEED_E_FORMAT, with a sentence that begins with
 * file. */
heed_status hd_spec_finish(heed_context *context, const char *file, hd_transformer_spec *spec);

/* What a row of logits has: tokens or labels. */
static inline int64_t hd_spec_outputs(const hd_transformer_spec *spec) {
  return spec->head == HEED_HEAD_TOKENS ? spec->vocabulary : spec->labels;
}
static inline bool hd_spec_transforms(const hd_transformer_spec *spec) { return spec->head == HEED_HEAD_TOKENS && spec->head_transform; }
static inline bool hd_spec_head_is_embedding(const hd_transformer_spec *spec) { return spec->head == HEED_HEAD_TOKENS && spec->tied; }

/* Numbers of a row of queries, keys and values in a pass. (LSH attention, which has no keys of its own, leaves the last of them unused.) */
static inline int64_t hd_spec_qkv(const hd_transformer_spec *spec) { return (spec->heads + 2 * spec->kv_heads) * spec->head_dim; }

/* Those of a layer where they take turns. */
hd_positions hd_spec_turn(const hd_transformer_spec *spec, int64_t layer);
static inline hd_positions hd_spec_positions_of(const hd_transformer_spec *spec, int64_t layer) {
  return spec->layer_positions[0] ? hd_spec_turn(spec, layer) : spec->positions;
}
/* Whether any layer has them. */
bool hd_spec_uses(const hd_transformer_spec *spec, hd_positions positions);

static inline bool hd_positions_rotate(hd_positions positions) {
  return positions == HD_POSITIONS_ROTARY_HALF || positions == HD_POSITIONS_ROTARY_INTERLEAVED;
}
/* Whether queries and keys turn in any layer, and whether a session ends where the table of positions does. */
static inline bool hd_spec_rotates(const hd_transformer_spec *spec) {
  return hd_spec_uses(spec, HD_POSITIONS_ROTARY_HALF) || hd_spec_uses(spec, HD_POSITIONS_ROTARY_INTERLEAVED);
}
/* Positions that a stack has; where they are computed, as many as one may count. */
int64_t hd_spec_positions(const hd_transformer_spec *spec);
static inline bool hd_spec_has_table(const hd_transformer_spec *spec) { return hd_spec_uses(spec, HD_POSITIONS_LEARNED); }

/* The window of one layer; 0: none. */
int64_t hd_spec_window(const hd_transformer_spec *spec, int64_t layer);
static inline bool hd_spec_is_full(const hd_transformer_spec *spec, int64_t layer) { return spec->full[layer / 64] >> layer % 64 & 1; }
static inline void hd_spec_set_full(hd_transformer_spec *spec, int64_t layer) { spec->full[layer / 64] |= (uint64_t)1 << layer % 64; }
/* What its frequencies are powers over. */
static inline int64_t hd_spec_exponent(const hd_transformer_spec *spec) {
  return spec->rotary_exponent ? spec->rotary_exponent : spec->rotary_dim;
}
/* By which frequencies a layer turns. */
static inline bool hd_spec_turns_locally(const hd_transformer_spec *spec, int64_t layer) {
  return spec->rotary_local.size > 0 && hd_spec_window(spec, layer) > 0;
}

/* Distances that a stack has rows for where positions are Transformer-XL's, of `length` positions, and the first of them: those beyond share the last. */
static inline int64_t hd_spec_distances(const hd_transformer_spec *spec, int64_t length) {
  return spec->bidirectional ? 2 * length - 1 : length;
}
static inline int64_t hd_spec_first_distance(const hd_transformer_spec *spec, int64_t length) {
  return spec->bidirectional ? 1 - length : 0;
}

/* The row of sinusoidal positions that the token at a position gets, width values: sines of all frequencies, then cosines. */
void hd_spec_sinusoid(const hd_transformer_spec *spec, int64_t position, float *out);

/* By the names of configurations ("silu", "gelu_new", ...): false if unknown. */
bool hd_activation_from_name(const char *name, size_t length, heed_activation *out);
/* The usual name of one that feed-forward layers have; static. */
const char *hd_activation_name(heed_activation kind);
/* "silu, gelu, ..." for messages; static. */
const char *hd_activation_known(void);

#endif
