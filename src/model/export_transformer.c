/* export_transformer.c: a transformer as a family's files: the spec as its config.json, parameters under its names.
 *
 * A part of a packed matrix, a matrix stored by inputs, a bias of zeros that the family has and the learner has not are all views. */
#include "export.h"
#include "family.h"
#include "learner.h"

#include "../kern/matrix.h"
#include "../tensor/tensor.h"

typedef struct export {
  hd_export *out;
  const hd_learner_stack *learner;
  hd_config names; /* only the family's spelling is in use */
}
export;

static float zero = 0;

/* Rows of a matrix that is stored as a file has it. */
typedef struct stored_rows {
  const hd_matrix *part;
  int64_t first, rows;
} stored_rows;

static void bring_rows(heed_context *context, const void *data, float *out) {
  const stored_rows *all = data;
  const hd_matrix *part = all->part;
  for (int64_t row = all->first, end = row + all->rows, top = 0; row < end; top += part++->outputs) { // top: the part's first row
    const int64_t rows = HD_MIN(end, top + part->outputs) - row;
    if (rows <= 0) continue;
    hd_matrix_rows(context, part, row - top, rows, out);
    out += rows * part->inputs;
    row += rows;
  }
}

typedef void (*bring_fn)(heed_context *context, const void *data, float *out);

static void put_brought(export *e, hd_slot slot, int64_t layer, const char *suffix, heed_view view, bring_fn bring) {
  char buffer[HD_TENSOR_NAME_LENGTH];
  hd_export_put(e->out, hd_tensor_name(&e->names, slot, layer, suffix, buffer), view, bring);
}

static void put(export *e, hd_slot slot, int64_t layer, const char *suffix, heed_view view) {
  put_brought(e, slot, layer, suffix, view, NULL);
}

/* Rows [begin, begin + rows) of a parameter. */
static heed_view part(const heed_tensor *t, int64_t begin, int64_t rows) {
  heed_view view = heed_tensor_value(t);
  if (view.data) view.data = (float *)view.data + begin * view.stride[0];
  view.dim[0] = rows;
  return view;
}

/* Rows [begin, begin + rows) of a matrix. */
static void put_matrix(export *e, hd_slot slot, int64_t layer, const heed_tensor *t, bool transposed, int64_t begin, int64_t rows) {
  heed_view view = part(t, begin, rows);
  stored_rows *source = NULL;
  if (t->stored && e->out->status == HEED_OK)
    e->out->status = hd_arena_allocate(&e->out->arena, e->out->context, "a matrix to write", 1, sizeof *source, &source);
  if (source) {
    *source = (stored_rows){t->stored, begin, rows};
    view.data = source;
  }
  put_brought(e, slot, layer, ".weight", transposed ? heed_view_swap(view, 0, 1) : view, source ? bring_rows : NULL);
}

/* A bias, or zeros where the learner has none; some families keep that of the head as a row. */
static void put_bias(export *e, hd_slot slot, int64_t layer, const heed_tensor *b, int64_t begin, int64_t rows) {
  const heed_view none = {&zero, HEED_F32, 1, {rows}, {0}};
  heed_view view = b ? part(b, begin, rows) : none;
  if (slot == HD_SLOT_HEAD_BIAS && e->names.spelling->head_bias_row)
    view = (heed_view){view.data, HEED_F32, 2, {1, rows}, {0, view.stride[0]}};
  put(e, slot, layer, ".bias", view);
}

/* A matrix of a layer and its bias: rows [begin, begin + rows). The family wants a bias where `biased`, though the learner may have none. */
static void put_product(export *e, hd_slot slot, int64_t layer, const heed_tensor *w, const heed_tensor *b, bool biased, int64_t begin,
                        int64_t rows) {
  put_matrix(e, slot, layer, w, e->names.spelling->transposed, begin, rows);
  if (biased) put_bias(e, slot, layer, b, begin, rows);
}

static void put_norm(export *e, hd_slot slot, int64_t layer, const heed_nn_norm *norm, bool biased) {
  put(e, slot, layer, ".weight", heed_tensor_value(norm->weight));
  if (biased) put_bias(e, slot, layer, norm->bias, 0, e->learner->spec.width);
}

static bool has_norm_bias(const hd_transformer_spec *written) { return written->norm == HD_NORM_LAYER && !written->norm_unbiased; }

static void put_cross(export *e, int64_t i, const hd_transformer_spec *written) {
  const hd_transformer_spec *spec = &e->learner->spec;
  const heed_nn_attention *a = &e->learner->layers[i].cross;
  const int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  put_norm(e, HD_SLOT_CROSS_NORM, i, &e->learner->layers[i].cross_norm, has_norm_bias(written));
  put_product(e, HD_SLOT_CROSS_QUERY, i, a->w_q, a->b_q, written->bias_qkv, 0, q);
  put_product(e, HD_SLOT_CROSS_KEY, i, a->w_kv, a->b_kv, written->bias_qkv, 0, kv);
  put_product(e, HD_SLOT_CROSS_VALUE, i, a->w_kv, a->b_kv, written->bias_qkv, kv, kv);
  put_product(e, HD_SLOT_CROSS_OUTPUT, i, a->w_o, a->b_o, written->bias_output, 0, spec->width);
}

