/* An encoder–decoder as a stepper: a row's numbers have the same bits whatever other rows there are, however they branched, as in a session of its own; and its rules. */
#include "../model_test.h"

#include "../folder.h"

#include "../../include/heed/translate.h"
#include "../../src/model/model.h"
#include "../../src/model/stepper.h"

static heed_context *context;

enum { VOCABULARY = 96, SOURCE = 20 };

static heed_model *open_family(const char *family, heed_view *source) {
  char path[256], file[300];
  snprintf(path, sizeof path, TEST_EXPECTED "families/%s", family);
  snprintf(file, sizeof file, "%s/expected.safetensors", path);
  *source = test_array(context, file, "input_ids");
  return test_model(context, path);
}

/* Rows 0 and 1 of the fixture, of which the second has 14 tokens. */
static heed_sources both(const heed_view *source) {
  static const int64_t begin[] = {0, SOURCE, SOURCE + 14};
  return (heed_sources){.ids = source->data, .begin = begin, .count = 2};
}

/* Cross-attention of the last token of a run, the mean of all layers and heads or that of one. */
typedef struct crossing {
  int64_t layer, head, heads, layers;
  float weights[SOURCE];
} crossing;

static heed_status gather(void *user, const heed_layer_record *r) {
  crossing *c = user;
  if (r->stage != HEED_STAGE_CROSS || (c->layer >= 0 && c->layer != r->layer)) return HEED_OK;
  const float share = 1 / (float)((c->head < 0 ? c->heads : 1) * (c->layer < 0 ? c->layers : 1));
  for (int64_t h = c->head < 0 ? 0 : c->head; h < (c->head < 0 ? r->n_heads : c->head + 1); h++)
    for (int64_t k = 0; k < r->keys; k++) c->weights[k] += share * r->weights[(h * r->queries + r->queries - 1) * r->keys + k];
  return HEED_OK;
}

/* Targets by their tokens, as a search would branch them. */
enum { ROWS = 160, STEPS = 70 };
typedef struct target {
  int64_t source, length;
  int32_t ids[STEPS];
} target;

static uint32_t drawn(uint32_t *seed) { return *seed = *seed * 1664525u + 1013904223u, *seed >> 8; }

/* The row in a session of its own. */
static void expect_row(heed_model *model, const heed_sources *sources, const target *t, const float *logits, const float *weights,
                       crossing c) {
  float alone[VOCABULARY];
  heed_session *session;
  const heed_session_options options = {.size = sizeof options, .capacity = t->length};
  ok(context, heed_session_new(context, model, &options, &session));
  heed_watch watch = {.size = sizeof watch, .record = gather, .user = &c};
  const int64_t from = sources->begin[t->source], length = sources->begin[t->source + 1] - from;
  ok(context, heed_session_source(session, sources->ids + from, length, NULL));
  ok(context, heed_session_run(session, t->ids, t->length, alone, 1, weights ? &watch : NULL));
  assert_memory_equal(alone, logits, sizeof alone);
  if (weights) assert_memory_equal(c.weights, weights, (size_t)length * sizeof *weights);
  heed_session_free(session);
}

/* Rows branch and end at random over more steps than a page of the cache has keys; every few steps some are held against sessions. */
static void branch(const char *family, int64_t steps, int64_t layer, int64_t head) {
  static target rows[ROWS], next[ROWS];
  static float logits[ROWS * VOCABULARY], weights[ROWS * SOURCE];
  int32_t ids[ROWS], parents[ROWS];
  heed_view source;
  heed_model *model = open_family(family, &source);
  const heed_model_info info = test_info(model);
  const heed_sources sources = both(&source);
  hd_stepper *stepper;
  uint32_t seed = 7;
  ok(context, model->stepper(context, model, &stepper));
  stepper->most_rows = ROWS;
  assert_int_equal(stepper->targets, VOCABULARY);
  assert_int_equal(stepper->heads, info.heads);
  for (int round = 0; round < 2; round++) { // what the first left behind shows nowhere
    ok(context, stepper->kind->start(stepper, &sources));
    int64_t count = sources.count;
    for (int64_t r = 0; r < count; r++) rows[r] = (target){.source = r};
    for (int64_t i = 0; i < steps; i++) {
      for (int64_t r = 0; r < count; r++) ids[r] = rows[r].ids[rows[r].length++] = i ? (int32_t)(drawn(&seed) % VOCABULARY) : info.start;
      const bool looks = i % 9 == 3 || i + 1 == steps;
      const hd_step_weights asked = {.layer = layer, .head = head, .to = weights, .stride = SOURCE};
      ok(context, stepper->kind->step(stepper, ids, logits, looks ? &asked : NULL));
      for (int64_t r = 0; r < count && looks; r += 1 + count / 4)
        expect_row(model, &sources, &rows[r], logits + r * VOCABULARY, weights + r * SOURCE,
                   (crossing){layer, head, info.heads, info.layers, {0}});
      // More or fewer rows, some parents more than once, not in order.
      const int64_t now = 1 + drawn(&seed) % (i < 4 ? 12 : ROWS / 8);
      for (int64_t r = 0; r < now; r++) {
        parents[r] = (int32_t)(drawn(&seed) % (uint32_t)count);
        next[r] = rows[parents[r]];
      }
      memcpy(rows, next, sizeof rows);
      ok(context, stepper->kind->choose(stepper, now, parents));
      count = now;
    }
  }
  hd_stepper_free(stepper);
  heed_array_free(context, &source);
  heed_model_free(model);
}

static void test_branches(void **state) {
  (void)state;
  branch("t5", STEPS, -1, -1);
  branch("marian", STEPS, 1, -1);
  branch("bart", 20, -1, 2);
}

/* What a model's files say of its targets, generation_config.json last. */
static void test_rules(void **state) {
  (void)state;
  char folder[FOLDER_PATH], command[1200], path[512];
  begin_folder(folder);
  snprintf(command, sizeof command, "cp " TEST_EXPECTED "families/marian/*.json " TEST_EXPECTED "families/marian/model.safetensors %s/",
           folder);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof path, "%s/generation_config.json", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs("{\"decoder_start_token_id\": 7, \"eos_token_id\": [2, 9], \"forced_bos_token_id\": 11, \"bad_words_ids\": [[0], [51]]}", file);
  fclose(file);
  heed_model *model = test_model(context, folder);
  hd_stepper *stepper;
  ok(context, model->stepper(context, model, &stepper));
  const hd_target_rules *rules = &stepper->rules;
  assert_int_equal(rules->start, 7);
  assert_int_equal(rules->end_count, 2);
  assert_int_equal(rules->ends[1], 9);
  assert_int_equal(rules->never_count, 2);
  assert_int_equal(rules->never[0], 0);
  assert_int_equal(rules->never[1], 51);
  assert_int_equal(rules->forced_first, 11);
  assert_int_equal(rules->forced_last, 2);
  hd_stepper_free(stepper);
  heed_model_free(model);
  file = fopen(path, "w");
  assert_non_null(file);
  fputs("{\"bad_words_ids\": [[0, 51]]}", file);
  fclose(file);
  assert_int_equal(heed_model_load(context, folder, &model), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "bad_words_ids"));
  file = fopen(path, "w");
  assert_non_null(file);
  fputs("{\"bad_words_ids\": [[96]]}", file);
  fclose(file);
  assert_int_equal(heed_model_load(context, folder, &model), HEED_E_FORMAT);
  end_folder(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_branches),
      cmocka_unit_test(test_rules),
  };
  context = test_context(NULL);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failures;
}
