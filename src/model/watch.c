/* watch.c: the record of a layer under watch: exact weights of the chosen heads, queries, keys and values where wanted, and the edit that may put other weights between scores and values.
 *
 * Weights are computed anew from the queries and the keys where they lie, with the maximum and sum of the very rows, so the fused kernel stays as it is and watching changes no bit of
 * what the model computes. Only an edit replaces its result. */
#include "session.h"

heed_status hd_watch_check(heed_context *context, const heed_model *model, const heed_watch *watch) {
  HD_REQUIRE(watch->record || watch->edit, context, HEED_E_ARGUMENT, "a watch needs a callback: record or edit");
  HD_REQUIRE(watch->n_layers >= 0 && watch->n_heads >= 0, context, HEED_E_ARGUMENT,
             "a watch with a negative count (layers %lld, heads %lld)", (long long)watch->n_layers, (long long)watch->n_heads);
  for (int64_t i = 0; watch->layers && i < watch->n_layers; i++)
    HD_REQUIRE(watch->layers[i] >= 0 && watch->layers[i] < model->spec.layers, context, HEED_E_ARGUMENT,
               "%s: no such layer to watch (got %lld, allowed 0..%lld)", model->name, (long long)watch->layers[i],
               (long long)model->spec.layers - 1);
  for (int64_t i = 0; watch->heads && i < watch->n_heads; i++)
    HD_REQUIRE(watch->heads[i] >= 0 && watch->heads[i] < model->spec.heads, context, HEED_E_ARGUMENT,
               "%s: no such head to watch (got %lld, allowed 0..%lld)", model->name, (long long)watch->heads[i],
               (long long)model->spec.heads - 1);
  return HEED_OK;
}

/* One record under construction, and the memory behind it. */
typedef struct recording {
  const hd_pass *pass;
  const hd_mixing *mixing;
  heed_layer_record record;
  int64_t *heads;
  int64_t weights, q, kv; /* floats of each array */
  float *q_copy, *k_copy, *v_copy, *exact;
  uint8_t *all_visible, *visible; /* of all heads of the model, and of those under watch */
  int64_t all_count;
} recording;

static heed_status choose_heads(recording *in) {
  const heed_watch *watch = in->pass->watch;
  int64_t n = watch->heads ? watch->n_heads : in->pass->model->spec.heads;
  HD_TRY(hd_allocate(in->pass->context, "the heads under watch", n, sizeof *in->heads, &in->heads));
  for (int64_t i = 0; i < n; i++) in->heads[i] = watch->heads ? watch->heads[i] : i;
  in->record.heads = in->heads;
  in->record.n_heads = n;
  return HEED_OK;
}

static heed_status compute_weights(recording *in) {
  heed_context *context = in->pass->context;
  heed_layer_record *record = &in->record;
  int64_t pairs, heads = record->n_heads;
  HD_REQUIRE(hd_mul(record->queries, record->keys, &pairs) && hd_mul(pairs, heads, &in->weights), context, HEED_E_OVERFLOW,
             "weights of %lld heads × %lld × %lld do not fit in memory", (long long)heads, (long long)record->queries,
             (long long)record->keys);
  HD_TRY(hd_allocate(context, "the weights under watch", in->weights, sizeof(float), &record->weights));
  heed_view view = heed_view_of(record->weights, HEED_F32, 4, (int64_t[]){1, heads, record->queries, record->keys});
  if (heads == 0) return HEED_OK;
  const heed_attention_rows asked = {.size = sizeof asked, .n_heads = heads, .heads = in->heads};
  if (in->mixing->implied) {
    if (in->mixing->shows) HD_TRY(hd_allocate(context, "the pattern under watch", in->weights, 1, &in->visible));
    record->visible = in->visible;
    HD_TRY(in->mixing->implied(in->pass, in->mixing->layer, heads, in->heads, record->weights, in->visible));
    HD_TRY(hd_allocate(context, "the exact weights under watch", in->weights, sizeof(float), &in->exact));
    view.data = in->exact;
    record->exact = in->exact;
  }
  return hd_attention_rows(context, in->mixing->attention, NULL, &in->mixing->q, in->mixing->k, &asked, &view);
}

/* What a pattern shows of the heads under watch. */
static heed_status find_visible(recording *in) {
  heed_context *context = in->pass->context;
  const hd_transformer_spec *spec = &in->pass->model->spec;
  heed_layer_record *record = &in->record;
  const int64_t head = record->queries * record->keys; // its weights fit in 64 bits, and a byte is less
  if (!in->mixing->attention->pattern || in->mixing->implied) return HEED_OK;
  HD_REQUIRE(hd_mul(head, spec->heads, &in->all_count), context, HEED_E_OVERFLOW, "the pattern under watch does not fit in memory");
  HD_TRY(hd_allocate(context, "the pattern under watch", in->all_count, 1, &in->all_visible));
  HD_TRY(hd_allocate(context, "the pattern under watch", in->weights, 1, &in->visible));
  const heed_view visible = heed_view_of(in->all_visible, HEED_U8, 4, (int64_t[]){1, spec->heads, record->queries, record->keys});
  const heed_view k = {in->mixing->q.data, HEED_F32, 4, {1, spec->kv_heads, record->keys, spec->head_dim}, {0, 0, 0, 1}};
  HD_TRY(heed_attention_visible(context, in->mixing->attention, &in->mixing->q, &k, &visible));
  for (int64_t i = 0; i < record->n_heads; i++) memcpy(in->visible + i * head, in->all_visible + in->heads[i] * head, (size_t)head);
  record->visible = in->visible;
  return HEED_OK;
}

