/* train_run.c: the loop of `heed train`: a progress line, logs, validation, checkpoints, and an end that loses nothing. */
#define _GNU_SOURCE
#include "train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct run {
  training *t;
  FILE *log, *csv;
  bool terminal, line_drawn;
  double started;
  int64_t first, saved, exported; /* step at which this process began; of the last checkpoint and the last model, −1: none */
  int lock;                       /* descriptor of the run's directory */
  int code, log_code;
} run;

/* ---- what people see ---------------------------------------------------------------------------------------------------------- */

static void clear_line(run *r) {
  if (r->line_drawn) fputs("\r\033[K", stderr);
  r->line_drawn = false;
}

static void draw_line(run *r, const heed_train_report *s) {
  int64_t done = s->step > r->first ? s->step - r->first : 1; // a report that was owed is of a step before
  double seconds = seconds_now() - r->started, left = seconds / (double)done * (double)(s->steps - s->step);
  fprintf(stderr, "\rstep %lld/%lld  loss %.4f  gradient %.3f  %.0f tokens/s  %.0f MB  %d:%02d left\033[K", (long long)s->step,
          (long long)s->steps, s->loss, s->gradient_norm, s->tokens_per_second, (double)s->bytes / 1e6, (int)left / 60, (int)left % 60);
  fflush(stderr);
  r->line_drawn = true;
}

static double accuracy_of(const heed_train_report *s) {
  return s->evaluated && s->evaluation.places ? (double)s->evaluation.right_places / (double)s->evaluation.places : NAN;
}

static void say_validation(run *r, const heed_train_report *s) {
  const heed_evaluation *e = &s->evaluation;
  clear_line(r);
  if (r->t->is_task || r->t->has_pairs)
    note("step %lld: training loss %.4f, held out: loss %.4f, %.2f %% exact (%lld of %lld)%s", (long long)s->step, s->loss, e->loss,
         100.0 * (double)e->exact_sequences / (double)(e->sequences ? e->sequences : 1), (long long)e->exact_sequences,
         (long long)e->sequences, s->best ? ", best so far" : "");
  else if (r->t->head != HEED_HEAD_TOKENS)
    note("step %lld: training loss %.4f, validation loss %.4f, accuracy %.2f %%%s", (long long)s->step, s->loss, e->loss,
         100 * accuracy_of(s), s->best ? ", best so far" : "");
  else note("step %lld: training loss %.4f, validation loss %.4f%s", (long long)s->step, s->loss, e->loss, s->best ? ", best so far" : "");
}

/* ---- logs ----------------------------------------------------------------------------------------------------------------------- */

/* Of a line, after the step. */
enum { COLUMNS = 8 };
static const struct {
  const char *name;
  bool validated; /* only where there was a validation */
} columns[COLUMNS] = {{"loss", false},  {"gradient_norm", false},  {"learning_rate", false}, {"tokens_per_second", false},
                      {"bytes", false}, {"validation_loss", true}, {"exact", true},          {"accuracy", true}};

/* A number, or what the format has for none. */
static void put_number(FILE *file, double value, const char *none) {
  if (isfinite(value)) fprintf(file, "%.9g", value);
  else fputs(none, file);
}

static double exact_of(const heed_train_report *s) {
  return s->evaluated && s->evaluation.sequences ? (double)s->evaluation.exact_sequences / (double)s->evaluation.sequences : NAN;
}

/* The step of a line: the first number in it. −1: there is none. */
static int64_t step_of(const char *line) {
  const char *digit = line + strcspn(line, "0123456789\n");
  return *digit >= '0' && *digit <= '9' ? atoll(digit) : -1;
}

