/* tape.c: operations carried out one after another, and their gradients in the opposite order. */
#include "tensor.h"

#include <stdio.h>

/* Records of nodes and tensors; numbers lie in the pool. */
struct heed_tape {
  heed_context *context;
  heed_status status; /* the first error sticks */
  hd_arena arena;
  hd_pool pool;
  hd_node **nodes;
  int64_t count, room;
  hd_buffer **buffers; /* that the tape owns */
  int64_t buffer_count, buffer_room;
  bool inference, training, ran_back;
  uint64_t seed;
  uint32_t draws;     /* random operations so far */
  int64_t most_aside; /* floats that an operation of a plan takes besides the pool */
  const char *at;
};

heed_context *hd_tape_context(const heed_tape *tape) { return tape->context; }
const hd_node *hd_tape_last(const heed_tape *tape) { return tape->count ? tape->nodes[tape->count - 1] : NULL; }

heed_status heed_tape_new(heed_context *context, heed_tape **out) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(out, context, HEED_E_ARGUMENT, "heed_tape_new: out is null");
  *out = NULL;
  heed_tape *tape;
  HD_TRY(hd_allocate(context, "a tape", 1, sizeof *tape, &tape));
  *tape = (heed_tape){.context = context, .pool.context = context, .training = true, .at = ""};
  hd_arena_init(&tape->arena, context);
  *out = tape;
  return HEED_OK;
}

static void forget(heed_tape *tape) {
  for (int64_t i = 0; i < tape->buffer_count; i++) {
    hd_buffer *b = tape->buffers[i];
    hd_pool_give(&tape->pool, b->value);
    hd_pool_give(&tape->pool, b->gradient);
  }
  for (int64_t i = 0; i < tape->count; i++) hd_pool_give(&tape->pool, tape->nodes[i]->saved);
  tape->buffer_count = tape->count = 0;
  hd_arena_free(&tape->arena);
  hd_arena_init(&tape->arena, tape->context);
}

void heed_tape_reset(heed_tape *tape) {
  if (!tape) return;
  forget(tape);
  tape->status = HEED_OK;
  tape->draws = 0;
  tape->ran_back = false;
  tape->at = "";
}

void heed_tape_free(heed_tape *tape) {
  if (!tape) return;
  heed_context *context = tape->context;
  forget(tape);
  hd_arena_free(&tape->arena);
  hd_pool_free(&tape->pool);
  hd_release(context, tape->nodes, tape->room, sizeof *tape->nodes);
  hd_release(context, tape->buffers, tape->buffer_room, sizeof *tape->buffers);
  hd_release(context, tape, 1, sizeof *tape);
}

bool hd_tape_note(heed_tape *tape, heed_status status) {
  if (tape->status == HEED_OK) tape->status = status;
  return tape->status == HEED_OK;
}

