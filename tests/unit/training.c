/* The training loop: what it says it takes is what it takes, at the boundary too; a step and its evaluation are reported once, whatever comes between them. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../counting_allocator.h"
#include "../folder.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int32_t text[4000];
static heed_text_data data = {text, sizeof text / sizeof *text};

static void fill_text(int64_t vocabulary) {
  for (int i = 0; i < data.count; i++) text[i] = (int32_t)((i * 7 + i / 13) % vocabulary);
}

typedef struct size {
  const char *what;
  heed_learner_options learner;
  int64_t batch, length, accumulate, eval_batches;
} size;

enum { PAIR_SOURCE = 64, PAIR_TARGET = 40 };

static const size sizes[] = {
    {"a GPT", {.layers = 2, .heads = 4, .width = 64, .context = 32, .vocabulary = 300}, 12, 32, 1, 0},
    {"with an evaluation", {.layers = 2, .heads = 4, .width = 64, .context = 32, .vocabulary = 300}, 12, 32, 1, 3},
    {"a wide one on one sequence", {.layers = 1, .heads = 2, .width = 256, .context = 64, .vocabulary = 100}, 1, 64, 3, 1},
    {"a deep Llama",
     {.kind = HEED_LEARNER_LLAMA, .layers = 6, .heads = 4, .kv_heads = 2, .width = 64, .context = 64, .vocabulary = 90},
     8,
     64,
     1,
     1},
    {"an encoder with dropout",
     {.kind = HEED_LEARNER_ENCODER, .layers = 2, .heads = 4, .width = 64, .context = 48, .vocabulary = 200, .dropout = 0.1},
     8,
     48,
     2,
     1},
    {"recurrent",
     {.kind = HEED_LEARNER_RECURRENT, .width = 32, .source = PAIR_SOURCE, .context = PAIR_TARGET, .vocabulary = 30},
     48,
     PAIR_SOURCE + PAIR_TARGET,
     1,
     0},
    {"dropout", {.layers = 2, .heads = 4, .width = 64, .context = 48, .vocabulary = 200, .dropout = 0.1}, 8, 48, 1, 1},
};

/* The same text as pairs: nothing is asked for over the source. */
static void text_pairs(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  heed_text_batch(user, seed, number, batch, length, ids, targets);
  for (int64_t r = 0; r < batch; r++)
    for (int64_t i = 0; i < PAIR_SOURCE; i++) targets[r * length + i] = -1;
}

static heed_train_options options_of(const size *s, int64_t steps) {
  return (heed_train_options){.size = sizeof(heed_train_options),
                              .steps = steps,
                              .batch = s->batch,
                              .length = s->length,
                              .accumulate = s->accumulate,
                              .source = s->learner.source ? text_pairs : heed_text_batch,
                              .source_user = &data,
                              .schedule = {.size = sizeof(heed_schedule), .peak = 1e-3},
                              .eval_source = s->eval_batches ? heed_text_window_batch : NULL,
                              .eval_user = &data,
                              .eval_every = 2,
                              .eval_batches = s->eval_batches};
}

static heed_learner *learner_of(heed_context *context, const size *s) {
  heed_learner *learner;
  heed_learner_options options = s->learner;
  options.size = sizeof options;
  ok(context, heed_learner_new(context, &options, &learner));
  fill_text(options.vocabulary);
  return learner;
}

