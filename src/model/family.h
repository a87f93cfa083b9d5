/* family.h: a family is a table: which configuration fields fill which members of the spec, and which tensor names fill which slots.
 *
 * A new family is one file in families/ and one line in the list of families.c. What a table cannot say (rotary positions in their four spellings, the activation's name) is read
 * by config.c, for all families alike. */
#ifndef HD_FAMILY_H
#define HD_FAMILY_H

#include "../io/json.h"
#include "../io/tensors.h"
#include "spec.h"

#include <math.h>

typedef enum hd_field_kind {
  HD_FIELD_INTEGER,
  HD_FIELD_NUMBER,
  HD_FIELD_BOOL,
  HD_FIELD_TEXT,    /* the member is [HD_ATTENTION_TEXT]; left out of files where it is empty */
  HD_FIELD_CHOICE,  /* one of `choices`; the member is an enum whose values are their places */
  HD_FIELD_REFUSED, /* a switch that changes the arithmetic in a way heed does not know: HEED_E_UNSUPPORTED unless it is `fallback` */
  HD_FIELD_ZERO     /* a count of parts that heed does not know: HEED_E_UNSUPPORTED unless it is 0 */
} hd_field_kind;

/* One value of a configuration. A GGUF key that begins with '.' gets the architecture in front; NULL: not in that kind of file. */
typedef struct hd_field {
  const char *gguf, *json;
  hd_field_kind kind;
  size_t at; /* offset in hd_transformer_spec */
  double min, max;
  bool required;
  double fallback;            /* where it is absent and not required */
  const char *const *choices; /* NULL at the end */
} hd_field;

/* Where a tensor goes. From ATTENTION_NORM on there is one in each layer. */
typedef enum hd_slot {
  HD_SLOT_EMBEDDING,
  HD_SLOT_POSITION,
  HD_SLOT_SEGMENT,
  HD_SLOT_EMBEDDING_NORM,
  HD_SLOT_FINAL_NORM,
  HD_SLOT_HEAD_DENSE, /* what the head reads instead of the stream: dense and its norm */
  HD_SLOT_HEAD_NORM,
  HD_SLOT_HEAD,
  HD_SLOT_HEAD_BIAS,      /* a slot of its own, because BERT's bias is named by itself */
  HD_SLOT_POOLER,         /* what the head for a class reads instead of the first position */
  HD_SLOT_CLASSIFIER,     /* the head for labels or a class */
  HD_SLOT_ROTARY_FACTORS, /* optional: what each rotary frequency is divided by */
  HD_SLOT_RELATIVE,       /* [buckets, heads], for all layers */
  HD_SLOT_ATTENTION_NORM,
  HD_SLOT_ATTENTION_POST, /* the second norm where there are two */
  HD_SLOT_DISTANCE,       /* of Transformer-XL's positions: the matrix, u and v */
  HD_SLOT_CONTENT,
  HD_SLOT_PLACE,
  HD_SLOT_QUERY_NORM,
  HD_SLOT_KEY_NORM,
  HD_SLOT_QKV, /* queries, keys and values in one matrix; otherwise the next three */
  HD_SLOT_QUERY,
  HD_SLOT_KEY,
  HD_SLOT_VALUE,
  HD_SLOT_OUTPUT,
  HD_SLOT_CROSS_NORM, /* of an attention to an encoder's positions, and its matrices */
  HD_SLOT_CROSS_QUERY,
  HD_SLOT_CROSS_KEY,
  HD_SLOT_CROSS_VALUE,
  HD_SLOT_CROSS_OUTPUT,
  HD_SLOT_FEED_FORWARD_NORM,
  HD_SLOT_FEED_FORWARD_POST,
  HD_SLOT_GATE_UP, /* gate and up in one matrix; otherwise the next two */
  HD_SLOT_GATE,
  HD_SLOT_UP,
  HD_SLOT_GATED_UP, /* where it is called otherwise beside a gate */
  HD_SLOT_DOWN,
  HD_SLOTS
} hd_slot;

/* How one kind of file spells a family. */
typedef struct hd_spelling {
  const char *architecture; /* general.architecture or model_type; NULL: the family does not come in this kind of file */
  hd_positions positions;
  const char *optional_prefix;   /* left out by some files; NULL: none */
  const char *tensors[HD_SLOTS]; /* without ".weight" and ".bias"; '#' stands for the layer; NULL: no such tensor */
  const char *separate;          /* of the embedding, where encoder and decoder have one each; NULL: tensors' */
  bool head_by_head;             /* in QKV queries, keys and values of one head lie together */
  bool transposed;               /* layer matrices are stored [inputs, outputs] */
  bool head_bias_row;            /* the head's bias is a row [1, outputs] of its own, called as in tensors; none: zeros */
} hd_spelling;

