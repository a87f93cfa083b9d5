/* parameters.c: tensors that stay from step to step, by name. */
#include "tensor.h"

#include "../base/philox.h"

#include <math.h>

struct heed_parameters {
  heed_context *context;
  hd_arena arena;
  heed_tensor **list;
  int64_t count, room, size, learning, bytes; /* numbers in all, and in those that are not frozen; bytes of values and gradients */
};

/* ---- any tensor ------------------------------------------------------------------------------------------------------------------ */

static heed_view view_of(const heed_tensor *t, void *data, heed_type type) { return heed_view_of(data, type, t->ndim, t->dim); }

heed_view heed_tensor_value(const heed_tensor *t) { return t ? view_of(t, t->buffer->value, t->type) : (heed_view){0}; }
heed_view heed_tensor_gradient(const heed_tensor *t) {
  return t ? view_of(t, t->buffer->begun ? t->buffer->gradient : NULL, HEED_F32) : (heed_view){0};
}
const char *heed_tensor_name(const heed_tensor *t) { return t ? t->name : ""; }

const char *hd_tensor_shape(const heed_tensor *t, char buffer[HD_SHAPE_LENGTH]) {
  const heed_view view = view_of(t, NULL, HEED_F32);
  return hd_shape_text(&view, buffer);
}

bool hd_tensor_same_shape(const heed_tensor *a, const heed_tensor *b) {
  return a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

heed_status hd_shape_count(heed_context *context, const char *name, int ndim, const int64_t *dim, int64_t *count) {
  int64_t n = 1, bytes;
  HD_REQUIRE(ndim >= 1 && ndim <= HEED_MAX_DIM, context, HEED_E_SHAPE, "%s: rank %d, allowed 1 to %d", name, ndim, HEED_MAX_DIM);
  for (int i = 0; i < ndim; i++) {
    HD_REQUIRE(dim[i] >= 0, context, HEED_E_SHAPE, "%s: dimension %d is %lld", name, i, (long long)dim[i]);
    HD_REQUIRE(hd_mul(n, dim[i], &n) && hd_mul(n, sizeof(float), &bytes), context, HEED_E_OVERFLOW, "%s: the size does not fit in 64 bits",
               name);
  }
  *count = n;
  return HEED_OK;
}

/* ---- the set ---------------------------------------------------------------------------------------------------------------------- */

heed_status heed_parameters_new(heed_context *context, heed_parameters **out) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(out, context, HEED_E_ARGUMENT, "heed_parameters_new: out is null");
  *out = NULL;
  heed_parameters *set;
  HD_TRY(hd_allocate(context, "parameters", 1, sizeof *set, &set));
  *set = (heed_parameters){.context = context};
  hd_arena_init(&set->arena, context);
  *out = set;
  return HEED_OK;
}

void heed_parameters_free(heed_parameters *set) {
  if (!set) return;
  hd_arena_free(&set->arena);
  hd_release(set->context, set->list, set->room, sizeof *set->list);
  hd_release(set->context, set, 1, sizeof *set);
}

/* A parameter without numbers. */
static heed_status add_named(heed_parameters *set, const char *name, int ndim, const int64_t *dim, heed_tensor **out) {
  heed_context *context = set->context;
  heed_tensor *t;
  char *copy;
  int64_t count;
  HD_REQUIRE(!heed_parameters_find(set, name), context, HEED_E_ARGUMENT, "parameter %s: there is one of that name", name);
  HD_TRY(hd_shape_count(context, name, ndim, dim, &count));
  HD_TRY(hd_grow(context, "parameters", &set->list, &set->room, set->count + 1, sizeof *set->list));
  HD_TRY(hd_arena_allocate(&set->arena, context, name, 1, sizeof *t, &t));
  HD_TRY(hd_arena_allocate(&set->arena, context, name, 1, sizeof *t->buffer, &t->buffer));
  HD_TRY(hd_arena_text(&set->arena, context, name, strlen(name), &copy));
  t->name = copy;
  t->ndim = ndim;
  memcpy(t->dim, dim, (size_t)ndim * sizeof *dim);
  t->parameter = true;
  t->buffer->count = count;
  t->buffer->kept = true;
  *out = t;
  return HEED_OK;
}

/* Into the list, for which there is room. */
static void enlist(heed_parameters *set, heed_tensor *t, int64_t bytes) {
  set->list[set->count++] = t;
  set->size += hd_count(t);
  set->bytes += bytes;
  if (!t->frozen) set->learning += hd_count(t);
}

static heed_status add(heed_parameters *set, const char *name, int ndim, const int64_t *dim, const heed_parameter_options *options,
                       heed_tensor **out) {
  heed_context *context = set->context;
  heed_tensor *t;
  HD_TRY(add_named(set, name, ndim, dim, &t));
  HD_TRY(hd_arena_allocate(&set->arena, context, name, hd_count(t), sizeof(float), &t->buffer->value));
  if (!options->frozen) HD_TRY(hd_arena_allocate(&set->arena, context, name, hd_count(t), sizeof(float), &t->buffer->gradient));
  t->frozen = options->frozen;
  t->decays = ndim > 1 && !options->no_decay;
  t->buffer->wants = !options->frozen;
  enlist(set, t, hd_count(t) * (int64_t)sizeof(float) * (options->frozen ? 1 : 2));
  *out = t;
  return HEED_OK;
}

hd_arena *hd_parameters_arena(heed_parameters *set) { return &set->arena; }
heed_context *hd_parameters_context(const heed_parameters *set) { return set->context; }

