/* experiment_model.c: a transformer from the parts of nn.h, and a training loop small enough to read in one go. */
#include "experiment_model.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model ------------------------------------------------------------------------------------------------------------- */

/* Where parameters are added. The first error stays. */
typedef struct maker {
  small *model;
  heed_status status;
  uint64_t made;
} maker;

static heed_tensor *add(maker *m, int64_t rows, int64_t columns, heed_initial kind, double gain) {
  heed_tensor *out = NULL;
  char name[32];
  if (m->status != HEED_OK) return NULL;
  snprintf(name, sizeof name, "parameter %llu", (unsigned long long)m->made);
  const int64_t dim[] = {rows, columns};
  m->status = heed_parameters_add(m->model->parameters, name, columns ? 2 : 1, dim, NULL, &out);
  if (m->status == HEED_OK) m->status = heed_tensor_initialise(m->model->context, out, kind, gain, m->model->spec.seed, m->made++);
  return out;
}

static heed_tensor *matrix(maker *m, int64_t outputs, int64_t inputs) { return add(m, outputs, inputs, HEED_INITIAL_HE_NORMAL, 1); }
static heed_tensor *bias(maker *m, int64_t n) { return add(m, n, 0, HEED_INITIAL_CONSTANT, 0); }

static heed_nn_norm norm(maker *m) {
  return (heed_nn_norm){.weight = add(m, m->model->spec.width, 0, HEED_INITIAL_CONSTANT, 1), .bias = bias(m, m->model->spec.width)};
}

static heed_nn_block block(maker *m) {
  const small_spec *s = &m->model->spec;
  int64_t w = s->width, inner = s->heads * s->head_dim;
  return (heed_nn_block){.norm_after = s->norm_after,
                         .attention_norm = norm(m),
                         .attention = {.heads = s->heads,
                                       .w_qkv = matrix(m, 3 * inner, w),
                                       .w_o = matrix(m, w, inner),
                                       .b_o = bias(m, w),
                                       .attention = &m->model->attention},
                         .feed_forward_norm = norm(m),
                         .feed_forward = {.activation = HEED_ACTIVATION_RELU,
                                          .w_up = matrix(m, 4 * w, w),
                                          .b_up = bias(m, 4 * w),
                                          .w_down = matrix(m, w, 4 * w),
                                          .b_down = bias(m, w)}};
}

int small_open(heed_context *context, const small_spec *spec, small *out) {
  maker m = {.model = out};
  int code;
  *out = (small){.context = context, .spec = *spec};
  small_spec *s = &out->spec;
  if (s->answers == 0) s->answers = 1;
  if (s->head_dim == 0) s->head_dim = s->width / s->heads;
  out->attention = (heed_attention){.size = sizeof out->attention, .causal = !s->both_ways, .has_scale = s->unscaled, .scale = 1};
  TRY(check(context, heed_parameters_new(context, &out->parameters)));
  out->layers = allocate("layers", s->layers, sizeof *out->layers);
  // Halves of the variance, so that their sum has variance 1.
  out->embedding = add(&m, s->vocabulary, s->width, HEED_INITIAL_NORMAL, sqrt(0.5));
  out->position = add(&m, s->context, s->width, HEED_INITIAL_NORMAL, sqrt(0.5));
  for (int64_t i = 0; i < s->layers; i++) out->layers[i] = block(&m);
  out->final_norm = norm(&m);
  out->head = matrix(&m, s->answers * s->vocabulary, s->width);
  TRY(check(context, m.status));
done:
  return code;
}

void small_close(small *m) {
  heed_parameters_free(m->parameters);
  free(m->layers);
}

heed_tensor *small_logits(const small *m, heed_tape *tape, heed_tensor *ids) {
  heed_tensor *x = heed_tape_embedding(tape, ids, m->embedding);
  if (!x) return NULL;
  x = heed_tape_add(tape, x, heed_tape_slice(tape, m->position, 0, 0, heed_tensor_value(ids).dim[1]));
  for (int64_t i = 0; i < m->spec.layers; i++) x = heed_nn_block_apply(tape, &m->layers[i], x, NULL);
  if (!m->spec.norm_after) x = heed_nn_norm_apply(tape, &m->final_norm, x);
  return heed_tape_linear(tape, x, m->head, NULL);
}

/* ---- training -------------------------------------------------------------------------------------------------------------- */

typedef struct course {
  small model;
  const lesson *lesson;
  heed_optimiser *optimiser;
  heed_tape *tape;
  int32_t *ids, *targets;
} course;

static heed_tensor *input(const course *c, int32_t *numbers, int64_t answers) {
  const heed_view view = heed_view_of(numbers, HEED_I32, 3, (int64_t[]){c->lesson->batch, c->lesson->length, answers});
  heed_tensor *all = heed_tape_input(c->tape, &view);
  return answers == 1 ? heed_tape_reshape(c->tape, all, 2, view.dim) : all;
}