/* Where the lines of steps that are done end: whoever was killed has logged steps that come again, and perhaps half a line. */
static long end_of_done(FILE *file, int64_t done) {
  char *line = NULL;
  size_t room = 0;
  long end = 0;
  for (ssize_t length; (length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n' && step_of(line) <= done;) end += length;
  free(line);
  return end;
}

/* Begins a log, or goes on with one after the step that the run goes on from. */
static int open_log(const char *path, bool resume, int64_t done, bool csv, FILE **out) {
  if (!path) return EXIT_OK;
  *out = fopen(path, resume ? "r+" : "w");
  if (!*out && resume && errno == ENOENT) *out = fopen(path, "w");
  if (!*out) return error_of(EXIT_FAILED, "%s: cannot be written (%s)", path, strerror(errno));
  long end = resume ? end_of_done(*out, done) : 0;
  if (fseek(*out, end, SEEK_SET) == 0 && end > 0 && ftruncate(fileno(*out), end) != 0)
    return error_of(EXIT_FAILED, "%s: cannot be cut to step %lld (%s)", path, (long long)done, strerror(errno));
  if (csv && end == 0) {
    fputs("step", *out);
    for (int i = 0; i < COLUMNS; i++) fprintf(*out, ",%s", columns[i].name);
    fputc('\n', *out);
  }
  return EXIT_OK;
}

/* A log that cannot be written costs its lines, not the run: said once, and at the end by the exit code. */
static void end_line(run *r, const char *path, FILE **file) {
  if (fflush(*file) == 0 && !ferror(*file)) return;
  clear_line(r);
  r->log_code = error_of(EXIT_FAILED, "%s: cannot be written any more (%s); the run goes on without it", path, strerror(errno));
  fclose(*file);
  *file = NULL;
}

static void close_log(run *r, const char *path, FILE *file) {
  if (file && fclose(file) != 0) r->log_code = error_of(EXIT_FAILED, "%s: cannot be written (%s)", path, strerror(errno));
}

static void write_json(run *r, const heed_train_report *s, const double number[COLUMNS]) {
  fprintf(r->log, "{\"step\":%lld", (long long)s->step);
  for (int i = 0; i < COLUMNS; i++) {
    if (columns[i].validated && !s->evaluated) continue;
    fprintf(r->log, ",\"%s\":", columns[i].name);
    put_number(r->log, number[i], "null");
  }
  fputs(s->skipped ? ",\"skipped\":true}\n" : "}\n", r->log);
  end_line(r, r->t->v->log, &r->log);
}

static void write_csv(run *r, const heed_train_report *s, const double number[COLUMNS]) {
  fprintf(r->csv, "%lld", (long long)s->step);
  for (int i = 0; i < COLUMNS; i++) {
    fputc(',', r->csv);
    put_number(r->csv, number[i], "");
  }
  fputc('\n', r->csv);
  end_line(r, r->t->v->csv, &r->csv);
}

static void write_logs(run *r, const heed_train_report *s) {
  const double number[COLUMNS] = {
      s->loss,     s->gradient_norm, s->learning_rate, s->tokens_per_second, (double)s->bytes, s->evaluated ? s->evaluation.loss : NAN,
      exact_of(s), accuracy_of(s)};
  if (r->log) write_json(r, s, number);
  if (r->csv) write_csv(r, s, number);
}

/* ---- saving --------------------------------------------------------------------------------------------------------------------- */

int train_save_model(const training *t, const char *directory) {
  char path[4096];
  int code = check(t->context, heed_learner_save(t->learner, t->tokenizer, directory));
  if (code != EXIT_OK || !t->target_tokenizer) return code;
  snprintf(path, sizeof path, "%s/target", directory);
  TRY(output_directory(path));
  TRY(check(t->context, heed_tokenizer_save(t->context, t->target_tokenizer, path)));
done:
  return code;
}

static int save(run *r) {
  training *t = r->t;
  const char *out = t->v->out;
  int code = EXIT_OK;
  clear_line(r);
  if (r->saved != t->state.step)
    TRY(check(t->context, heed_checkpoint_save(t->context, out, t->learner, t->optimiser, &t->state, t->settings)));
  r->saved = t->state.step;
  // A run that was killed between the two has the checkpoint alone.
  if (r->exported != t->state.step) TRY(train_save_model(t, out));
  r->exported = t->state.step;
done:
  return code;
}

static int save_best(run *r) {
  char path[4096];
  snprintf(path, sizeof path, "%s/best", r->t->v->out);
  int code = output_directory(path);
  return code != EXIT_OK ? code : train_save_model(r->t, path);
}

/* After each step. */
static bool report(void *user, const heed_train_report *s) {
  run *r = user;
  write_logs(r, s);
  if (s->skipped) {
    clear_line(r);
    note("step %lld: left out, a number was not finite", (long long)s->step);
  }
  if (s->evaluated) say_validation(r, s);
  else if (r->terminal) draw_line(r, s);
  if (s->evaluated && s->best) r->code = save_best(r);
  if (r->code == EXIT_OK && s->step % r->t->v->save_every == 0) r->code = save(r);
  return r->code == EXIT_OK && !interrupted();
}

/* ---- beginning and end -------------------------------------------------------------------------------------------------------------- */

static void damaged(void *user, const char *text) {
  (void)user;
  error_of(EXIT_OK, "passed over: %s", text);
}

/* Attention's kernels and its statistics are at their best there (Vaswani et al. 2017 and all later models lie within). */
static void warn_of_heads(const train_values *v) {
  int64_t width = v->width / v->heads;
  if (width < 32 || width > 128)
    note("heads of width %lld: models in use have 32 to 128 (--heads %lld gives 64)", (long long)width,
         (long long)(v->width / 64 > 0 ? v->width / 64 : 1));
}

/* Two programs in one directory would take each other's unfinished files away. The lock ends with the process, however that ends. */
static int lock(run *r) {
  const char *out = r->t->v->out;
  r->lock = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (r->lock < 0) return error_of(EXIT_FAILED, "%s: %s", out, strerror(errno));
  if (flock(r->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return error_of(EXIT_FAILED, "%s: another heed is training there", out);
  return EXIT_OK;
}

/* Files that a killed run was writing beside the model. */
static void remove_leftovers(const char *directory) {
  static const char *const written[] = {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", trained_name};
  char path[4096];
  DIR *stream = opendir(directory);
  if (!stream) return;
  for (const struct dirent *entry; (entry = readdir(stream));) {
    const char *part = strstr(entry->d_name, ".part-");
    bool ours = false;
    for (size_t i = 0; part && i < sizeof written / sizeof *written; i++)
      ours |= strlen(written[i]) == (size_t)(part - entry->d_name) && !strncmp(written[i], entry->d_name, strlen(written[i]));
    if (ours && snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < (int)sizeof path) unlink(path);
  }
  closedir(stream);
}

static int load(run *r) {
  training *t = r->t;
  bool found = false;
  int code;
  TRY(check(t->context,
            heed_checkpoint_load(t->context, t->v->out, t->learner, t->optimiser, &t->state, t->settings, damaged, NULL, &found)));
  if (!found) return error_of(EXIT_BAD_FILE, "%s: there is no checkpoint to resume from", t->v->out);
  note("%s: goes on after step %lld", t->v->out, (long long)t->state.step);
  r->saved = t->state.step;
done:
  return code;
}

/* What cannot be written should be known before hours are spent. */
static int save_tokenizer(const training *t) {
  heed_status status = heed_tokenizer_save(t->context, t->tokenizer, t->v->out);
  if (status == HEED_E_UNSUPPORTED) {
    rmdir(t->v->out); // unless something is in it
    return error_of(EXIT_UNSUPPORTED, "%s (--tokens FILE names a tokenizer.json instead of the model's own)", heed_error(t->context));
  }
  return check(t->context, status);
}

static int begin(run *r) {
  training *t = r->t;
  const train_values *v = t->v;
  char best[4096];
  int code;
  if (v->resume && !heed_checkpoint_exists(v->out)) return error_of(EXIT_BAD_FILE, "%s: there is no checkpoint to resume from", v->out);
  if (!v->resume && heed_checkpoint_exists(v->out))
    return error_of(EXIT_FAILED, "%s: holds a run already (--resume goes on with it, another --out begins one)", v->out);
  TRY(output_directory(v->out));
  TRY(lock(r));
  snprintf(best, sizeof best, "%s/best", v->out);
  remove_leftovers(v->out);
  remove_leftovers(best);
  if (v->from) TRY(save_tokenizer(t));
  if (v->resume) TRY(load(r));
  TRY(open_log(v->log, v->resume, t->state.step, false, &r->log));
  TRY(open_log(v->csv, v->resume, t->state.step, true, &r->csv));
  TRY(trained_write(t));
done:
  return code;
}

/* Saves what is done, unless an error has come before, and closes the logs. */
static int finish(run *r, int code) {
  const training *t = r->t;
  clear_line(r);
  if (code == EXIT_OK || code == EXIT_INTERRUPTED) {
    int saved = save(r);
    if (saved != EXIT_OK) code = saved;
  }
  if (code == EXIT_OK && interrupted() && t->state.step < t->options.steps) code = EXIT_INTERRUPTED;
  if (code == EXIT_INTERRUPTED)
    note("stopped after step %lld, nothing is lost; to go on: %s%s", (long long)t->state.step, command_line(),
         t->v->resume ? "" : " --resume");
  return code;
}

static int run_steps(run *r) {
  training *t = r->t;
  heed_status status = heed_train(t->learner, t->optimiser, &t->options, &t->state);
  if (r->code != EXIT_OK) return r->code; // of a save, which stopped the run
  if (status == HEED_E_CANCELLED) return EXIT_INTERRUPTED;
  if (status != HEED_OK) clear_line(r);
  return check(t->context, status);
}

int training_run(training *t) {
  run r = {.t = t, .terminal = isatty(STDERR_FILENO) && !t->v->common.quiet, .saved = -1, .exported = -1, .lock = -1};
  int code;
  TRY(begin(&r));
  interrupt_on_termination();
  progress_show(false);
  t->options.report = report;
  t->options.report_user = &r;
  r.started = seconds_now();
  r.first = t->state.step;
  warn_of_heads(t->v);
  const heed_parameters *set = heed_learner_parameters(t->learner);
  const int64_t all = heed_parameters_size(set), learning = heed_parameters_learning(set);
  const int64_t moments = learning * heed_optimiser_moments(t->optimiser) * (int64_t)sizeof(float);
  char frozen[64] = "";
  if (learning < all) snprintf(frozen, sizeof frozen, " (%lld of them frozen)", (long long)(all - learning));
  note("%lld parameters%s, %lld steps of %s%lld tokens, %.0f MB", (long long)all, frozen, (long long)t->options.steps,
       t->head == HEED_HEAD_TOKENS && !t->has_pairs ? "" : "up to ",
       (long long)(t->options.batch * t->options.length * t->options.accumulate),
       (double)(t->bytes + heed_parameters_bytes(set) + moments) / 1e6);
  code = finish(&r, run_steps(&r));
done:
  close_log(&r, t->v->log, r.log);
  close_log(&r, t->v->csv, r.csv);
  if (r.lock >= 0) close(r.lock);
  return code != EXIT_OK ? code : r.log_code;
}
