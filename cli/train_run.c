/* train_run.c: the loop of `heed train`: a progress line, logs, validation, checkpoints, and an end that loses nothing. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run {
  training *t;
  FILE *log, *csv;
  bool terminal, line_drawn;
  double started;
  int64_t first, saved; /* step at which this process began; of the last checkpoint, −1: none */
  int code;
} run;

/* ---- what people see ---------------------------------------------------------------------------------------------------------- */

static void clear_line(run *r) {
  if (r->line_drawn) fputs("\r\033[K", stderr);
  r->line_drawn = false;
}

static void draw_line(run *r, const heed_train_report *s) {
  double seconds = seconds_now() - r->started, left = seconds / (double)(s->step - r->first) * (double)(s->steps - s->step);
  fprintf(stderr, "\rstep %lld/%lld  loss %.4f  gradient %.3f  %.0f tokens/s  %.0f MB  %d:%02d left\033[K", (long long)s->step,
          (long long)s->steps, s->loss, s->gradient_norm, s->tokens_per_second, (double)s->bytes / 1e6, (int)left / 60, (int)left % 60);
  fflush(stderr);
  r->line_drawn = true;
}

static void say_validation(run *r, const heed_train_report *s) {
  const heed_evaluation *e = &s->evaluation;
  clear_line(r);
  if (r->t->is_task)
    note("step %lld: training loss %.4f, held out: loss %.4f, %.2f %% exact (%lld of %lld)%s", (long long)s->step, s->loss, e->loss,
         100.0 * (double)e->exact_sequences / (double)(e->sequences ? e->sequences : 1), (long long)e->exact_sequences,
         (long long)e->sequences, s->best ? ", best so far" : "");
  else note("step %lld: training loss %.4f, validation loss %.4f%s", (long long)s->step, s->loss, e->loss, s->best ? ", best so far" : "");
}

/* ---- logs ----------------------------------------------------------------------------------------------------------------------- */

static const char csv_head[] = "step,loss,gradient_norm,learning_rate,tokens_per_second,bytes,validation_loss,exact\n";

/* A number, or what the format has for none. */
static void put_number(FILE *file, double value, const char *none) {
  if (isfinite(value)) fprintf(file, "%.9g", value);
  else fputs(none, file);
}

static double exact_of(const heed_train_report *s) {
  return s->evaluated && s->evaluation.sequences ? (double)s->evaluation.exact_sequences / (double)s->evaluation.sequences : NAN;
}

static void write_logs(run *r, const heed_train_report *s) {
  double numbers[] = {
      s->loss,    s->gradient_norm, s->learning_rate, s->tokens_per_second, (double)s->bytes, s->evaluated ? s->evaluation.loss : NAN,
      exact_of(s)};
  static const char *const names[] = {"loss", "gradient_norm", "learning_rate", "tokens_per_second", "bytes", "validation_loss", "exact"};
  if (r->log) {
    fprintf(r->log, "{\"step\":%lld", (long long)s->step);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
      if (i >= 5 && !s->evaluated) break;
      fprintf(r->log, ",\"%s\":", names[i]);
      put_number(r->log, numbers[i], "null");
    }
    fprintf(r->log, s->skipped ? ",\"skipped\":true}\n" : "}\n");
    fflush(r->log);
  }
  if (r->csv) {
    fprintf(r->csv, "%lld", (long long)s->step);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
      fputc(',', r->csv);
      put_number(r->csv, numbers[i], "");
    }
    fputc('\n', r->csv);
    fflush(r->csv);
  }
}

static int open_log(const char *path, bool append, const char *head, FILE **out) {
  if (!path) return EXIT_OK;
  *out = fopen(path, append ? "a" : "w");
  if (!*out) return error_of(EXIT_FAILED, "%s: cannot be written (%s)", path, strerror(errno));
  if (head && ftell(*out) == 0) fputs(head, *out);
  return EXIT_OK;
}

static int close_log(const char *path, FILE *file) {
  if (!file) return EXIT_OK;
  bool failed = ferror(file);
  failed |= fclose(file) != 0;
  return failed ? error_of(EXIT_FAILED, "%s: cannot be written (%s)", path, strerror(errno)) : EXIT_OK;
}

