/* optimiser.c: AdamW and gradient descent with momentum on the parameters of a set.
 *
 * Parameters are cut into pieces of fixed size once; a step is two passes over them: the norm of all gradients, whose parts merge in the order of the pieces, and the move, which reads
 * gradient, moments and parameter once and writes them once. Nothing is written before the norm has shown that every gradient is finite. */
#include "../kern/kernels.h"
#include "../tensor/tensor.h"

/* Numbers of a piece: 128 KiB an array, some tens of microseconds of memory traffic. */
enum { PIECE = 32768, MOMENTS = 2 };

typedef struct piece {
  int64_t parameter, from, count;
} piece;

struct heed_optimiser {
  heed_context *context;
  heed_parameters *set;
  heed_optimiser_options options;
  hd_arena arena;
  int64_t parameters, pieces, steps;
  float *(*moment)[MOMENTS]; /* [parameters]; NULL where there is none */
  piece *piece;
  double *square; /* of each piece's gradients, in the step under way */
};

static heed_status check(heed_context *context, const heed_optimiser_options *o) {
  HD_REQUIRE(o->kind == HEED_OPTIMISER_ADAMW || o->kind == HEED_OPTIMISER_SGD, context, HEED_E_ARGUMENT, "optimiser: there is no kind %d",
             (int)o->kind);
  const struct {
    const char *name;
    double value, below;
  } numbers[] = {{"beta1", o->beta1, 1},
                 {"beta2", o->beta2, 1},
                 {"momentum", o->momentum, 1},
                 {"epsilon", o->epsilon, INFINITY},
                 {"decay", o->decay, INFINITY}};
  for (int64_t i = 0; i < HD_COUNT(numbers); i++)
    HD_REQUIRE(numbers[i].value >= 0 && numbers[i].value < numbers[i].below, context, HEED_E_ARGUMENT,
               "optimiser: %s is %g, allowed [0,%g)", numbers[i].name, numbers[i].value, numbers[i].below);
  return HEED_OK;
}

static heed_status cut(heed_optimiser *o) {
  int64_t at = 0;
  for (int64_t i = 0; i < o->parameters; i++) o->pieces += hd_ceil_div(hd_count(heed_parameters_at(o->set, i)), PIECE);
  HD_TRY(hd_arena_allocate(&o->arena, o->context, "an optimiser", o->pieces, sizeof *o->piece, &o->piece));
  HD_TRY(hd_arena_allocate(&o->arena, o->context, "an optimiser", o->pieces, sizeof *o->square, &o->square));
  for (int64_t i = 0; i < o->parameters; i++) {
    const int64_t count = hd_count(heed_parameters_at(o->set, i));
    for (int64_t from = 0; from < count; from += PIECE) o->piece[at++] = (piece){i, from, HD_MIN(count - from, PIECE)};
  }
  return HEED_OK;
}

static heed_status fill(heed_optimiser *o) {
  HD_TRY(check(o->context, &o->options));
  HD_TRY(
      hd_memory_check(o->context, "the optimiser", heed_parameters_learning(o->set) * heed_optimiser_moments(o) * (int64_t)sizeof(float)));
  HD_TRY(cut(o));
  HD_TRY(hd_arena_allocate(&o->arena, o->context, "an optimiser", o->parameters, sizeof *o->moment, &o->moment));
  for (int64_t i = 0; i < o->parameters; i++) {
    const heed_tensor *p = heed_parameters_at(o->set, i);
    for (int which = 0; which < heed_optimiser_moments(o) && !p->frozen; which++)
      HD_TRY(hd_arena_allocate(&o->arena, o->context, p->name, hd_count(p), sizeof(float), &o->moment[i][which]));
  }
  return HEED_OK;
}

heed_status heed_optimiser_new(heed_context *context, heed_parameters *set, const heed_optimiser_options *given, heed_optimiser **out) {
  heed_optimiser_options options = {.size = sizeof options};
  heed_optimiser *o;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(set && out, context, HEED_E_ARGUMENT, "heed_optimiser_new: null");
  *out = NULL;
  HD_TRY(hd_options_read(context, "heed_optimiser_options", given, &options, sizeof options));
  if (!options.has_betas) options.beta1 = 0.9, options.beta2 = 0.999;
  if (options.epsilon == 0) options.epsilon = 1e-8;
  HD_TRY(hd_allocate(context, "an optimiser", 1, sizeof *o, &o));
  *o = (heed_optimiser){.context = context, .set = set, .options = options, .parameters = heed_parameters_count(set)};
  hd_arena_init(&o->arena, context);
  heed_status status = fill(o);
  if (status == HEED_OK) *out = o;
  else heed_optimiser_free(o);
  return status;
}

void heed_optimiser_free(heed_optimiser *o) {
  if (!o) return;
  hd_arena_free(&o->arena);
  hd_release(o->context, o, 1, sizeof *o);
}

