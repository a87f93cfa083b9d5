/* heed.c: what heed trains and no other program has a name for, such as LayerNorm with rotary positions: the configuration is the spec itself. */
#include "../family.h"

static const char *const norms[] = {"rms", "layer", NULL};
static const char *const places[] = {"before", "after", NULL};
static const char *const feed_forwards[] = {"plain", "gated", NULL};
static const char *const positions[] = {"learned", "rotary_half", "rotary_interleaved", "sinusoidal", "relative", "alibi", "xl",
                                        "none",    NULL};

static const char *const heads[] = {"tokens", "labels", "class", NULL};

// clang-format off
/* Of one stack; P is put before the keys of an encoder with a decoder. */
#define STACK_FIELDS(P)                                                                                                                    \
  {NULL, P "layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},                                                    \
  {NULL, P "width", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},                                                       \
  {NULL, P "heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},                                                       \
  {NULL, P "kv_heads", HD_FIELD_INTEGER, HD_AT(kv_heads), 1, HD_MAX_HEADS, true, 0, NULL},                                                 \
  {NULL, P "head_dim", HD_FIELD_INTEGER, HD_AT(head_dim), 1, HD_MAX_HEAD_DIM, true, 0, NULL},                                              \
  {NULL, P "feed_forward", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},                                         \
  {NULL, P "context", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},                                                 \
  {NULL, P "vocabulary", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL},                                        \
  {NULL, P "norm", HD_FIELD_CHOICE, HD_AT(norm), 0, 0, true, 0, norms},                                                                    \
  {NULL, P "norm_place", HD_FIELD_CHOICE, HD_AT(norm_place), 0, 0, true, 0, places},                                                       \
  {NULL, P "norm_epsilon", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, true, 0, NULL},                                       \
  {NULL, P "norm_unbiased", HD_FIELD_BOOL, HD_AT(norm_unbiased), 0, 1, false, 0, NULL},                                                    \
  {NULL, P "feed_forward_kind", HD_FIELD_CHOICE, HD_AT(feed_forward_kind), 0, 0, true, 0, feed_forwards},                                  \
  {NULL, P "positions", HD_FIELD_CHOICE, HD_AT(positions), 0, 0, true, 0, positions},                                                      \
  {NULL, P "layer_positions", HD_FIELD_TEXT, HD_AT(layer_positions), 0, 0, false, 0, NULL},                                                \
  {NULL, P "position_offset", HD_FIELD_INTEGER, HD_AT(position_offset), 0, HD_MAX_CONTEXT, false, 0, NULL},                                \
  {NULL, P "sinusoid_closed", HD_FIELD_BOOL, HD_AT(sinusoid_closed), 0, 1, false, 0, NULL},                                                \
  {NULL, P "relative_buckets", HD_FIELD_INTEGER, HD_AT(relative_buckets), 0, 1 << 20, false, 0, NULL},                                     \
  {NULL, P "relative_distance", HD_FIELD_INTEGER, HD_AT(relative_distance), 0, HD_MAX_CONTEXT, false, 0, NULL},                            \
  {NULL, P "attention", HD_FIELD_TEXT, HD_AT(attention), 0, 0, false, 0, NULL},                                                            \
  {NULL, P "attention_scale", HD_FIELD_NUMBER, HD_AT(attention_scale), 0, 1e6, false, 0, NULL},                                            \
  {NULL, P "scaled_embedding", HD_FIELD_BOOL, HD_AT(scaled_embedding), 0, 1, false, 0, NULL},                                              \
  {NULL, P "bias_qkv", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},                                                              \
  {NULL, P "bias_output", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},                                                        \
  {NULL, P "bias_feed_forward", HD_FIELD_BOOL, HD_AT(bias_feed_forward), 0, 1, false, 0, NULL},                                            \
  {NULL, P "bidirectional", HD_FIELD_BOOL, HD_AT(bidirectional), 0, 1, false, 0, NULL},                                                    \
  {NULL, P "segments", HD_FIELD_INTEGER, HD_AT(segments), 0, HD_MAX_VOCABULARY, false, 0, NULL},                                           \
  {NULL, P "embedding_norm", HD_FIELD_BOOL, HD_AT(embedding_norm), 0, 1, false, 0, NULL}

#define STACK_TENSORS(P)                                                                                                                   \
  [HD_SLOT_EMBEDDING] = P "embedding", [HD_SLOT_POSITION] = P "position", [HD_SLOT_SEGMENT] = P "segment",                                 \
  [HD_SLOT_RELATIVE] = P "relative", [HD_SLOT_EMBEDDING_NORM] = P "embedding_norm", [HD_SLOT_FINAL_NORM] = P "final_norm",                 \
  [HD_SLOT_ATTENTION_NORM] = P "layers.#.attention_norm", [HD_SLOT_QKV] = P "layers.#.qkv", [HD_SLOT_OUTPUT] = P "layers.#.output",        \
  [HD_SLOT_FEED_FORWARD_NORM] = P "layers.#.feed_forward_norm", [HD_SLOT_GATE] = P "layers.#.gate", [HD_SLOT_UP] = P "layers.#.up",        \
  [HD_SLOT_DOWN] = P "layers.#.down", [HD_SLOT_DISTANCE] = P "layers.#.distance", [HD_SLOT_CONTENT] = P "layers.#.content",                \
  [HD_SLOT_PLACE] = P "layers.#.place"
// clang-format on

static const hd_field encoder_fields[] = {
    STACK_FIELDS("encoder_"),
    {NULL, "shared_embedding", HD_FIELD_BOOL, HD_AT(shared_embedding), 0, 1, false, 0, NULL},
};

static const hd_family encoder = {
    .name = "heed",
    .base = {.headless = true},
    .fields = encoder_fields,
    .field_count = HD_COUNT(encoder_fields),
    .activation_key = "encoder_activation",
    .json = {.architecture = "heed", .tensors = {STACK_TENSORS("encoder.")}},
};

static const hd_field fields[] = {
    STACK_FIELDS(""),
    {NULL, "cross", HD_FIELD_BOOL, HD_AT(cross), 0, 1, false, 0, NULL},
    {NULL, "head", HD_FIELD_CHOICE, HD_AT(head), 0, 0, false, 0, heads},
    {NULL, "head_transform", HD_FIELD_BOOL, HD_AT(head_transform), 0, 1, false, 0, NULL},
    {NULL, "bias_head", HD_FIELD_BOOL, HD_AT(bias_head), 0, 1, false, 0, NULL},
    {NULL, "scaled_logits", HD_FIELD_BOOL, HD_AT(scaled_logits), 0, 1, false, 0, NULL},
    {NULL, "tied", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 0, NULL},
};

const hd_family hd_family_heed = {
    .name = "heed",
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "activation",
    .json = {.architecture = "heed",
             .tensors =
                 {STACK_TENSORS(""), [HD_SLOT_CROSS_NORM] = "layers.#.cross_norm", [HD_SLOT_CROSS_QUERY] = "layers.#.cross_query",
                  [HD_SLOT_CROSS_KEY] = "layers.#.cross_key", [HD_SLOT_CROSS_VALUE] = "layers.#.cross_value",
                  [HD_SLOT_CROSS_OUTPUT] = "layers.#.cross_output", [HD_SLOT_HEAD_DENSE] = "head_dense", [HD_SLOT_HEAD_NORM] = "head_norm",
                  [HD_SLOT_HEAD] = "head", [HD_SLOT_HEAD_BIAS] = "head", [HD_SLOT_POOLER] = "pooler", [HD_SLOT_CLASSIFIER] = "head"}},
    .encoder = &encoder,
};
