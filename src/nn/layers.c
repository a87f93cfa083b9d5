/* layers.c: norms, multi-head attention, feed-forward and the block made of them: how operations are put together, with nothing computed here. */
#include "../op/list.h"

static const double usual_epsilon = 1e-5;

heed_tensor *heed_nn_norm_apply(heed_tape *tape, const heed_nn_norm *norm, heed_tensor *x) {
  double epsilon = norm->epsilon == 0 ? usual_epsilon : norm->epsilon;
  return norm->rms ? heed_tape_rms_norm(tape, x, norm->weight, epsilon) : heed_tape_layer_norm(tape, x, norm->weight, norm->bias, epsilon);
}

/* ---- attention ------------------------------------------------------------------------------------------------------------------ */

/* What goes into attention, as heed_tape_attention takes it: packed where projections are. */
typedef struct projected {
  heed_tensor *q, *k, *v;
} projected;

/* Heads of width d turn: of packed rows the queries' and the keys'. */
static heed_tensor *turn(heed_tape *tape, const heed_nn_attention *layer, int64_t heads, int64_t all_heads, heed_tensor *x) {
  if (!layer->rope || !x) return x;
  return heed_tape_rope(tape, layer->rope, heads, hd_columns(x) / all_heads, x);
}

static projected project(heed_tape *tape, const heed_nn_attention *layer, heed_tensor *x_query, heed_tensor *x_key, heed_tensor *x_value) {
  projected p = {0};
  int64_t heads = layer->heads, kv = layer->kv_heads ? layer->kv_heads : heads;
  if (layer->w_qkv) {
    const int64_t turning = layer->lsh ? heads : heads + kv;
    p.q = turn(tape, layer, turning, turning + kv, heed_tape_linear(tape, x_query, layer->w_qkv, layer->b_qkv));
    return p;
  }
  p.q = turn(tape, layer, heads, heads, heed_tape_linear(tape, x_query, layer->w_q, layer->b_q));
  if (layer->w_kv) {
    p.k = turn(tape, layer, kv, 2 * kv, heed_tape_linear(tape, x_key, layer->w_kv, layer->b_kv));
    return p;
  }
  p.k = turn(tape, layer, kv, kv, heed_tape_linear(tape, x_key, layer->w_k, layer->b_k));
  p.v = heed_tape_linear(tape, x_value, layer->w_v, layer->b_v);
  return p;
}

/* What global tokens with projections of their own do not go with. */
static heed_status check_global(heed_context *context, const heed_nn_attention *layer, const heed_tensor *x_key) {
  const bool global = layer->w_q_global || layer->w_kv_global;
  heed_attention a = {.size = sizeof a};
  HD_REQUIRE(layer->global_tokens >= 0, context, HEED_E_ARGUMENT, "heed_nn_attention: %lld global tokens", (long long)layer->global_tokens);
  HD_REQUIRE(global == (layer->global_tokens > 0) && !layer->w_q_global == !layer->w_kv_global, context, HEED_E_ARGUMENT,
             "heed_nn_attention: %lld global tokens, %s w_q_global and %s w_kv_global: all three or none", (long long)layer->global_tokens,
             layer->w_q_global ? "with" : "without", layer->w_kv_global ? "with" : "without");
  if (!global) return HEED_OK;
  HD_TRY(hd_options_read(context, "heed_attention", layer->attention, &a, sizeof a));
  HD_REQUIRE(!x_key, context, HEED_E_ARGUMENT, "heed_nn_attention: global tokens are for self-attention, but there is an input for keys");
  HD_REQUIRE(!layer->linear && !layer->lsh, context, HEED_E_UNSUPPORTED,
             "heed_nn_attention: linear and LSH attention have no projections of their own for global tokens");
  HD_REQUIRE(!layer->bias && !a.bias && !a.attend && !a.documents, context, HEED_E_UNSUPPORTED,
             "heed_nn_attention: global tokens with projections of their own have neither bias nor attend nor documents");
  HD_REQUIRE(a.align != HEED_ALIGN_END && a.offset == 0 && !a.offsets, context, HEED_E_UNSUPPORTED,
             "heed_nn_attention: positions of global tokens with projections of their own begin with the first row");
  return HEED_OK;
}