int64_t heed_optimiser_steps(const heed_optimiser *o) { return o ? o->steps : 0; }
void heed_optimiser_set_steps(heed_optimiser *o, int64_t steps) {
  if (o) o->steps = HD_MAX(steps, 0);
}

int heed_optimiser_moments(const heed_optimiser *o) {
  if (!o) return 0;
  if (o->options.kind == HEED_OPTIMISER_ADAMW) return MOMENTS;
  return o->options.momentum > 0 ? 1 : 0;
}

heed_view heed_optimiser_state(const heed_optimiser *o, int64_t i, int which) {
  if (!o || i < 0 || i >= o->parameters || which < 0 || which >= heed_optimiser_moments(o)) return (heed_view){0};
  const heed_tensor *p = heed_parameters_at(o->set, i);
  return heed_view_of(o->moment[i][which], HEED_F32, p->ndim, p->dim);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------------------ */

typedef struct step {
  heed_optimiser *optimiser;
  double learning_rate, clip;
  heed_optimiser_report found;
  const hd_kernels *kernels;
  hd_adamw adamw[2]; /* without and with decay */
  hd_sgd sgd[2];
} step;

/* NULL: no gradient has reached the parameter. */
static const float *gradient_of(const heed_tensor *p) { return p->buffer->begun ? p->buffer->gradient : NULL; }

static void square_piece(void *argument, int64_t i, int worker) {
  (void)worker;
  const step *s = argument;
  const piece *at = &s->optimiser->piece[i];
  const float *g = gradient_of(heed_parameters_at(s->optimiser->set, at->parameter));
  s->optimiser->square[i] = g ? s->kernels->sum_squares(g + at->from, at->count) : 0;
}

static void move_piece(void *argument, int64_t i, int worker) {
  (void)worker;
  const step *s = argument;
  const heed_optimiser *o = s->optimiser;
  const piece *at = &o->piece[i];
  const heed_tensor *p = heed_parameters_at(o->set, at->parameter);
  const float *g = gradient_of(p);
  float *m = o->moment[at->parameter][0], *v = o->moment[at->parameter][1];
  if (!g) return;
  if (o->options.kind == HEED_OPTIMISER_ADAMW)
    s->kernels->adamw(&s->adamw[p->decays], at->count, g + at->from, m + at->from, v + at->from, hd_value(p) + at->from);
  else s->kernels->sgd(&s->sgd[p->decays], at->count, g + at->from, m ? m + at->from : NULL, hd_value(p) + at->from);
}

/* The numbers of this step, worked out in double. */
static void prepare(step *s, double rate, double factor) {
  const heed_optimiser_options *o = &s->optimiser->options;
  const double t = (double)s->optimiser->steps;
  for (int decays = 0; decays < 2; decays++) {
    s->adamw[decays] = (hd_adamw){.gradient = (float)factor,
                                  .rest1 = (float)(1 - o->beta1),
                                  .beta2 = (float)o->beta2,
                                  .rest2 = (float)(1 - o->beta2),
                                  .second = (float)(1 / sqrt(1 - pow(o->beta2, t))),
                                  .epsilon = (float)o->epsilon,
                                  .rate = (float)(rate / (1 - pow(o->beta1, t))),
                                  .keep = (float)(1 - rate * (decays ? o->decay : 0))};
    s->sgd[decays] =
        (hd_sgd){.gradient = (float)factor, .decay = (float)(decays ? o->decay : 0), .momentum = (float)o->momentum, .rate = (float)rate};
  }
}

static void carry_out(void *argument) {
  step *s = argument;
  heed_optimiser *o = s->optimiser;
  heed_optimiser_report *found = &s->found;
  hd_parallel_near(o->context, o->pieces, square_piece, s);
  for (int64_t i = 0; i < o->pieces; i++) {
    found->gradient_norm += o->square[i];
    if (!isfinite(o->square[i]) && !found->not_finite) found->not_finite = heed_parameters_at(o->set, o->piece[i].parameter)->name;
  }
  found->gradient_norm = sqrt(found->gradient_norm);
  if (found->not_finite) return;
  o->steps++;
  prepare(s, s->learning_rate, s->clip > 0 ? HD_MIN(s->clip / (found->gradient_norm + 1e-6), 1) : 1);
  hd_parallel_near(o->context, o->pieces, move_piece, s);
}

heed_status heed_optimiser_step(heed_optimiser *o, double rate, double clip, heed_optimiser_report *report) {
  if (!o) return HEED_E_ARGUMENT;
  step s = {.optimiser = o, .kernels = hd_kernels_of(o->context), .learning_rate = rate, .clip = clip};
  HD_REQUIRE(rate >= 0 && isfinite(rate) && clip >= 0 && isfinite(clip), o->context, HEED_E_ARGUMENT,
             "heed_optimiser_step: rate %g, clip %g: allowed finite, 0 or more", rate, clip);
  hd_with_crew(o->context, carry_out, &s);
  if (report) *report = s.found;
  return HEED_OK;
}