/* [B,n,answers,vocabulary], or [B,n,vocabulary]. */
static heed_tensor *answers_of(const course *c) {
  const small_spec *s = &c->model.spec;
  heed_tensor *logits = small_logits(&c->model, c->tape, input(c, c->ids, 1));
  if (s->answers == 1) return logits;
  return heed_tape_reshape(c->tape, logits, 4, (int64_t[]){c->lesson->batch, c->lesson->length, s->answers, s->vocabulary});
}

static int step(course *c, int64_t number, double *loss) {
  const lesson *l = c->lesson;
  const heed_schedule schedule = {
      .size = sizeof schedule, .kind = HEED_SCHEDULE_COSINE, .peak = l->rate, .warmup = l->warmup, .steps = l->steps};
  heed_context *context = c->model.context;
  int code;
  l->source(l->user, l->seed, number, l->batch, l->length, c->ids, c->targets);
  heed_tape_reset(c->tape);
  heed_parameters_forget_gradients(c->model.parameters);
  heed_tensor *logits = answers_of(c);
  heed_tensor *of_step = heed_tape_cross_entropy(c->tape, logits, input(c, c->targets, c->model.spec.answers), NULL);
  TRY(check(context, heed_tape_status(c->tape)));
  *loss = *(const float *)heed_tensor_value(of_step).data;
  TRY(check(context, heed_tape_backward(c->tape, of_step, NULL)));
  TRY(check(context, heed_optimiser_step(c->optimiser, heed_schedule_rate(&schedule, number), 0, NULL)));
done:
  return code;
}

static int examine(course *c, outcome *o) {
  enum { BATCHES = 8 };
  const lesson *l = c->lesson;
  const int64_t row = l->length * c->model.spec.answers, classes = c->model.spec.vocabulary;
  int64_t asked = 0, right = 0, exact = 0;
  int code = EXIT_OK;
  heed_tape_set_inference(c->tape, true);
  for (int64_t b = 0; b < BATCHES; b++) {
    l->held_out(l->held_out_user, l->seed, b, l->batch, l->length, c->ids, c->targets);
    heed_tape_reset(c->tape);
    heed_tensor *logits = answers_of(c);
    TRY(check(c->model.context, heed_tape_status(c->tape)));
    const float *value = heed_tensor_value(logits).data;
    for (int64_t i = 0; i < l->batch; i++) {
      bool all = true;
      for (int64_t k = i * row; k < (i + 1) * row; k++) {
        if (c->targets[k] < 0) continue;
        bool good = likeliest(value + k * classes, classes) == c->targets[k];
        asked++;
        right += good;
        all &= good;
      }
      exact += all;
    }
  }
  o->right = (double)right / (double)asked;
  o->exact = (double)exact / (double)(BATCHES * l->batch);
done:
  return code;
}

enum { POINTS = 100 }; // of a curve: single batches jump about

int experiment_train(experiment *e, const small_spec *spec, const lesson *l, curve *losses, outcome *o) {
  // β2 of Vaswani et al. 2017.
  const heed_optimiser_options adam = {.size = sizeof adam, .has_betas = true, .beta1 = 0.9, .beta2 = 0.98};
  course c = {.lesson = l};
  const double begin = seconds_now();
  double sum = 0;
  int code;
  TRY(small_open(e->context, spec, &c.model));
  c.ids = allocate("a batch", l->batch * l->length, sizeof *c.ids);
  c.targets = allocate("a batch", l->batch * l->length * c.model.spec.answers, sizeof *c.targets);
  TRY(check(e->context, heed_optimiser_new(e->context, c.model.parameters, &adam, &c.optimiser)));
  TRY(check(e->context, heed_tape_new(e->context, &c.tape)));
  const int64_t block = (l->steps + POINTS - 1) / POINTS;
  for (int64_t i = 0; i < l->steps; i++) {
    double loss;
    TRY(step(&c, i, &loss));
    sum += loss;
    if ((i + 1) % block == 0 || i + 1 == l->steps) {
      curve_add(losses, (double)(i + 1), sum / (double)(i % block + 1));
      sum = 0;
    }
    if (!progress(l->name, i + 1, l->steps)) TRY(EXIT_INTERRUPTED);
  }
  o->seconds = seconds_now() - begin;
  o->loss = curve_tail(losses, 0.1);
  o->parameters = heed_parameters_size(c.model.parameters);
  TRY(examine(&c, o));
done:
  heed_tape_free(c.tape);
  heed_optimiser_free(c.optimiser);
  free(c.ids);
  free(c.targets);
  small_close(&c.model);
  return code;
}
