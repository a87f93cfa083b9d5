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
  free(lines);
  return code;
}
