/* heed.c: what heed trains and no other program has a name for, such as LayerNorm with rotary positions: the configuration is the spec itself. */
#include "../family.h"

static const char *const norms[] = {"rms", "layer", NULL};
static const char *const places[] = {"before", "after", NULL};
static const char *const feed_forwards[] = {"plain", "gated", NULL};
static const char *const positions[] = {"learned", "rotary_half", "rotary_interleaved", NULL};

static const char *const heads[] = {"tokens", "labels", "class", NULL};

static const hd_field fields[] = {
    {NULL, "layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},
    {NULL, "width", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},
    {NULL, "heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},
    {NULL, "kv_heads", HD_FIELD_INTEGER, HD_AT(kv_heads), 1, HD_MAX_HEADS, true, 0, NULL},
    {NULL, "head_dim", HD_FIELD_INTEGER, HD_AT(head_dim), 1, HD_MAX_HEAD_DIM, true, 0, NULL},
    {NULL, "feed_forward", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},
    {NULL, "context", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},
    {NULL, "vocabulary", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL},
    {NULL, "norm", HD_FIELD_CHOICE, HD_AT(norm), 0, 0, true, 0, norms},
    {NULL, "norm_place", HD_FIELD_CHOICE, HD_AT(norm_place), 0, 0, true, 0, places},
    {NULL, "norm_epsilon", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, true, 0, NULL},
    {NULL, "norm_unbiased", HD_FIELD_BOOL, HD_AT(norm_unbiased), 0, 1, false, 0, NULL},
    {NULL, "feed_forward_kind", HD_FIELD_CHOICE, HD_AT(feed_forward_kind), 0, 0, true, 0, feed_forwards},
    {NULL, "positions", HD_FIELD_CHOICE, HD_AT(positions), 0, 0, true, 0, positions},
    {NULL, "bias_qkv", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},
    {NULL, "bias_output", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},
    {NULL, "bias_feed_forward", HD_FIELD_BOOL, HD_AT(bias_feed_forward), 0, 1, false, 0, NULL},
    {NULL, "bias_head", HD_FIELD_BOOL, HD_AT(bias_head), 0, 1, false, 0, NULL},
    {NULL, "bidirectional", HD_FIELD_BOOL, HD_AT(bidirectional), 0, 1, false, 0, NULL},
    {NULL, "segments", HD_FIELD_INTEGER, HD_AT(segments), 0, HD_MAX_VOCABULARY, false, 0, NULL},
    {NULL, "embedding_norm", HD_FIELD_BOOL, HD_AT(embedding_norm), 0, 1, false, 0, NULL},
    {NULL, "head", HD_FIELD_CHOICE, HD_AT(head), 0, 0, false, 0, heads},
    {NULL, "head_transform", HD_FIELD_BOOL, HD_AT(head_transform), 0, 1, false, 0, NULL},
    {NULL, "tied", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 0, NULL},
};

const hd_family hd_family_heed = {
    .name = "heed",
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "activation",
    .json = {.architecture = "heed",
             .tensors = {[HD_SLOT_EMBEDDING] = "embedding",
                         [HD_SLOT_POSITION] = "position",
                         [HD_SLOT_SEGMENT] = "segment",
                         [HD_SLOT_EMBEDDING_NORM] = "embedding_norm",
                         [HD_SLOT_FINAL_NORM] = "final_norm",
                         [HD_SLOT_HEAD_DENSE] = "head_dense",
                         [HD_SLOT_HEAD_NORM] = "head_norm",
                         [HD_SLOT_HEAD] = "head",
                         [HD_SLOT_HEAD_BIAS] = "head",
                         [HD_SLOT_POOLER] = "pooler",
                         [HD_SLOT_CLASSIFIER] = "head",
                         [HD_SLOT_ATTENTION_NORM] = "layers.#.attention_norm",
                         [HD_SLOT_QKV] = "layers.#.qkv",
                         [HD_SLOT_OUTPUT] = "layers.#.output",
                         [HD_SLOT_FEED_FORWARD_NORM] = "layers.#.feed_forward_norm",
                         [HD_SLOT_GATE] = "layers.#.gate",
                         [HD_SLOT_UP] = "layers.#.up",
                         [HD_SLOT_DOWN] = "layers.#.down"}},
};