heed_status hd_parameters_add_stored(heed_parameters *set, const char *name, const int64_t dim[2], const struct hd_matrix *part, int parts,
                                     int64_t bytes, heed_tensor **out) {
  heed_tensor *t;
  HD_TRY(add_named(set, name, 2, dim, &t));
  t->frozen = true;
  t->stored = part;
  t->stored_parts = parts;
  enlist(set, t, bytes);
  *out = t;
  return HEED_OK;
}

heed_status heed_parameters_add(heed_parameters *set, const char *name, int ndim, const int64_t *dim, const heed_parameter_options *given,
                                heed_tensor **out) {
  heed_parameter_options options = {.size = sizeof options};
  if (!set) return HEED_E_ARGUMENT;
  HD_REQUIRE(out && name && dim, set->context, HEED_E_ARGUMENT, "heed_parameters_add: null");
  *out = NULL;
  HD_TRY(hd_options_read(set->context, "heed_parameter_options", given, &options, sizeof options));
  return add(set, name, ndim, dim, &options, out);
}

int64_t heed_parameters_count(const heed_parameters *set) { return set ? set->count : 0; }
int64_t heed_parameters_size(const heed_parameters *set) { return set ? set->size : 0; }
int64_t heed_parameters_learning(const heed_parameters *set) { return set ? set->learning : 0; }
int64_t heed_parameters_bytes(const heed_parameters *set) { return set ? set->bytes : 0; }
heed_tensor *heed_parameters_at(const heed_parameters *set, int64_t i) { return set && i >= 0 && i < set->count ? set->list[i] : NULL; }

heed_tensor *heed_parameters_find(const heed_parameters *set, const char *name) {
  for (int64_t i = 0; set && name && i < set->count; i++)
    if (!strcmp(set->list[i]->name, name)) return set->list[i];
  return NULL;
}

void heed_parameters_forget_gradients(heed_parameters *set) {
  for (int64_t i = 0; set && i < set->count; i++) set->list[i]->buffer->begun = false;
}

/* ---- how they begin --------------------------------------------------------------------------------------------------------------- */

typedef struct distribution {
  float *to;
  int64_t count;
  bool uniform;
  double scale; /* half the width of a uniform one, the standard deviation of a normal one */
  uint64_t seed, stream;
} distribution;

enum { DRAW_BLOCK = 4096 };

/* Box–Muller on two uniform numbers for every normal one: half of what it gives is thrown away, so that number i depends on i alone. */
static void draw(void *argument, int64_t block, int worker) {
  (void)worker;
  const distribution *d = argument;
  for (int64_t i = block * DRAW_BLOCK, end = HD_MIN(d->count, i + DRAW_BLOCK); i < end; i++) {
    double u = hd_philox_uniform(d->seed, d->stream, 2 * (uint64_t)i), v = hd_philox_uniform(d->seed, d->stream, 2 * (uint64_t)i + 1);
    double number = d->uniform ? 2 * u - 1 : sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    d->to[i] = (float)(d->scale * number);
  }
}

heed_status heed_tensor_initialise(heed_context *context, heed_tensor *t, heed_initial kind, double gain, uint64_t seed, uint64_t stream) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(t && t->parameter, context, HEED_E_ARGUMENT, "heed_tensor_initialise: not a parameter");
  HD_REQUIRE(isfinite(gain), context, HEED_E_ARGUMENT, "heed_tensor_initialise: %s: the gain is not finite", t->name);
  HD_REQUIRE(kind <= HEED_INITIAL_NORMAL || t->ndim == 2, context, HEED_E_SHAPE, "heed_tensor_initialise: %s has rank %d, allowed 2",
             t->name, t->ndim);
  distribution d = {.to = hd_value(t), .count = hd_count(t), .scale = gain, .seed = seed, .stream = stream};
  double in = (double)t->dim[t->ndim - 1], outputs = (double)t->dim[0];
  switch (kind) {
  case HEED_INITIAL_CONSTANT:
    for (int64_t i = 0; i < d.count; i++) d.to[i] = (float)gain;
    return HEED_OK;
  case HEED_INITIAL_NORMAL: break;
  case HEED_INITIAL_XAVIER_UNIFORM: d.scale = gain * sqrt(6 / (in + outputs)); break;
  case HEED_INITIAL_XAVIER_NORMAL: d.scale = gain * sqrt(2 / (in + outputs)); break;
  case HEED_INITIAL_HE_UNIFORM: d.scale = gain * sqrt(3 / in); break;
  case HEED_INITIAL_HE_NORMAL: d.scale = gain * sqrt(1 / in); break;
  default: return hd_fail(context, HEED_E_ARGUMENT, "heed_tensor_initialise: there is no kind %d", (int)kind);
  }
  d.uniform = kind == HEED_INITIAL_XAVIER_UNIFORM || kind == HEED_INITIAL_HE_UNIFORM;
  hd_parallel(context, hd_ceil_div(d.count, DRAW_BLOCK), draw, &d);
  return HEED_OK;
}

double heed_initial_gain(const char *activation) {
  static const struct {
    const char *name;
    double gain;
  } known[] = {{"linear", 1},
               {"sigmoid", 1},
               {"tanh", 5.0 / 3},
               {"relu", 1.4142135623730951},
               {"gelu", 1.4142135623730951},
               {"silu", 1.4142135623730951}};
  for (int64_t i = 0; activation && i < HD_COUNT(known); i++)
    if (!strcmp(activation, known[i].name)) return known[i].gain;
  return 0;
}