/* With biases as the family's files have them. */
static void put_layer(export *e, int64_t i, const hd_transformer_spec *written) {
  const hd_transformer_spec *spec = &e->learner->spec;
  const heed_nn_block *b = &e->learner->layers[i];
  const heed_nn_attention *a = &b->attention;
  const heed_nn_feed_forward *f = &b->feed_forward;
  const bool norm_biased = has_norm_bias(written);
  int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  put_norm(e, HD_SLOT_ATTENTION_NORM, i, &b->attention_norm, norm_biased);
  if (e->names.spelling->tensors[HD_SLOT_QKV]) {
    put_product(e, HD_SLOT_QKV, i, a->w_qkv, a->b_qkv, written->bias_qkv, 0, a->w_qkv->dim[0]);
  } else {
    put_product(e, HD_SLOT_QUERY, i, a->w_qkv, a->b_qkv, written->bias_qkv, 0, q);
    put_product(e, HD_SLOT_KEY, i, a->w_qkv, a->b_qkv, written->bias_qkv, q, kv);
    put_product(e, HD_SLOT_VALUE, i, a->w_qkv, a->b_qkv, written->bias_qkv, q + kv, kv);
  }
  put_product(e, HD_SLOT_OUTPUT, i, a->w_o, a->b_o, written->bias_output, 0, spec->width);
  if (a->w_distances) {
    put_matrix(e, HD_SLOT_DISTANCE, i, a->w_distances, false, 0, q);
    put(e, HD_SLOT_CONTENT, i, ".weight", heed_tensor_value(a->content));
    put(e, HD_SLOT_PLACE, i, ".weight", heed_tensor_value(a->position));
  }
  if (spec->cross) put_cross(e, i, written);
  put_norm(e, HD_SLOT_FEED_FORWARD_NORM, i, &b->feed_forward_norm, norm_biased);
  int64_t up = f->gated ? spec->feed_forward : 0;
  if (f->gated) put_product(e, HD_SLOT_GATE, i, f->w_up, f->b_up, written->bias_feed_forward, 0, spec->feed_forward);
  put_product(e, HD_SLOT_UP, i, f->w_up, f->b_up, written->bias_feed_forward, up, spec->feed_forward);
  put_product(e, HD_SLOT_DOWN, i, f->w_down, f->b_down, written->bias_feed_forward, 0, spec->width);
}

static void put_head(export *e, const hd_transformer_spec *written) {
  const hd_learner_stack *learner = e->learner;
  const bool tokens = written->head == HEED_HEAD_TOKENS;
  const hd_slot dense = tokens ? HD_SLOT_HEAD_DENSE : HD_SLOT_POOLER;
  if (learner->head_dense) put_product(e, dense, 0, learner->head_dense, learner->head_dense_bias, written->bias_head, 0, written->width);
  if (hd_spec_transforms(written)) put_norm(e, HD_SLOT_HEAD_NORM, 0, &learner->head_norm, has_norm_bias(written));
  if (written->bias_head) put_bias(e, tokens ? HD_SLOT_HEAD_BIAS : HD_SLOT_CLASSIFIER, 0, learner->head_bias, 0, hd_spec_outputs(written));
  // To transformers the bias of a head that is not the embedding is a part of that matrix; in other files both names stand for one bias.
  const char *const *names = e->names.spelling->tensors;
  const bool own = written->bias_head && tokens && !written->tied && !e->names.spelling->head_bias_row;
  if (own && strcmp(names[HD_SLOT_HEAD], names[HD_SLOT_HEAD_BIAS]) != 0)
    put_bias(e, HD_SLOT_HEAD, 0, learner->head_bias, 0, written->vocabulary);
  if (!hd_spec_head_is_embedding(written))
    put_matrix(e, tokens ? HD_SLOT_HEAD : HD_SLOT_CLASSIFIER, 0, learner->head, false, 0, hd_spec_outputs(written));
}

static void put_all(export *e, const hd_transformer_spec *written) {
  const hd_learner_stack *learner = e->learner;
  const bool norm_biased = has_norm_bias(written);
  if (!written->shared_embedding) put_matrix(e, HD_SLOT_EMBEDDING, 0, learner->embedding, false, 0, written->vocabulary);
  if (learner->position) put_matrix(e, HD_SLOT_POSITION, 0, learner->position, false, 0, written->context + written->position_offset);
  if (learner->relative) put(e, HD_SLOT_RELATIVE, 0, ".weight", heed_tensor_value(learner->relative));
  const heed_view segments = {&zero, HEED_F32, 2, {written->segments, written->width}, {0, 0}}; // a learner has none
  if (written->segments > 0) put(e, HD_SLOT_SEGMENT, 0, ".weight", segments);
  if (written->embedding_norm) put_norm(e, HD_SLOT_EMBEDDING_NORM, 0, &learner->embedding_norm, norm_biased);
  for (int64_t i = 0; i < learner->spec.layers; i++) put_layer(e, i, written);
  if (written->norm_place == HD_NORM_BEFORE) put_norm(e, HD_SLOT_FINAL_NORM, 0, &learner->final_norm, norm_biased);
  if (!written->headless) put_head(e, written);
}

static hd_transformer_spec put_stack(hd_export *out, const hd_family *family, const hd_learner_stack *stack, bool separate) {
  const hd_transformer_spec written = hd_family_written(family, &stack->spec);
  export e = {.out = out, .learner = stack, .names = {.spelling = &family->json, .separate = separate}};
  put_all(&e, &written);
  return written;
}

heed_status hd_transformer_describe(const heed_learner *learner, hd_export *out) {
  const hd_transformer_learner *t = hd_transformer(learner);
  const bool cross = t->stack.spec.cross, separate = cross && !t->encoder.spec.shared_embedding;
  const hd_family *family = hd_family_for(&t->stack.spec, cross ? &t->encoder.spec : NULL);
  const hd_transformer_spec written = put_stack(out, family, &t->stack, separate);
  if (cross) {
    const hd_transformer_spec encoder = put_stack(out, family->encoder, &t->encoder, separate);
    out->config = hd_config_write(family, &written, &encoder, NULL);
  } else {
    out->config = hd_config_write(family, &written, NULL, t->label_names);
  }
  return out->status;
}
