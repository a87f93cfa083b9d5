/* main.c: finds the command, reads its options, runs it, and sees to it that what was printed has arrived. */
#include "help.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

#define COMMAND(name) extern const command command_##name;
#include "list.h"
#undef COMMAND

const command *const commands[] = {
#define COMMAND(name) &command_##name,
#include "list.h"
#undef COMMAND
};
const int command_count = sizeof commands / sizeof commands[0];

enum { VALUES_MAX = 16384, NAMES_MAX = 64 };

/* Sets *found and returns how many words name it; 0 with a message if they name nothing. */
static int find_command(int count, char **words, const command **found) {
  const char *names[NAMES_MAX];
  const char *group = NULL;
  for (int i = 0; i < command_count; i++) {
    const char *name = commands[i]->name, *space = strchr(name, ' ');
    size_t first = space ? (size_t)(space - name) : strlen(name);
    *found = commands[i];
    if (strlen(words[0]) != first || strncmp(words[0], name, first) != 0) continue;
    if (!space) return 1;
    if (count > 1 && strcmp(words[1], space + 1) == 0) return 2;
    group = words[0];
  }
  *found = NULL;
  char first_words[NAMES_MAX][32];
  int known = 0;
  for (int i = 0; i < command_count; i++) {
    const char *name = commands[i]->name, *space = strchr(name, ' ');
    if (group && !(space && strncmp(name, group, (size_t)(space - name)) == 0)) continue;
    snprintf(first_words[known], sizeof first_words[known], "%.*s", (int)strcspn(name, " "), name);
    names[known] = group ? space + 1 : first_words[known];
    known++;
  }
  const char *word = group ? (count > 1 ? words[1] : "") : words[0], *near = closest_name(word, known, names);
  if (group && !word[0]) usage_error("%s: what to %s is missing (`heed help %s` lists it)", group, group, group);
  else if (near) usage_error("%s: unknown command (did you mean %s%s%s?)", word, group ? group : "", group ? " " : "", near);
  else usage_error("%s: unknown command (`heed --help` lists them)", word);
  return 0;
}

static int run_command(int count, char **words) {
  const command *found;
  _Alignas(max_align_t) char values[VALUES_MAX];
  // `heed bench --help` has no command yet, only the first word of two.
  if (count == 2 && (strcmp(words[1], "--help") == 0 || strcmp(words[1], "-h") == 0) && help_topic(words[0])) return EXIT_OK;
  int used = find_command(count, words, &found);
  if (used == 0) return EXIT_USAGE;
  if (found->values_size > sizeof values) return error_of(EXIT_FAILED, "%s: its values do not fit", found->name);
  int code = options_parse(found, count - used, words + used, values);
  if (code != EXIT_OK) return code;
  const common_values *common = (const common_values *)values;
  if (common->help) return help_command(found), EXIT_OK;
  console_configure(common);
  return found->run(values);
}

int main(int count, char **words) {
  int code;
  console_start(count, words);
  if (count < 2) {
    code = usage_error("no command given (`heed --help` lists them)");
  } else if (strcmp(words[1], "--help") == 0 || strcmp(words[1], "-h") == 0) {
    help_overview();
    code = EXIT_OK;
  } else if (strcmp(words[1], "--version") == 0) {
    out("heed %s\n", heed_version());
    code = EXIT_OK;
  } else {
    code = run_command(count - 1, words + 1);
  }
  progress_show(false);
  int flushed = out_flush();
  return code == EXIT_OK ? flushed : code;
}
