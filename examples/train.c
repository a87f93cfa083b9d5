/* train.c: a tiny GPT learns to reverse words, and says how many unseen ones it gets right: cc train.c $(pkg-config --cflags --libs heed) && ./a.out
 * heed_learner_save writes what it has learned as a directory that heed show, heed generate and Hugging Face read. */
#include <heed/train.h>

#include <stdio.h>

static bool report(void *user, const heed_train_report *r) {
  (void)user;
  if (r->step % 100 == 0) printf("step %lld: loss %.4f\n", (long long)r->step, r->loss);
  return true;
}

int main(void) {
  heed_context *context = NULL;
  heed_learner *learner = NULL;
  heed_optimiser *optimiser = NULL;
  if (heed_context_new(NULL, &context) != HEED_OK) return 1;

  heed_task task = {.size = sizeof task, .kind = HEED_TASK_REVERSE, .most = 4, .symbols = 8}, unseen;
  heed_status status = heed_task_finish(context, &task);
  unseen = task, unseen.held_out = true;
  const int64_t length = heed_task_length(&task);
  heed_learner_options model = {
      .size = sizeof model, .layers = 2, .heads = 2, .width = 64, .context = length, .vocabulary = 28}; // 26 letters, '>' and '.'
  if (status == HEED_OK) status = heed_learner_new(context, &model, &learner);

  heed_train_options run = {.size = sizeof run, .steps = 500, .batch = 32, .length = length, .clip = 1, .report = report};
  run.source = heed_task_batch, run.source_user = &task;
  run.optimiser = (heed_optimiser_options){.size = sizeof run.optimiser, .decay = 0.1};
  run.schedule = (heed_schedule){
      .size = sizeof run.schedule, .kind = HEED_SCHEDULE_COSINE, .peak = 3e-3, .floor = 3e-4, .warmup = 50, .steps = run.steps};
  if (status == HEED_OK) status = heed_optimiser_new(context, heed_learner_parameters(learner), &run.optimiser, &optimiser);
  heed_train_state state = {.size = sizeof state};
  if (status == HEED_OK) status = heed_train(learner, optimiser, &run, &state);

  heed_evaluation e = {.size = sizeof e};
  if (status == HEED_OK) status = heed_learner_evaluate(learner, heed_task_batch, &unseen, 1, 10, 32, length, &e);
  if (status == HEED_OK) printf("unseen words: %lld of %lld right\n", (long long)e.exact_sequences, (long long)e.sequences);
  else fprintf(stderr, "train: %s\n", heed_error(context));
  heed_optimiser_free(optimiser);
  heed_learner_free(learner);
  heed_context_free(context);
  return status != HEED_OK;
}