enum { HD_HEADS = HEED_HEAD_CLASS + 1 };

/* The configuration of an open model file, and how its family spells it. */
typedef struct hd_config hd_config;

/* How a family spells rotary positions and windows in the older form of config.json; the newer, rope_parameters and layer_types, is the same in all. */
typedef struct hd_rotary_keys {
  const char *theta, *local;           /* NULL: "rope_theta", and one for all layers */
  double theta_default, local_default; /* 0: 10000; local_default 0: one for all layers */
  const char *partial;                 /* NULL: "partial_rotary_factor" */
  double partial_default;              /* 0: 1 */
  bool odd; /* where an odd width is left, frequencies are those of it and one number more turns, as in transformers */
} hd_rotary_keys;
typedef struct hd_window_keys {
  const char *every; /* how often a layer has no window; NULL: never, or as the default says */
  int64_t every_default;
  bool first; /* the first of so many layers; otherwise the last */
} hd_window_keys;

typedef struct hd_family hd_family;
struct hd_family {
  const char *name;
  hd_transformer_spec base; /* what no configuration says */
  const hd_field *fields;
  int64_t field_count;
  const char *activation_key;        /* in config.json; NULL: base.activation */
  bool activation_gates;             /* its value says also whether the feed-forward layers are gated: "gated-gelu" (T5) */
  const char *class_names[HD_HEADS]; /* of transformers, for `architectures`, by heed_head; NULL: none */
  hd_spelling gguf, json;
  hd_rotary_keys rotary;
  hd_window_keys windows;
  heed_status (*derive)(const hd_config *config,
                        hd_transformer_spec *spec); /* what follows from fields in a way of its own; NULL: nothing */
  bool only_read;                                   /* heed writes no files of it */
  const hd_family *encoder; /* of specs with `cross`, the table of the other stack, whose values lie in the same files; NULL: one stack */
};

struct hd_config {
  heed_context *context;
  const hd_tensors *tensors;
  const char *file; /* for messages */
  const hd_family *family;
  const hd_spelling *spelling;
  bool separate; /* encoder and decoder have an embedding each */
};

/* Finds the family that the file names. HEED_E_UNSUPPORTED lists the known. */
heed_status hd_family_of(heed_context *context, const hd_tensors *tensors, hd_config *out);
/* Reads and checks the whole spec. HEED_E_FORMAT, HEED_E_UNSUPPORTED. */
heed_status hd_config_read(const hd_config *config, hd_transformer_spec *out);

/* Of the model's encoder, where its family has one. */
static inline hd_config hd_config_of_encoder(const hd_config *config) {
  hd_config out = *config;
  out.family = config->family->encoder;
  out.spelling = hd_tensors_is_gguf(config->tensors) ? &out.family->gguf : &out.family->json;
  return out;
}

/* The family whose files can say all of the specs, as model_type in a config.json: the first of the list that fits, "heed" at last. */
const hd_family *hd_family_for(const hd_transformer_spec *spec, const hd_transformer_spec *encoder);
/* The spec as the family's files hold it: parts that those always have and the model does without, such as biases, are written as zeros. */
hd_transformer_spec hd_family_written(const hd_family *family, const hd_transformer_spec *spec);
/* A config.json of the family: what hd_config_read makes the same specs of. encoder NULL: one stack. labels [spec->labels] are their names. A new reference, or NULL if memory is short. */
json_t *hd_config_write(const hd_family *family, const hd_transformer_spec *spec, const hd_transformer_spec *encoder,
                        const char *const *labels);
/* The top of config.json, of a model that has one. */
hd_json_place hd_config_top(const hd_config *config);
/* The names of the labels: [spec->labels] texts in the arena; "LABEL_0", ... where the file has none. HEED_E_FORMAT. */
heed_status hd_config_labels(const hd_config *config, const hd_transformer_spec *spec, hd_arena *arena, const char *const **out);

/* The name of a slot's tensor into a buffer; layer is ignored for slots outside layers. */
#define HD_TENSOR_NAME_LENGTH 128
const char *hd_tensor_name(const hd_config *config, hd_slot slot, int64_t layer, const char *suffix, char buffer[HD_TENSOR_NAME_LENGTH]);