/* Of what is said no more is allocated, and not much less, but for what threads may put aside: an estimate that is twice what is needed refuses what would run. */
static void takes_what_it_says(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int threads = 1; threads <= 3; threads += 2) {
      ledger l;
      heed_context *context = ledger_context(&l, threads);
      heed_learner *learner = learner_of(context, &sizes[i]);
      heed_optimiser *optimiser;
      ok(context, heed_optimiser_new(context, heed_learner_parameters(learner), NULL, &optimiser));
      const heed_train_options options = options_of(&sizes[i], 4);
      heed_train_state where = {.size = sizeof where};
      int64_t said;
      ok(context, heed_train_fits(learner, &options, &said));
      const int64_t before = l.now;
      l.peak = before;
      ok(context, heed_train(learner, optimiser, &options, &where));
      const int64_t taken = l.peak - before;
      if (!(taken <= said))
        fail_msg("%s, %d threads: takes %lld bytes, said %lld", sizes[i].what, threads, (long long)taken, (long long)said);
      if (!(said <= taken + taken / 4 + threads * (1 << 20)))
        fail_msg("%s, %d threads: says %lld bytes, takes %lld", sizes[i].what, threads, (long long)said, (long long)taken);
      assert_int_equal(l.now, before);
      heed_optimiser_free(optimiser);
      heed_learner_free(learner);
      heed_context_free(context);
      assert_int_equal(l.now, 0);
    }
}

/* In a process whose address space has room for `room` bytes more: what heed_train and heed_train_fits say, both alike. */
static heed_status with_room(heed_learner *learner, const heed_train_options *options, heed_optimiser *optimiser, int64_t room,
                             bool *says_so) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    long long pages = 0;
    int64_t bytes;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lld", &pages) != 1) _exit(120);
    fclose(file);
    const rlim_t limit = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + room);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit}) != 0) _exit(121);
    heed_train_state where = {.size = sizeof where};
    heed_status fits = heed_train_fits(learner, options, &bytes);
    const char *said = heed_error(learner->context);
    bool named = fits == HEED_E_MEMORY && strstr(said, "training on batches of 1024 times 32 positions takes 0.") &&
                 strstr(said, "GB are available");
    if (fits == HEED_E_MEMORY) fits = heed_train(learner, optimiser, options, &where); // before the first step
    _exit((int)fits | (named && where.step == 0 ? 64 : 0));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 120);
  *says_so = WEXITSTATUS(status) & 64;
  return (heed_status)(WEXITSTATUS(status) & 63);
}

static void fits_up_to_the_boundary(void **state) {
  (void)state;
  // A sanitizer keeps memory of its own beside each block: the upper side of the boundary is loose there.
  const int64_t sanitizer = SANITIZED ? (int64_t)8 << 30 : 0;
  const size large = {"large", {.layers = 1, .heads = 1, .width = 16, .context = 32, .vocabulary = 8}, 1024, 32, 1, 0};
  heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1});
  heed_learner *learner = learner_of(context, &large);
  heed_optimiser *optimiser;
  ok(context, heed_optimiser_new(context, heed_learner_parameters(learner), NULL, &optimiser));
  const heed_train_options options = options_of(&large, 1);
  int64_t bytes;
  bool says_so;
  ok(context, heed_train_fits(learner, &options, &bytes));
  assert_in_range(bytes, 50 << 20, 800 << 20); // so that the system's own few pages do not matter
  assert_int_equal(with_room(learner, &options, optimiser, bytes - bytes / 50, &says_so), HEED_E_MEMORY);
  assert_true(says_so);
  assert_int_equal(with_room(learner, &options, optimiser, bytes + bytes / 50 + sanitizer, &says_so), HEED_OK);
  assert_false(says_so);
  // A plan leaves no gradients behind.
  for (int64_t i = 0; i < heed_parameters_count(learner->parameters); i++)
    assert_null(heed_tensor_gradient(heed_parameters_at(learner->parameters, i)).data);
  heed_optimiser_free(optimiser);
  heed_learner_free(learner);
  heed_context_free(context);
}

/* ---- an evaluation that is owed ------------------------------------------------------------------------------------------------ */

enum { STEPS = 6, DUE = 4 };

typedef struct journal {
  int count;
  heed_train_report line[2 * STEPS];
} journal;

static bool write_down(void *user, const heed_train_report *report) {
  journal *j = user;
  j->line[j->count++] = *report;
  return true;
}

