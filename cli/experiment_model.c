/* experiment_model.c: a transformer from the parts of nn.h, and a training loop small enough to read in one go. */
#include "experiment_model.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ------------------------------------------------------------------------------------------------------------ */

heed_tensor *make_parameter(maker *m, int64_t rows, int64_t columns, heed_initial kind, double gain) {
  heed_tensor *out = NULL;
  char name[32];
  if (m->status != HEED_OK) return NULL;
  snprintf(name, sizeof name, "parameter %llu", (unsigned long long)m->made);
  const int64_t dim[] = {rows, columns};
  m->status = heed_parameters_add(m->set, name, columns ? 2 : 1, dim, NULL, &out);
  if (m->status == HEED_OK) m->status = heed_tensor_initialise(m->context, out, kind, gain, m->seed, m->made++);
  return out;
}

heed_tensor *make_matrix(maker *m, int64_t outputs, int64_t inputs) {
  return make_parameter(m, outputs, inputs, HEED_INITIAL_HE_NORMAL, 1);
}
heed_tensor *make_bias(maker *m, int64_t n) { return make_parameter(m, n, 0, HEED_INITIAL_CONSTANT, 0); }

/* ---- the transformer ------------------------------------------------------------------------------------------------------- */

typedef struct small {
  small_spec spec;
  maker maker;
  heed_tensor *embedding, *position, *head;
  heed_nn_norm final_norm;
  heed_nn_block *layers;
  heed_attention attention;
} small;

static heed_nn_norm norm(small *m) {
  const int64_t w = m->spec.width;
  return (heed_nn_norm){.weight = make_parameter(&m->maker, w, 0, HEED_INITIAL_CONSTANT, 1), .bias = make_bias(&m->maker, w)};
}

static heed_nn_block block(small *m) {
  const small_spec *s = &m->spec;
  const int64_t w = s->width, inner = s->heads * s->head_dim;
  maker *by = &m->maker;
  return (heed_nn_block){.norm_after = s->norm_after,
                         .attention_norm = norm(m),
                         .attention = {.heads = s->heads,
                                       .w_qkv = make_matrix(by, 3 * inner, w),
                                       .w_o = make_matrix(by, w, inner),
                                       .b_o = make_bias(by, w),
                                       .attention = &m->attention},
                         .feed_forward_norm = norm(m),
                         .feed_forward = {.activation = HEED_ACTIVATION_RELU,
                                          .w_up = make_matrix(by, 4 * w, w),
                                          .b_up = make_bias(by, 4 * w),
                                          .w_down = make_matrix(by, w, 4 * w),
                                          .b_down = make_bias(by, w)}};
}

static int small_open(heed_context *context, const small_spec *spec, small *out) {
  int code;
  *out = (small){.spec = *spec, .maker = {.context = context, .seed = spec->seed}};
  small_spec *s = &out->spec;
  maker *m = &out->maker;
  if (s->answers == 0) s->answers = 1;
  if (s->head_dim == 0) s->head_dim = s->width / s->heads;
  out->attention = (heed_attention){.size = sizeof out->attention, .causal = !s->both_ways, .has_scale = s->unscaled, .scale = 1};
  TRY(check(context, heed_parameters_new(context, &m->set)));
  out->layers = allocate("layers", s->layers, sizeof *out->layers);
  // Halves of the variance, so that their sum has variance 1.
  out->embedding = make_parameter(m, s->vocabulary, s->width, HEED_INITIAL_NORMAL, sqrt(0.5));
  out->position = make_parameter(m, s->context, s->width, HEED_INITIAL_NORMAL, sqrt(0.5));
  for (int64_t i = 0; i < s->layers; i++) out->layers[i] = block(out);
  out->final_norm = norm(out);
  out->head = make_matrix(m, s->answers * s->vocabulary, s->width);
  TRY(check(context, m->status));
done:
  return code;
}

static void small_close(small *m) {
  heed_parameters_free(m->maker.set);
  free(m->layers);
}

/* ids i32 [B,n] -> [B,n,answers · vocabulary]. */
static heed_tensor *small_logits(const void *model, heed_tape *tape, heed_tensor *ids) {
  const small *m = model;
  heed_tensor *x = heed_tape_embedding(tape, ids, m->embedding);
  if (!x) return NULL;
  x = heed_tape_add(tape, x, heed_tape_slice(tape, m->position, 0, 0, heed_tensor_value(ids).dim[1]));
  for (int64_t i = 0; i < m->spec.layers; i++) x = heed_nn_block_apply(tape, &m->layers[i], x, NULL);
  if (!m->spec.norm_after) x = heed_nn_norm_apply(tape, &m->final_norm, x);
  return heed_tape_linear(tape, x, m->head, NULL);
}

/* ---- training -------------------------------------------------------------------------------------------------------------- */

typedef struct course {
  heed_context *context;
  const pupil *pupil;
  const lesson *lesson;
  heed_optimiser *optimiser;
  heed_tape *tape;
  int32_t *ids, *targets;
} course;

static heed_tensor *ids_of(const course *c) {
  const heed_view view = heed_view_of(c->ids, HEED_I32, 2, (int64_t[]){c->lesson->batch, c->lesson->length});
  return heed_tape_input(c->tape, &view);
}