/* All keys, or values, of the one entry: [kv_heads, keys, head_dim]. */
static void copy_side(const hd_source *source, int64_t keys, float *to) {
  for (int64_t head = 0; head < source->heads; head++)
    for (int64_t key = 0; key < keys; key++, to += source->columns) {
      int64_t stride;
      const float *row = source->rows(source, 0, head, key, 1, to, &stride);
      if (row != to) memcpy(to, row, (size_t)source->columns * sizeof *to);
    }
}

/* Queries as they are, keys and values out of their source. */
static heed_status copy_qkv(recording *in) {
  const hd_pass *pass = in->pass;
  const hd_transformer_spec *spec = &pass->model->spec;
  const heed_view *q = &in->mixing->q;
  int64_t d = spec->head_dim, rows = in->record.queries, keys = in->record.keys;
  in->q = spec->heads * rows * d, in->kv = spec->kv_heads * keys * d;
  HD_TRY(hd_allocate(pass->context, "the queries under watch", in->q, sizeof(float), &in->q_copy));
  HD_TRY(hd_allocate(pass->context, "the keys under watch", in->kv, sizeof(float), &in->k_copy));
  HD_TRY(hd_allocate(pass->context, "the values under watch", in->kv, sizeof(float), &in->v_copy));
  for (int64_t head = 0; head < spec->heads; head++)
    for (int64_t r = 0; r < rows; r++)
      memcpy(in->q_copy + (head * rows + r) * d, (const float *)q->data + head * q->stride[1] + r * q->stride[2],
             (size_t)d * sizeof(float));
  copy_side(in->mixing->k, keys, in->k_copy);
  copy_side(in->mixing->v, keys, in->v_copy);
  in->record.q = in->q_copy, in->record.k = in->k_copy, in->record.v = in->v_copy;
  return HEED_OK;
}

/* out_i = Σ_j w_ij v_j for one head, keys ascending. A weight of exactly 0 reads nothing, as if the key were hidden: values there may be anything. */
static void mix_head(const heed_view *out, int64_t head, const float *weights, const float *values, int64_t queries, int64_t keys) {
  int64_t d = out->dim[3];
  for (int64_t i = 0; i < queries; i++) {
    float *to = (float *)out->data + head * out->stride[1] + i * out->stride[2];
    memset(to, 0, (size_t)d * sizeof *to);
    for (int64_t j = 0; j < keys; j++) {
      float w = weights[i * keys + j];
      if (w == 0) continue;
      for (int64_t c = 0; c < d; c++) to[c] += w * values[j * d + c];
    }
  }
}

static heed_status mix_edited(recording *in) {
  const hd_pass *pass = in->pass;
  const hd_transformer_spec *spec = &pass->model->spec;
  const heed_layer_record *record = &in->record;
  int64_t group = spec->heads / spec->kv_heads, head = record->keys * spec->head_dim, floats = spec->kv_heads * head;
  float *values;
  HD_TRY(hd_allocate(pass->context, "the values of edited heads", floats, sizeof *values, &values));
  copy_side(in->mixing->v, record->keys, values);
  for (int64_t i = 0; i < record->n_heads; i++)
    mix_head(&in->mixing->out, in->heads[i], record->weights + i * record->queries * record->keys, values + in->heads[i] / group * head,
             record->queries, record->keys);
  hd_release(pass->context, values, floats, sizeof *values);
  return HEED_OK;
}

/* A callback's own status is returned as it is, with a sentence if it left none. */
static heed_status called(heed_context *context, heed_status status) {
  if (status != HEED_OK && !heed_error(context)[0]) return hd_fail(context, status, "stopped by the callback of a watch");
  return status;
}

static heed_status record_layer(recording *in) {
  const heed_watch *watch = in->pass->watch;
  HD_TRY(choose_heads(in));
  HD_TRY(compute_weights(in));
  HD_TRY(find_visible(in));
  if (watch->want_qkv) HD_TRY(copy_qkv(in));
  if (watch->edit) {
    heed_layer_record shown = in->record; // the callback may change weights, not what we release
    HD_TRY(called(in->pass->context, watch->edit(watch->user, &shown)));
    HD_TRY(mix_edited(in));
  }
  return watch->record ? called(in->pass->context, watch->record(watch->user, &in->record)) : HEED_OK;
}

heed_status hd_watch_layer(const hd_pass *pass, const hd_mixing *mixing) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const bool cross = mixing->stage == HEED_STAGE_CROSS;
  recording in = {.pass = pass, .mixing = mixing};
  in.record = (heed_layer_record){.stage = mixing->stage,
                                  .layer = mixing->layer,
                                  .queries = pass->rows,
                                  .keys = mixing->keys,
                                  .first = pass->spans->first,
                                  .causal = !cross && !spec->bidirectional,
                                  .window = cross ? 0 : hd_spec_window(spec, mixing->layer)};
  pass->context->error[0] = 0; // so that a sentence found after a callback is the callback's own
  heed_status status = record_layer(&in);
  hd_release(pass->context, in.heads, in.record.n_heads, sizeof *in.heads);
  hd_release(pass->context, in.record.weights, in.weights, sizeof(float));
  hd_release(pass->context, in.exact, in.exact ? in.weights : 0, sizeof(float));
  hd_release(pass->context, in.all_visible, in.all_count, 1);
  hd_release(pass->context, in.visible, in.visible ? in.weights : 0, 1);
  hd_release(pass->context, in.q_copy, in.q, sizeof(float));
  hd_release(pass->context, in.k_copy, in.kv, sizeof(float));
  hd_release(pass->context, in.v_copy, in.kv, sizeof(float));
  return status;
}