/* ---- for the tables of families ------------------------------------------------------------------------------------------- */

#define HD_AT(member) offsetof(hd_transformer_spec, member)

/* The fallback of a field that leaves what another has said, where it is absent. */
#define HD_UNCHANGED NAN

/* Norms in use have 1e-6 to 1e-5; these only keep out what is no epsilon. */
#define HD_MIN_EPS 1e-20
#define HD_MAX_EPS 1.0

/* The sizes of a stack, as most configurations name them. */
// clang-format off
#define HD_SIZE_FIELDS                                                                                                                     \
  {NULL, "num_hidden_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},                                           \
  {NULL, "hidden_size", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},                                                   \
  {NULL, "num_attention_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},                                           \
  {NULL, "intermediate_size", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},                                      \
  {NULL, "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},                                   \
  {NULL, "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL}

/* The configuration of Llama, which most later models kept. */
#define HD_LLAMA_FIELDS                                                                                                      \
  {".block_count", "num_hidden_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},                         \
  {".embedding_length", "hidden_size", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},                            \
  {".attention.head_count", "num_attention_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},                \
  {".attention.head_count_kv", "num_key_value_heads", HD_FIELD_INTEGER, HD_AT(kv_heads), 1, HD_MAX_HEADS, false, 0, NULL},         \
  {".attention.key_length", "head_dim", HD_FIELD_INTEGER, HD_AT(head_dim), 1, HD_MAX_HEAD_DIM, false, 0, NULL},                    \
  {".feed_forward_length", "intermediate_size", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},            \
  {".context_length", "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},              \
  {".attention.layer_norm_rms_epsilon", "rms_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, true, 0, NULL},  \
  {".vocab_size", "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, false, 0, NULL},                        \
  {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 0, NULL}
// clang-format on

/* Its names of tensors. */
#define HD_GGUF_LLAMA_TENSORS                                                                                                              \
  {                                                                                                                                        \
    [HD_SLOT_EMBEDDING] = "token_embd", [HD_SLOT_FINAL_NORM] = "output_norm", [HD_SLOT_HEAD] = "output",                                   \
    [HD_SLOT_ROTARY_FACTORS] = "rope_freqs", [HD_SLOT_ATTENTION_NORM] = "blk.#.attn_norm", [HD_SLOT_QUERY] = "blk.#.attn_q",               \
    [HD_SLOT_KEY] = "blk.#.attn_k", [HD_SLOT_VALUE] = "blk.#.attn_v", [HD_SLOT_OUTPUT] = "blk.#.attn_output",                              \
    [HD_SLOT_FEED_FORWARD_NORM] = "blk.#.ffn_norm", [HD_SLOT_GATE] = "blk.#.ffn_gate", [HD_SLOT_UP] = "blk.#.ffn_up",                      \
    [HD_SLOT_DOWN] = "blk.#.ffn_down",                                                                                                     \
  }
/* Those but for its norms, of which later models have others. */
#define HD_JSON_LLAMA_MATRICES                                                                                                             \
  [HD_SLOT_EMBEDDING] = "model.embed_tokens", [HD_SLOT_FINAL_NORM] = "model.norm", [HD_SLOT_HEAD] = "lm_head",                             \
  [HD_SLOT_QUERY] = "model.layers.#.self_attn.q_proj", [HD_SLOT_KEY] = "model.layers.#.self_attn.k_proj",                                  \
  [HD_SLOT_VALUE] = "model.layers.#.self_attn.v_proj", [HD_SLOT_OUTPUT] = "model.layers.#.self_attn.o_proj",                               \
  [HD_SLOT_GATE] = "model.layers.#.mlp.gate_proj", [HD_SLOT_UP] = "model.layers.#.mlp.up_proj",                                            \
  [HD_SLOT_DOWN] = "model.layers.#.mlp.down_proj"
#define HD_JSON_LLAMA_NORMS                                                                                                                \
  [HD_SLOT_ATTENTION_NORM] = "model.layers.#.input_layernorm", [HD_SLOT_FEED_FORWARD_NORM] = "model.layers.#.post_attention_layernorm"
#define HD_JSON_LLAMA_TENSORS                                                                                                              \
  { HD_JSON_LLAMA_MATRICES, HD_JSON_LLAMA_NORMS }

#endif