/* [B · (n − first) · answers], as many as there are rows of logits. */
static heed_tensor *targets_of(const course *c) {
  const pupil *p = c->pupil;
  heed_view view = heed_view_of(c->targets, HEED_I32, 3, (int64_t[]){c->lesson->batch, c->lesson->length, p->answers});
  view.data = c->targets + p->first * p->answers;
  view.dim[1] -= p->first;
  return heed_tape_reshape(c->tape, heed_tape_input(c->tape, &view), 1, (int64_t[]){-1});
}

/* [B · (n − first) · answers,classes]. */
static heed_tensor *answers_of(const course *c) {
  return heed_tape_reshape(c->tape, c->pupil->logits(c->pupil->model, c->tape, ids_of(c)), 2, (int64_t[]){-1, c->pupil->classes});
}

static int step(course *c, int64_t number, double *loss) {
  const lesson *l = c->lesson;
  const heed_schedule schedule = {
      .size = sizeof schedule, .kind = HEED_SCHEDULE_COSINE, .peak = l->rate, .warmup = l->warmup, .steps = l->steps};
  int code;
  l->source(l->user, l->seed, number, l->batch, l->length, c->ids, c->targets);
  heed_tape_reset(c->tape);
  heed_parameters_forget_gradients(c->pupil->parameters);
  heed_tensor *of_step = heed_tape_cross_entropy(c->tape, answers_of(c), targets_of(c), NULL);
  TRY(check(c->context, heed_tape_status(c->tape)));
  *loss = *(const float *)heed_tensor_value(of_step).data;
  TRY(check(c->context, heed_tape_backward(c->tape, of_step, NULL)));
  TRY(check(c->context, heed_optimiser_step(c->optimiser, heed_schedule_rate(&schedule, number), 0, NULL)));
done:
  return code;
}

static int examine(course *c, outcome *o) {
  enum { BATCHES = 8 };
  const lesson *l = c->lesson;
  const int64_t places = (l->length - c->pupil->first) * c->pupil->answers, classes = c->pupil->classes;
  int64_t asked = 0, right = 0, exact = 0;
  int code = EXIT_OK;
  heed_tape_set_inference(c->tape, true);
  for (int64_t b = 0; b < BATCHES; b++) {
    l->held_out(l->held_out_user, l->seed, b, l->batch, l->length, c->ids, c->targets);
    heed_tape_reset(c->tape);
    heed_tensor *logits = answers_of(c), *targets = targets_of(c);
    TRY(check(c->context, heed_tape_status(c->tape)));
    const float *value = heed_tensor_value(logits).data;
    const int32_t *target = heed_tensor_value(targets).data;
    for (int64_t i = 0; i < l->batch; i++) {
      bool all = true;
      for (int64_t k = i * places; k < (i + 1) * places; k++) {
        if (target[k] < 0) continue;
        bool good = likeliest(value + k * classes, classes) == target[k];
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

/* Room for a batch, and a tape. */
static int course_open(course *c) {
  const lesson *l = c->lesson;
  c->ids = allocate("a batch", l->batch * l->length, sizeof *c->ids);
  c->targets = allocate("a batch", l->batch * l->length * c->pupil->answers, sizeof *c->targets);
  return check(c->context, heed_tape_new(c->context, &c->tape));
}

static void course_close(course *c) {
  heed_tape_free(c->tape);
  heed_optimiser_free(c->optimiser);
  free(c->ids);
  free(c->targets);
}

int experiment_examine(experiment *e, const pupil *p, const lesson *l, outcome *o) {
  course c = {.context = e->context, .pupil = p, .lesson = l};
  int code;
  TRY(course_open(&c));
  TRY(examine(&c, o));
done:
  course_close(&c);
  return code;
}

enum { POINTS = 100 }; // of a curve: single batches jump about

int experiment_task(experiment *e, heed_task task[2], lesson *out) {
  int code;
  TRY(check(e->context, heed_task_finish(e->context, &task[0])));
  task[1] = task[0];
  task[1].held_out = true;
  *out = (lesson){.name = "train",
                  .source = heed_task_batch,
                  .user = &task[0],
                  .held_out = heed_task_batch,
                  .held_out_user = &task[1],
                  .length = heed_task_length(&task[0]),
                  .seed = e->seed};
done:
  return code;
}

int experiment_teach(experiment *e, const pupil *p, const lesson *l, curve *losses, outcome *o) {
  // β2 of Vaswani et al. 2017.
  const heed_optimiser_options adam = {.size = sizeof adam, .has_betas = true, .beta1 = 0.9, .beta2 = 0.98};
  course c = {.context = e->context, .pupil = p, .lesson = l};
  const double begin = seconds_now();
  double sum = 0;
  int code;
  TRY(course_open(&c));
  TRY(check(e->context, heed_optimiser_new(e->context, p->parameters, &adam, &c.optimiser)));
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
  o->parameters = heed_parameters_size(p->parameters);
  TRY(examine(&c, o));
done:
  course_close(&c);
  return code;
}

int experiment_train(experiment *e, const small_spec *spec, const lesson *l, curve *losses, outcome *o) {
  small m;
  int code;
  TRY(small_open(e->context, spec, &m));
  const pupil p = {.model = &m, .parameters = m.maker.set, .logits = small_logits, .answers = m.spec.answers, .classes = m.spec.vocabulary};
  TRY(experiment_teach(e, &p, l, losses, o));
done:
  small_close(&m);
  return code;
}