static heed_status check(heed_context *context, const heed_nn_attention *layer, const heed_tensor *x_key, const heed_tensor *x_value) {
  HD_REQUIRE(layer->heads > 0, context, HEED_E_ARGUMENT, "heed_nn_attention: %lld heads", (long long)layer->heads);
  HD_REQUIRE(!layer->w_qkv || !x_key, context, HEED_E_ARGUMENT,
             "heed_nn_attention: w_qkv is for self-attention, but there is an input for keys");
  HD_REQUIRE(!layer->w_qkv || !x_value, context, HEED_E_ARGUMENT,
             "heed_nn_attention: w_qkv is for self-attention, but there is an input for values");
  HD_REQUIRE(!layer->w_kv || !x_value, context, HEED_E_ARGUMENT,
             "heed_nn_attention: w_kv is for keys and values of one input, but there are two");
  HD_REQUIRE(layer->w_qkv || (layer->w_q && (layer->w_kv || (layer->w_k && layer->w_v))), context, HEED_E_ARGUMENT,
             "heed_nn_attention: weights are missing: w_qkv, or w_q and w_kv, or w_q, w_k and w_v");
  HD_TRY(check_global(context, layer, x_key));
  if (!layer->lsh) return HEED_OK;
  HD_REQUIRE(layer->w_qkv, context, HEED_E_ARGUMENT, "heed_nn_attention: LSH attention is self-attention with w_qkv");
  HD_REQUIRE(!layer->linear, context, HEED_E_ARGUMENT, "heed_nn_attention: linear and LSH attention at once");
  HD_REQUIRE(layer->kv_heads == 0 || layer->kv_heads == layer->heads, context, HEED_E_ARGUMENT,
             "heed_nn_attention: with LSH attention heads cannot share keys (got %lld heads, %lld of keys and values)",
             (long long)layer->heads, (long long)layer->kv_heads);
  return HEED_OK;
}

/* The weights that somebody wants to look at, of what was projected; r: distances, NULL: there are none. */
static heed_status look(heed_context *context, const heed_nn_attention *layer, const projected *p, const heed_tensor *r,
                        const heed_view *weights) {
  int64_t heads = layer->heads, kv = layer->kv_heads ? layer->kv_heads : heads;
  const heed_tensor *of_k = p->k ? p->k : p->q;
  int64_t parts = p->k ? (p->v ? kv : 2 * kv) : heads + 2 * kv, rows = of_k->dim[of_k->ndim - 2], columns = hd_columns(of_k);
  int64_t n = p->q->dim[p->q->ndim - 2], q_columns = hd_columns(p->q), d = columns / parts, batch = p->q->ndim == 3 ? p->q->dim[0] : 1;
  const heed_view q = {hd_value(p->q), HEED_F32, 4, {batch, heads, n, d}, {n * q_columns, d, q_columns, 1}};
  const heed_view k = {hd_value(of_k) + (p->k ? 0 : heads * d), HEED_F32, 4, {batch, kv, rows, d}, {rows * columns, d, columns, 1}};
  heed_attention attention = {.size = sizeof attention};
  HD_REQUIRE(!layer->linear && !layer->lsh, context, HEED_E_UNSUPPORTED,
             "heed_nn_attention: the weights of linear and of LSH attention cannot be looked at");
  HD_TRY(hd_options_read(context, "heed_attention", layer->attention, &attention, sizeof attention));
  const heed_view bias = heed_tensor_value(layer->bias), sink = heed_tensor_value(layer->sink);
  if (layer->bias) attention.bias = &bias;
  if (layer->sink) attention.sink = &sink;
  const heed_view relative = heed_tensor_value(layer->relative), u = heed_tensor_value(layer->content),
                  v = heed_tensor_value(layer->position);
  heed_score score = {.size = sizeof score};
  heed_view distances;
  if (layer->relative) attention.relative = &relative;
  if (r) {
    distances = (heed_view){hd_value(r), HEED_F32, 3, {heads, r->dim[0], d}, {d, hd_columns(r), 1}};
    HD_TRY(hd_options_read(context, "heed_score", attention.score, &score, sizeof score));
    score.content = &u, score.position = &v, score.distances = &distances;
    attention.score = &score;
  }
  return heed_attention_weights(context, &attention, &q, &k, NULL, weights);
}

