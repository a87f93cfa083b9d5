/* trained.c: training.txt, what a directory says of its own training. */
#define _GNU_SOURCE
#include "input.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char trained_name[] = "training.txt";

static void write_path(FILE *to, const char *name, const char *path) {
  char *full = path ? realpath(path, NULL) : NULL;
  if (full) fprintf(to, "%s %s\n", name, full);
  free(full);
}

int trained_write(const training *t) {
  char path[4096], folder[4096];
  output_file file;
  snprintf(path, sizeof path, "%s/%s", t->v->out, trained_name);
  int code = output_open(path, &file);
  if (code != EXIT_OK) return code;
  fputs(t->settings, file.stream);
  write_path(file.stream, "data", t->is_task ? NULL : t->v->data);
  write_path(file.stream, "validation", t->v->validation);
  write_path(file.stream, "targets", t->v->targets);
  write_path(file.stream, "validation-targets", t->v->validation_targets);
  write_path(file.stream, "from", t->v->from);
  fprintf(file.stream, "command %s\n", command_line());
  if (getcwd(folder, sizeof folder)) fprintf(file.stream, "folder %s\n", folder);
  return output_close(&file, EXIT_OK);
}

/* The value of a name in lines of "name value", or "". */
static const char *setting(const char *lines, const char *name, char value[4096]) {
  size_t length = strlen(name);
  value[0] = 0;
  for (const char *at = lines; *at; at += strcspn(at, "\n"), at += *at == '\n')
    if (!strncmp(at, name, length) && at[length] == ' ')
      snprintf(value, 4096, "%.*s", (int)strcspn(at + length + 1, "\n"), at + length + 1);
  return value;
}

static int read_pair_task(heed_context *context, const char *lines, trained *out) {
  char value[4096];
  setting(lines, "pair-task", value);
  for (int64_t i = 0; heed_pair_task_name(i); i++)
    if (!strcmp(value, heed_pair_task_name(i))) {
      out->is_pair_task = true;
      out->pair_task = (heed_pair_task){.size = sizeof out->pair_task, .name = heed_pair_task_name(i), .held_out = true};
    }
  if (!out->is_pair_task) return EXIT_OK;
  out->pair_task.least = atoll(setting(lines, "pair-least", value));
  out->pair_task.most = atoll(setting(lines, "pair-most", value));
  out->pair_task.symbols = atoll(setting(lines, "pair-symbols", value));
  return check(context, heed_pair_task_finish(context, &out->pair_task));
}

int trained_read(heed_context *context, const char *directory, trained *out) {
  char path[4096], value[4096], *lines = NULL;
  size_t length;
  *out = (trained){0};
  snprintf(path, sizeof path, "%s/%s", directory, trained_name);
  if (access(path, R_OK) != 0) return EXIT_OK;
  int code = read_whole_file(path, &lines, &length);
  if (code != EXIT_OK) return code;
  snprintf(out->data, sizeof out->data, "%s", setting(lines, "data", value));
  snprintf(out->command, sizeof out->command, "%s", setting(lines, "command", value));
  snprintf(out->folder, sizeof out->folder, "%s", setting(lines, "folder", value));
  out->steps = atoll(setting(lines, "steps", value));
  snprintf(out->validation, sizeof out->validation, "%s", setting(lines, "validation", value));
  snprintf(out->targets, sizeof out->targets, "%s", setting(lines, "targets", value));
  snprintf(out->validation_targets, sizeof out->validation_targets, "%s", setting(lines, "validation-targets", value));
  out->mask = atof(setting(lines, "mask", value));
  int kind = heed_task_from_name(setting(lines, "task", value));
  out->is_task = kind >= 0;
  if (out->is_task) {
    out->task = (heed_task){.size = sizeof out->task, .kind = (heed_task_kind)kind, .held_out = true};
    out->task.most = atoll(setting(lines, "most", value));
    out->task.symbols = atoll(setting(lines, "symbols", value));
    out->task.reverse_digits = atoll(setting(lines, "reverse-digits", value)) != 0;
    code = check(context, heed_task_finish(context, &out->task));
  }
  if (code == EXIT_OK) code = read_pair_task(context, lines, out);
  free(lines);
  return code;
}