/* ---- saving --------------------------------------------------------------------------------------------------------------------- */

static int save(run *r) {
  training *t = r->t;
  const char *out = t->v->out;
  int code = EXIT_OK;
  if (r->saved == t->state.step) return EXIT_OK;
  clear_line(r);
  TRY(check(t->context, heed_checkpoint_save(t->context, out, t->learner, t->optimiser, &t->state, t->settings)));
  TRY(check(t->context, heed_learner_save(t->learner, t->tokenizer, out)));
  r->saved = t->state.step;
done:
  return code;
}

static int save_best(run *r) {
  char path[4096];
  snprintf(path, sizeof path, "%s/best", r->t->v->out);
  if (mkdir(path, 0777) != 0 && errno != EEXIST) return error_of(EXIT_FAILED, "%s: cannot be made (%s)", path, strerror(errno));
  return check(r->t->context, heed_learner_save(r->t->learner, r->t->tokenizer, path));
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
  if (s->evaluated && s->best && s->step < s->steps) r->code = save_best(r);
  if (r->code == EXIT_OK && s->step % r->t->v->save_every == 0) r->code = save(r);
  return r->code == EXIT_OK && !interrupted();
}

/* ---- beginning and end -------------------------------------------------------------------------------------------------------------- */

static void damaged(void *user, const char *text) {
  (void)user;
  note("%s", text);
}

static int begin(run *r) {
  training *t = r->t;
  const char *out = t->v->out;
  bool found = false;
  int code;
  if (mkdir(out, 0777) != 0 && errno != EEXIST) return error_of(EXIT_FAILED, "%s: cannot be made (%s)", out, strerror(errno));
  if (t->v->resume) {
    TRY(check(t->context, heed_checkpoint_load(t->context, out, t->learner, t->optimiser, &t->state, t->settings, damaged, NULL, &found)));
    if (!found) return error_of(EXIT_BAD_FILE, "%s: there is no checkpoint to resume from", out);
    note("%s: goes on after step %lld", out, (long long)t->state.step);
    r->saved = t->state.step;
  } else if (heed_checkpoint_exists(out)) {
    return error_of(EXIT_FAILED, "%s: holds a run already (--resume goes on with it, another --out begins one)", out);
  }
  TRY(trained_write(t));
  TRY(open_log(t->v->log, t->v->resume, NULL, &r->log));
  TRY(open_log(t->v->csv, t->v->resume, csv_head, &r->csv));
done:
  return code;
}

static int finish(run *r, int code) {
  const training *t = r->t;
  clear_line(r);
  if (code == EXIT_OK || code == EXIT_INTERRUPTED) {
    int saved = save(r);
    if (saved != EXIT_OK) code = saved;
  }
  if (code == EXIT_OK && interrupted()) code = EXIT_INTERRUPTED;
  if (code == EXIT_INTERRUPTED)
    note("stopped after step %lld, nothing is lost; to go on: %s%s", (long long)t->state.step, command_line(),
         t->v->resume ? "" : " --resume");
  int log = close_log(t->v->log, r->log), csv = close_log(t->v->csv, r->csv);
  return code != EXIT_OK ? code : log != EXIT_OK ? log : csv;
}

int training_run(training *t) {
  run r = {.t = t, .terminal = isatty(STDERR_FILENO) && !t->v->common.quiet, .saved = -1};
  int code = begin(&r);
  if (code != EXIT_OK) return code;
  interrupt_on_termination();
  progress_show(false);
  t->options.report = report;
  t->options.report_user = &r;
  r.started = seconds_now();
  r.first = t->state.step;
  note("%lld parameters, %lld steps of %lld tokens", (long long)heed_parameters_size(heed_learner_parameters(t->learner)),
       (long long)t->options.steps, (long long)(t->options.batch * t->options.length * t->options.accumulate));
  heed_status status = heed_train(t->learner, t->optimiser, &t->options, &t->state);
  if (status == HEED_E_CANCELLED) code = EXIT_INTERRUPTED;
  else if (status != HEED_OK) {
    clear_line(&r);
    code = check(t->context, status);
  } else code = r.code;
  return finish(&r, code);
}