/* Rows of heads, by exact, linear or LSH attention; r: distances, NULL: there are none. */
static heed_tensor *meet(heed_tape *tape, const heed_nn_attention *layer, const projected *p, heed_tensor *r) {
  if (layer->linear) {
    heed_tape_linear_attention_options linear = {.size = sizeof linear};
    if (!hd_tape_note(tape,
                      hd_options_read(hd_tape_context(tape), "heed_tape_linear_attention_options", layer->linear, &linear, sizeof linear)))
      return NULL;
    linear.heads = layer->heads;
    linear.kv_heads = layer->kv_heads;
    return heed_tape_linear_attention(tape, &linear, p->q, p->k, p->v);
  }
  if (layer->lsh) {
    heed_tape_lsh_attention_options lsh = {.size = sizeof lsh};
    if (!hd_tape_note(tape, hd_options_read(hd_tape_context(tape), "heed_tape_lsh_attention_options", layer->lsh, &lsh, sizeof lsh)))
      return NULL;
    lsh.heads = layer->heads;
    return heed_tape_lsh_attention(tape, &lsh, p->q, NULL);
  }
  const heed_tape_attention_options options = {.size = sizeof options,
                                               .heads = layer->heads,
                                               .kv_heads = layer->kv_heads,
                                               .attention = layer->attention,
                                               .bias = layer->bias,
                                               .sink = layer->sink,
                                               .relative = layer->relative,
                                               .content = layer->content,
                                               .position = layer->position,
                                               .distances = r};
  return heed_tape_attention(tape, &options, p->q, p->k, p->v);
}

/* Rows of heads with those of the first `global_tokens` made by projections of their own. */
static heed_tensor *meet_all(heed_tape *tape, const heed_nn_attention *layer, heed_tensor *x, heed_tensor *r, heed_tensor *heads,
                             const heed_view *weights) {
  heed_nn_attention of = *layer;
  heed_attention a = {.size = sizeof a};
  if (!heads || !hd_tape_note(tape, hd_options_read(hd_tape_context(tape), "heed_attention", layer->attention, &a, sizeof a))) return NULL;
  const int axis = x->ndim - 2;
  const int64_t n = x->dim[axis], global = HD_MIN(layer->global_tokens, n), kv = layer->kv_heads ? layer->kv_heads : layer->heads;
  a.pattern = NULL;
  a.has_window_left = a.has_window_right = false;
  a.align = HEED_ALIGN_START; // the rows asked for are the first of all
  of.attention = &a;          // the tape keeps a copy
  heed_tensor *asking = global < n ? heed_tape_slice(tape, x, axis, 0, global) : x;
  const projected p = {
      .q = turn(tape, layer, layer->heads, layer->heads, heed_tape_linear(tape, asking, layer->w_q_global, layer->b_q_global)),
      .k = turn(tape, layer, kv, 2 * kv, heed_tape_linear(tape, x, layer->w_kv_global, layer->b_kv_global))};
  heed_tensor *all = meet(tape, &of, &p, r);
  if (weights && all) {
    heed_view rows = *weights;
    rows.dim[rows.ndim - 2] = global;
    if (!hd_tape_note(tape, look(hd_tape_context(tape), &of, &p, r, &rows))) return NULL;
  }
  if (global == n) return all;
  return heed_tape_concat(tape, 2, (heed_tensor *[]){all, heed_tape_slice(tape, heads, axis, global, n)}, axis);
}