heed_status heed_tape_status(const heed_tape *tape) { return tape ? tape->status : HEED_E_ARGUMENT; }
int64_t heed_tape_peak_bytes(const heed_tape *tape) { return tape ? tape->pool.peak : 0; }
int64_t hd_tape_bytes(const heed_tape *tape) { return tape->pool.bytes + tape->most_aside * (int64_t)sizeof(float); }
void hd_tape_set_plan(heed_tape *tape) { tape->pool.plan = true; }
bool hd_tape_plans(const heed_tape *tape) { return tape->pool.plan; }
bool hd_tape_learns(const heed_tape *tape) { return tape->training && !tape->inference; }
uint64_t hd_tape_draw(heed_tape *tape, uint32_t *stream) {
  *stream = ++tape->draws;
  return tape->seed;
}
heed_status hd_tape_keep(heed_tape *tape, const char *what, int64_t count, size_t size, void *out) {
  return hd_arena_allocate(&tape->arena, tape->context, what, count, size, out);
}
void heed_tape_set_inference(heed_tape *tape, bool inference) {
  if (tape) tape->inference = inference;
}
void heed_tape_set_training(heed_tape *tape, bool training) {
  if (tape) tape->training = training;
}
void heed_tape_set_seed(heed_tape *tape, uint64_t seed) {
  if (tape) tape->seed = seed;
}
void heed_tape_label(heed_tape *tape, const char *at) {
  if (tape) tape->at = at ? at : "";
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */

static heed_status new_tensor(heed_tape *tape, const char *name, heed_tensor **out) {
  HD_TRY(hd_arena_allocate(&tape->arena, tape->context, "a tensor", 1, sizeof **out, out));
  (*out)->name = name;
  return HEED_OK;
}

static heed_status new_buffer(heed_tape *tape, heed_tensor *tensor, int64_t count) {
  HD_TRY(hd_arena_allocate(&tape->arena, tape->context, "a tensor", 1, sizeof *tensor->buffer, &tensor->buffer));
  tensor->buffer->count = count;
  HD_TRY(hd_grow(tape->context, "a tape", &tape->buffers, &tape->buffer_room, tape->buffer_count + 1, sizeof *tape->buffers));
  tape->buffers[tape->buffer_count++] = tensor->buffer;
  return HEED_OK;
}

static heed_status input(heed_tape *tape, const heed_view *view, heed_tensor **out) {
  heed_context *context = tape->context;
  HD_REQUIRE(view, context, HEED_E_ARGUMENT, "tape: the input is null");
  HD_TRY(hd_view_check(context, view, "input"));
  HD_REQUIRE(view->type == HEED_F32 || view->type == HEED_I32, context, HEED_E_TYPE, "input: type %s, allowed f32 and i32",
             heed_type_name(view->type));
  HD_TRY(new_tensor(tape, "input", out));
  heed_tensor *t = *out;
  t->type = view->type;
  t->ndim = view->ndim;
  memcpy(t->dim, view->dim, sizeof t->dim);
  HD_TRY(new_buffer(tape, t, hd_view_count(view)));
  float *copy;
  HD_TRY(hd_pool_take(&tape->pool, "an input", hd_count(t), &copy));
  t->buffer->value = copy;
  if (tape->pool.plan) return HEED_OK;
  const heed_view packed = heed_view_of(view->data, view->type, view->ndim, view->dim);
  if (hd_views_same(view, &packed)) {
    if (hd_count(t)) memcpy(copy, view->data, (size_t)hd_count(t) * sizeof *copy);
  } else {
    for (int64_t i = 0; i < hd_count(t); i++) memcpy(copy + i, hd_view_at(view, i), sizeof *copy);
  }
  return HEED_OK;
}

heed_tensor *heed_tape_input(heed_tape *tape, const heed_view *view) {
  heed_tensor *out = NULL;
  if (!tape || tape->status != HEED_OK) return NULL;
  tape->status = input(tape, view, &out);
  return tape->status == HEED_OK ? out : NULL;
}

/* ---- forward -------------------------------------------------------------------------------------------------------------------- */

static heed_status new_node(heed_tape *tape, const hd_operation *operation, int inputs, heed_tensor *const *in, const void *options,
                            hd_node **out) {
  HD_TRY(hd_arena_allocate(&tape->arena, tape->context, "a node", 1, sizeof **out, out));
  hd_node *node = *out;
  void *copy = NULL;
  *node = (hd_node){.operation = operation, .tape = tape, .inputs = inputs, .seed = tape->seed, .training = tape->training, .at = tape->at};
  HD_TRY(hd_arena_allocate(&tape->arena, tape->context, "a node", inputs, sizeof *node->in, &node->in));
  memcpy(node->in, in, (size_t)inputs * sizeof *in);
  if (operation->options) {
    HD_TRY(hd_arena_allocate(&tape->arena, tape->context, "a node", 1, operation->options, &copy));
    memcpy(copy, options, operation->options);
  }
  node->options = copy;
  for (int i = 0; i < inputs; i++) node->recorded |= in[i] && in[i]->buffer->wants;
  node->recorded &= !tape->inference;
  return new_tensor(tape, operation->name, &node->out);
}

/* The output: in a buffer of its own, or in that of the input it shares. */
static heed_status give_output(heed_tape *tape, hd_node *node) {
  heed_tensor *out = node->out;
  int64_t count;
  float *value;
  HD_TRY(hd_shape_count(tape->context, node->operation->name, out->ndim, out->dim, &count));
  out->type = HEED_F32;
  if (node->shares) {
    out->buffer = node->in[node->shares - 1]->buffer;
    out->type = node->in[node->shares - 1]->type;
    node->in[node->shares - 1]->stale = node->in_place;
    return HEED_OK;
  }
  HD_TRY(new_buffer(tape, out, count));
  out->buffer->wants = node->recorded;
  HD_TRY(hd_pool_take(&tape->pool, node->operation->name, count, &value));
  out->buffer->value = value;
  return HEED_OK;
}

static heed_status carry_out(heed_tape *tape, const hd_operation *operation, int inputs, heed_tensor *const *in, const void *options,
                             hd_node **out) {
  HD_TRY(new_node(tape, operation, inputs, in, options, out));
  hd_node *node = *out;
  node->stream = ++tape->draws;
  HD_TRY(operation->shape(tape->context, node));
  HD_TRY(give_output(tape, node));
  for (int i = 0; i < inputs; i++)
    if (in[i]) in[i]->buffer->free_to_change = false;
  node->out->buffer->free_to_change = !node->shares && operation->output_unread;
  HD_TRY(hd_grow(tape->context, "a tape", &tape->nodes, &tape->room, tape->count + 1, sizeof *tape->nodes));
  tape->nodes[tape->count++] = node;
  if (node->recorded && node->saved_floats) HD_TRY(hd_pool_take(&tape->pool, operation->name, node->saved_floats, &node->saved));
  return tape->pool.plan ? HEED_OK : operation->forward(tape->context, node);
}

static heed_status check_inputs(heed_tape *tape, const hd_operation *operation, int inputs, heed_tensor *const *in, int optional) {
  for (int i = 0; i < inputs; i++) {
    HD_REQUIRE(in[i] || i >= optional, tape->context, HEED_E_ARGUMENT, "%s: input %d is null", operation->name, i);
    HD_REQUIRE(!in[i] || !in[i]->stored || operation->stored >> i & 1, tape->context, HEED_E_TYPE,
               "%s: input %d, %s, is a matrix as a file stores it, which linear and embedding read", operation->name, i, in[i]->name);
    HD_REQUIRE(!in[i] || in[i]->stored || in[i]->buffer->value, tape->context, HEED_E_ARGUMENT, "%s: input %d is gone: backward has run",
               operation->name, i);
    HD_REQUIRE(!in[i] || in[i]->type == HEED_F32 || operation->checks_types, tape->context, HEED_E_TYPE, "%s: input %d is %s, allowed f32",
               operation->name, i, heed_type_name(in[i]->type));
    HD_REQUIRE(!in[i] || !in[i]->stale, tape->context, HEED_E_ARGUMENT, "%s: input %d was changed in place by another operation",
               operation->name, i);
  }
  return HEED_OK;
}

heed_tensor *hd_tape_apply(heed_tape *tape, const hd_operation *operation, int inputs, heed_tensor *const *in, int optional,
                           const void *options) {
  hd_node *node = NULL;
  if (!tape || tape->status != HEED_OK) return NULL;
  tape->status = check_inputs(tape, operation, inputs, in, optional);
  if (tape->status == HEED_OK) tape->status = carry_out(tape, operation, inputs, in, options, &node);
  return tape->status == HEED_OK ? node->out : NULL;
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------- */

float *hd_gradient(const hd_node *node, int i, bool *accumulate) {
  hd_buffer *b = node->in[i] ? node->in[i]->buffer : NULL;
  if (!b || !b->wants) return NULL;
  *accumulate = b->begun;
  b->begun = true;
  return b->gradient;
}

/* What only this node still needed goes back to the pool, to be used by the gradients that follow. */
static void release(heed_tape *tape, hd_node *node) {
  hd_pool_give(&tape->pool, node->saved);
  node->saved = NULL;
  hd_buffer *b = node->out->buffer;
  if (node->shares) return;
  hd_pool_give(&tape->pool, b->gradient);
  b->gradient = NULL;
  if (b->kept) return;
  hd_pool_give(&tape->pool, b->value);
  b->value = NULL;
}

static heed_status differentiate(heed_tape *tape, hd_node *node) {
  if (!node->recorded || !node->out->buffer->begun) return HEED_OK;
  HD_REQUIRE(node->operation->backward, tape->context, HEED_E_UNSUPPORTED, "%s has no gradient: %s", node->operation->name,
             node->operation->why_not);
  for (int i = 0; i < node->inputs; i++) {
    hd_buffer *b = node->in[i] ? node->in[i]->buffer : NULL;
    if (b && b->wants && !b->gradient) HD_TRY(hd_pool_take(&tape->pool, "a gradient", b->count, &b->gradient));
  }
  if (!tape->pool.plan) return node->operation->backward(tape->context, node);
  bool ignored;
  for (int i = 0; i < node->inputs; i++) hd_gradient(node, i, &ignored);
  tape->most_aside = HD_MAX(tape->most_aside, node->aside_floats);
  return HEED_OK;
}

static void run_back(void *argument) {
  heed_tape *tape = argument;
  for (int64_t i = tape->count - 1; i >= 0; i--) {
    tape->status = differentiate(tape, tape->nodes[i]);
    if (tape->status != HEED_OK) return;
    release(tape, tape->nodes[i]);
  }
}

static heed_status backward(heed_tape *tape, heed_tensor *from, const heed_view *upstream) {
  heed_context *context = tape->context;
  char shape[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(from, context, HEED_E_ARGUMENT, "heed_tape_backward: the tensor is null");
  HD_REQUIRE(from->buffer->wants, context, HEED_E_ARGUMENT, "heed_tape_backward: %s depends on no parameter that learns", from->name);
  HD_REQUIRE(!tape->ran_back, context, HEED_E_ARGUMENT, "heed_tape_backward: the tape runs back once");
  HD_REQUIRE(upstream || hd_count(from) == 1, context, HEED_E_SHAPE,
             "heed_tape_backward: %s is %s; without a gradient to begin with it must be one number", from->name,
             hd_tensor_shape(from, shape[0]));
  // A parameter, seen in another shape, has its gradient already and may hold something.
  if (!from->buffer->gradient) HD_TRY(hd_pool_take(&tape->pool, "a gradient", hd_count(from), &from->buffer->gradient));
  float *to = from->buffer->gradient;
  const bool add = from->buffer->begun;
  if (upstream) {
    HD_TRY(hd_view_check(context, upstream, "gradient"));
    HD_REQUIRE(upstream->type == HEED_F32 && hd_view_count(upstream) == hd_count(from), context, HEED_E_SHAPE,
               "gradient: %s %s, allowed f32 %s", heed_type_name(upstream->type), hd_shape_text(upstream, shape[0]),
               hd_tensor_shape(from, shape[1]));
    for (int64_t i = 0; i < hd_count(from); i++) to[i] = (add ? to[i] : 0) + *(const float *)hd_view_at(upstream, i);
  } else {
    if (!tape->pool.plan) to[0] = (add ? to[0] : 0) + 1;
  }
  from->buffer->begun = from->buffer->kept = tape->ran_back = true;
  hd_with_crew(context, run_back, tape);
  return tape->status;
}

heed_status heed_tape_backward(heed_tape *tape, heed_tensor *from, const heed_view *upstream) {
  if (!tape) return HEED_E_ARGUMENT;
  if (tape->status == HEED_OK) tape->status = backward(tape, from, upstream);
  return tape->status;
}

/* ---- looking for numbers that are none --------------------------------------------------------------------------------------------- */

static bool finite(const heed_tensor *t) {
  if (t->type != HEED_F32 || !t->buffer->value) return true;
  const float *x = t->buffer->value;
  for (int64_t i = 0; i < hd_count(t); i++)
    if (!(x[i] - x[i] == 0)) return false;
  return true;
}

bool heed_tape_first_nonfinite(const heed_tape *tape, char *text, size_t room) {
  for (int64_t i = 0; tape && i < tape->count; i++) {
    const hd_node *node = tape->nodes[i];
    for (int j = 0; j < node->inputs; j++)
      if (node->in[j] && node->in[j]->parameter && !finite(node->in[j])) {
        snprintf(text, room, "parameter %s", node->in[j]->name);
        return true;
      }
    if (finite(node->out)) continue;
    snprintf(text, room, "the output of %s%s%s", node->operation->name, *node->at ? " in " : "", node->at);
    return true;
  }
  return false;
}
