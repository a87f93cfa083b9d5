/* inspect_run.c: what `heed inspect` says of the directory of a training run. */
#include "json.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One checkpoint. */
struct training_item {
  char name[64];
  bool damaged;
  heed_train_state state;
};

bool training_is(const char *directory) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, trained_name);
  return access(path, F_OK) == 0 || heed_checkpoint_exists(directory);
}

static void keep(void *user, const heed_checkpoint_info *info) {
  training_listing *run = user;
  run->item = grown("checkpoints", run->item, &run->room, run->count + 1, sizeof *run->item);
  const char *slash = strrchr(info->path, '/');
  struct training_item *item = &run->item[run->count++];
  *item = (struct training_item){.damaged = info->damage != NULL, .state = info->state};
  snprintf(item->name, sizeof item->name, "%s", slash ? slash + 1 : info->path);
  if (info->damage) error_of(EXIT_BAD_FILE, "damaged: %s", info->damage);
  run->damaged |= item->damaged;
}

static bool pass_by(void *user, const heed_file_item *item) {
  (void)user;
  (void)item;
  return true;
}

int training_look(heed_context *context, const char *directory, training_listing *out) {
  char best[4096];
  const char *format;
  int code;
  *out = (training_listing){0};
  TRY(trained_read(context, directory, &out->about));
  TRY(check(context, heed_checkpoint_inspect(context, directory, keep, out)));
  snprintf(best, sizeof best, "%s/best", directory);
  out->has_best = access(best, F_OK) == 0;
  if (out->has_best && heed_file_inspect(context, best, &format, pass_by, NULL) != HEED_OK) {
    error_of(EXIT_BAD_FILE, "damaged: %s", heed_error(context));
    out->damaged = true;
  }
done:
  return code;
}

/* The newest one that is whole, from which a run goes on; NULL: none. */
static const struct training_item *newest(const training_listing *run) {
  for (int64_t i = 0; i < run->count; i++)
    if (!run->item[i].damaged) return &run->item[i];
  return NULL;
}

/* NULL where there is nothing to go on with. */
static const char *resume(const training_listing *run, char line[4200]) {
  const struct training_item *from = newest(run);
  if (!*run->about.command || !from || from->state.step >= run->about.steps) return NULL;
  snprintf(line, 4200, "%s%s", run->about.command, strstr(run->about.command, " --resume") ? "" : " --resume");
  return line;
}

void training_table(const training_listing *run) {
  char line[4200];
  const struct training_item *from = newest(run);
  const char *again = resume(run, line);
  out("\ntraining\n");
  if (from && run->about.steps) out("  step %lld of %lld\n", (long long)from->state.step, (long long)run->about.steps);
  if (from && from->state.best_step > 0)
    out("  best validation loss %.4f, after step %lld%s\n", from->state.best_loss, (long long)from->state.best_step,
        run->has_best ? " (best/)" : "");
  for (int64_t i = 0; i < run->count; i++) {
    const struct training_item *item = &run->item[i];
    if (item->damaged) out("  %s  damaged\n", item->name);
    else out("  %s  step %lld, training loss %.4f\n", item->name, (long long)item->state.step, item->state.loss);
  }
  if (run->count == 0) out("  no checkpoints\n");
  if (again) out("  to go on%s%s: %s\n", *run->about.folder ? ", in " : "", run->about.folder, again);
}

static void json_of(json *j, const struct training_item *item) {
  json_open(j, NULL, '{');
  json_text(j, "name", item->name);
  json_bool(j, "whole", !item->damaged);
  if (!item->damaged) {
    json_whole(j, "step", item->state.step);
    json_number(j, "loss", item->state.loss);
    json_number(j, "gradient_norm", item->state.gradient_norm);
  }
  json_close(j);
}

void training_json(json *j, const training_listing *run) {
  char line[4200];
  const struct training_item *from = newest(run);
  const char *again = resume(run, line);
  json_open(j, "training", '{');
  if (run->about.steps) json_whole(j, "steps", run->about.steps);
  if (from) json_whole(j, "step", from->state.step);
  if (from && from->state.best_step > 0) {
    json_number(j, "best_loss", from->state.best_loss);
    json_whole(j, "best_step", from->state.best_step);
  }
  json_open(j, "checkpoints", '[');
  for (int64_t i = 0; i < run->count; i++) json_of(j, &run->item[i]);
  json_close(j);
  if (again) json_text(j, "resume", again);
  if (again && *run->about.folder) json_text(j, "folder", run->about.folder);
  json_close(j);
}

void training_free(training_listing *run) { free(run->item); }