/* Cancels the evaluation after step DUE when it is half done. */
static bool cancel(void *user, const char *what, int64_t done, int64_t total) {
  const heed_train_state *state = user;
  return strcmp(what, "evaluate") != 0 || state->step != DUE || 2 * done < total;
}

static const size owing = {"owing", {.layers = 1, .heads = 2, .width = 32, .context = 16, .vocabulary = 40}, 4, 16, 1, 6};

static void start(heed_context *context, heed_learner **learner, heed_optimiser **optimiser) {
  *learner = learner_of(context, &owing);
  ok(context, heed_optimiser_new(context, heed_learner_parameters(*learner), NULL, optimiser));
}

static void same(double a, double b, const char *what, int step) {
  if (memcmp(&a, &b, sizeof a)) fail_msg("step %d: %s %.17g, uninterrupted %.17g", step, what, a, b);
}

/* Cancelled between a step and its evaluation, saved, read again: each step is reported once, with the numbers of a run that nobody stopped. */
static void what_is_owed_is_reported_once(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner[3];
  heed_optimiser *optimiser[3];
  heed_train_state where[3] = {{.size = sizeof *where}, {.size = sizeof *where}, {.size = sizeof *where}};
  journal whole = {0}, parts = {0};
  heed_train_options options = options_of(&owing, STEPS);
  char folder[FOLDER_PATH];
  bool found;
  begin_folder(folder);
  for (int i = 0; i < 3; i++) start(context, &learner[i], &optimiser[i]);
  options.report = write_down;
  options.report_user = &whole;
  ok(context, heed_train(learner[0], optimiser[0], &options, &where[0]));

  options.report_user = &parts;
  heed_context_set_progress(context, cancel, &where[1]);
  assert_int_equal(heed_train(learner[1], optimiser[1], &options, &where[1]), HEED_E_CANCELLED);
  heed_context_set_progress(context, NULL, NULL);
  assert_int_equal(where[1].step, DUE);
  assert_true(where[1].owes_report);
  assert_int_equal(parts.count, DUE - 1);
  ok(context, heed_checkpoint_save(context, folder, learner[1], optimiser[1], &where[1], ""));
  ok(context, heed_checkpoint_load(context, folder, learner[2], optimiser[2], &where[2], "", NULL, NULL, &found));
  assert_true(found && where[2].owes_report);
  ok(context, heed_train(learner[2], optimiser[2], &options, &where[2]));
  assert_false(where[2].owes_report);

  assert_int_equal(whole.count, STEPS);
  assert_int_equal(parts.count, STEPS);
  for (int i = 0; i < STEPS; i++) {
    const heed_train_report *a = &parts.line[i], *b = &whole.line[i];
    assert_int_equal(a->step, i + 1);
    assert_int_equal(b->step, i + 1);
    assert_int_equal(b->evaluated, (i + 1) % 2 == 0);
    assert_int_equal(a->evaluated, b->evaluated);
    assert_int_equal(a->best, b->best);
    same(a->loss, b->loss, "loss", i + 1);
    same(a->gradient_norm, b->gradient_norm, "gradient norm", i + 1);
    same(a->learning_rate, b->learning_rate, "learning rate", i + 1);
    same(a->evaluation.loss, b->evaluation.loss, "validation loss", i + 1);
  }
  assert_int_equal(where[0].best_step, where[2].best_step);
  same(where[2].best_loss, where[0].best_loss, "best loss", STEPS);
  // Nothing is owed after the end.
  ok(context, heed_train(learner[2], optimiser[2], &options, &where[2]));
  assert_int_equal(parts.count, STEPS);
  for (int i = 0; i < 3; i++) heed_optimiser_free(optimiser[i]), heed_learner_free(learner[i]);
  end_folder(folder);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(takes_what_it_says),
      cmocka_unit_test(fits_up_to_the_boundary),
      cmocka_unit_test(what_is_owed_is_reported_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