heed_tensor *heed_nn_attention_apply(heed_tape *tape, const heed_nn_attention *layer, heed_tensor *x_query, heed_tensor *x_key,
                                     heed_tensor *x_value, const heed_view *weights) {
  if (!tape || !hd_tape_note(tape, check(hd_tape_context(tape), layer, x_key, x_value))) return NULL;
  projected p = project(tape, layer, x_query, x_key ? x_key : x_query, x_value ? x_value : x_key ? x_key : x_query);
  heed_tensor *r = layer->w_distances ? heed_tape_linear(tape, layer->distances, layer->w_distances, NULL) : layer->distances;
  heed_tensor *heads = meet(tape, layer, &p, r);
  if (weights && heads && !hd_tape_note(tape, look(hd_tape_context(tape), layer, &p, r, weights))) return NULL;
  if (layer->global_tokens) heads = meet_all(tape, layer, x_query, r, heads, weights);
  return heed_tape_linear(tape, heads, layer->w_o, layer->b_o);
}

/* Without dropout there is no node between what makes x and what takes it. */
static heed_tensor *dropped(heed_tape *tape, heed_tensor *x, double p) { return p == 0 ? x : heed_tape_dropout(tape, x, p); }

/* ---- feed-forward and block ------------------------------------------------------------------------------------------------------ */

heed_tensor *heed_nn_feed_forward_apply(heed_tape *tape, const heed_nn_feed_forward *layer, heed_tensor *x) {
  heed_tensor *h = heed_tape_linear(tape, x, layer->w_up, layer->b_up);
  h = layer->gated ? heed_tape_gate(tape, h, layer->activation) : heed_tape_activate(tape, h, layer->activation);
  return heed_tape_linear(tape, dropped(tape, h, layer->dropout), layer->w_down, layer->b_down);
}

typedef heed_tensor *(*sublayer)(heed_tape *tape, const heed_nn_block *block, heed_tensor *x, heed_tensor *memory);

static heed_tensor *attend(heed_tape *tape, const heed_nn_block *block, heed_tensor *x, heed_tensor *memory) {
  (void)memory;
  return heed_nn_attention_apply(tape, &block->attention, x, NULL, NULL, NULL);
}

static heed_tensor *look_across(heed_tape *tape, const heed_nn_block *block, heed_tensor *x, heed_tensor *memory) {
  return heed_nn_attention_apply(tape, &block->cross, x, memory, NULL, NULL);
}

static heed_tensor *feed_forward(heed_tape *tape, const heed_nn_block *block, heed_tensor *x, heed_tensor *memory) {
  (void)memory;
  return heed_nn_feed_forward_apply(tape, &block->feed_forward, x);
}

static heed_tensor *with_residual(heed_tape *tape, const heed_nn_block *block, const heed_nn_norm *norm, sublayer f, heed_tensor *x,
                                  heed_tensor *memory) {
  heed_tensor *in = block->norm_after ? x : heed_nn_norm_apply(tape, norm, x);
  heed_tensor *sum = hd_tape_add_last(tape, x, dropped(tape, f(tape, block, in, memory), block->dropout));
  return block->norm_after ? heed_nn_norm_apply(tape, norm, sum) : sum;
}

static heed_status check_memory(heed_context *context, const heed_nn_block *block, const heed_tensor *memory) {
  HD_REQUIRE(!memory || block->cross.heads > 0, context, HEED_E_ARGUMENT, "heed_nn_block: a memory, but no cross-attention");
  HD_REQUIRE(memory || block->cross.heads == 0, context, HEED_E_ARGUMENT, "heed_nn_block: cross-attention without a memory");
  return HEED_OK;
}

heed_tensor *heed_nn_block_apply(heed_tape *tape, const heed_nn_block *block, heed_tensor *x, heed_tensor *memory) {
  if (!tape || heed_tape_status(tape) != HEED_OK || !hd_tape_note(tape, check_memory(hd_tape_context(tape), block, memory))) return NULL;
  heed_tensor *h = with_residual(tape, block, &block->attention_norm, attend, x, NULL);
  if (memory) h = with_residual(tape, block, &block->cross_norm, look_across, h, memory);
  return with_residual(tape, block, &block->feed_forward_norm, feed_forward, h, NULL);
}
