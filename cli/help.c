/* help.c: `heed help`: the overview, the page of one command, and the manual page in roff, all from the commands' tables. */
#include "help.h"

#include "output.h"

#include <string.h>

enum { PAGE_WIDTH = 88, HELP_COLUMN = 26 };

/* Words of text between left and PAGE_WIDTH; the cursor already stands at column `at`. Ends the line. */
static void wrapped(const char *text, int left, int at) {
  while (*text) {
    int span = (int)strcspn(text, " "), columns = 0;
    for (int i = 0; i < span; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (at > left && at + 1 + columns > PAGE_WIDTH) {
      out("\n");
      at = 0;
    }
    if (at < left) out("%*s", left - at, "");
    out("%s%.*s", at > left ? " " : "", span, text);
    at = (at < left ? left : at + (at > left)) + columns;
    text += span + strspn(text + span, " ");
  }
  out("\n");
}

/* "-o, --output FILE" */
static void option_form(const option *o, char *buffer, size_t size) {
  const char *value = o->value;
  if (option_is_positional(o)) snprintf(buffer, size, "%s", o->name);
  else if (o->letter) snprintf(buffer, size, "-%c, --%s%s%s", o->letter, o->name, value ? " " : "", value ? value : "");
  else snprintf(buffer, size, "    --%s%s%s", o->name, value ? " " : "", value ? value : "");
}

static void option_help(const option *o, char *buffer, size_t size) {
  char choices[128];
  int used = 0;
  snprintf(choices, sizeof choices, "%s", o->choices ? o->choices : "");
  for (char *at = choices; (at = strchr(at, '|'));) *at = ' ';
  used = snprintf(buffer, size, "%s", o->help);
  if (o->choices) snprintf(buffer + used, size - (size_t)used, ": %s", choices);
}

static void option_line(const option *o) {
  char form[64], help[512];
  option_form(o, form, sizeof form);
  option_help(o, help, sizeof help);
  int at = 2 + (int)strlen(form);
  out("  %s", form);
  if (at + 2 > HELP_COLUMN) {
    out("\n");
    at = 0;
  }
  wrapped(help, HELP_COLUMN, at);
}

/* "heed show MODEL [TEXT] [options]" */
static void usage_line(const command *of) {
  const option *o;
  out("heed %s", of->name);
  for (int i = 0; (o = command_option(of, i)); i++) {
    if (option_is_positional(o)) out(o->required ? " %s" : " [%s]", o->name);
    else if (o->required) out(" --%s %s", o->name, o->value);
  }
  out(" [options]");
}

void help_overview(void) {
  out("heed: attention you can run, train and see\n\nusage: heed COMMAND ...\n\n");
  for (int i = 0; i < command_count; i++) out("  %-26s%s\n", commands[i]->name, commands[i]->summary);
  out("\n`heed COMMAND --help` explains a command and shows examples. A first picture:\n\n"
      "  heed show model.gguf \"The animal didn't cross the street because it was too tired.\"\n\n"
      "Results go to standard output, everything else to standard error. Exit codes: 0 ok, 1 failure,\n"
      "2 usage, 3 bad file, 4 unsupported, 5 out of memory, 130 interrupted.\n");
}

void help_command(const command *of) {
  const option *o;
  out("usage: ");
  usage_line(of);
  out("\n\n");
  wrapped(of->about ? of->about : of->summary, 0, 0);
  out("\n");
  bool positionals = true; // they stand first in every table
  for (int i = 0; (o = command_option(of, i)); i++) {
    if (i > 0 && positionals && !option_is_positional(o)) out("\n");
    positionals = option_is_positional(o);
    option_line(o);
  }
  if (of->examples) out("\nexamples\n%s", of->examples);
}

/* ---- the manual page ----------------------------------------------------------------------------------------------------- */

/* Text with what roff would read as its own made plain. */
static void roff_text(const char *text) {
  for (const char *at = text; *at; at++) {
    if (*at == '\\') out("\\e");
    else if (*at == '-') out("\\-");
    else if ((*at == '.' || *at == '\'') && (at == text || at[-1] == '\n')) out("\\&%c", *at);
    else out("%c", *at);
  }
}

static void roff_options(const command *of) {
  const option *o;
  char form[64], help[512];
  for (int i = 0; (o = command_option(of, i)); i++) {
    option_form(o, form, sizeof form);
    option_help(o, help, sizeof help);
    out(".TP\n.B ");
    roff_text(form + strspn(form, " "));
    out("\n");
    roff_text(help);
    out("\n");
  }
}

static void manual_page(void) {
  out(".TH HEED 1 \"\" \"heed %s\" \"User Commands\"\n.SH NAME\nheed \\- attention you can run, train and see\n", heed_version());
  out(".SH SYNOPSIS\n.B heed\n.I COMMAND\n[options]\n.SH COMMANDS\n");
  for (int i = 0; i < command_count; i++) {
    const command *of = commands[i];
    out(".SS ");
    usage_line(of);
    out("\n");
    roff_text(of->about ? of->about : of->summary);
    out("\n");
    roff_options(of);
    if (of->examples) {
      out(".PP\nExamples:\n.PP\n.nf\n");
      roff_text(of->examples);
      out(".fi\n");
    }
  }
  out(".SH \"EXIT STATUS\"\n0 ok, 1 failure, 2 usage, 3 bad file, 4 unsupported, 5 out of memory, 130 interrupted.\n"
      ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nIf set and not empty, no colours unless asked for with \\-\\-color always.\n"
      ".TP\n.B COLUMNS\nWidth of pictures where standard output is not a terminal.\n");
}

bool help_topic(const char *name) {
  bool found = false;
  size_t length = strlen(name);
  for (int i = 0; i < command_count; i++) {
    if (strncmp(commands[i]->name, name, length) != 0 || (commands[i]->name[length] && commands[i]->name[length] != ' ')) continue;
    if (found) out("\n");
    help_command(commands[i]);
    found = true;
  }
  return found;
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

typedef struct values {
  common_values common;
  const char *topic, *subtopic;
  bool man;
} values;

static int run(const void *pointer) {
  const values *v = pointer;
  if (v->man) return manual_page(), EXIT_OK;
  if (!v->topic) return help_overview(), EXIT_OK;
  char name[64];
  snprintf(name, sizeof name, "%s%s%s", v->topic, v->subtopic ? " " : "", v->subtopic ? v->subtopic : "");
  return help_topic(name) ? EXIT_OK : usage_error("%s: unknown command (`heed --help` lists them)", name);
}

static const option options[] = {
    OPTION("COMMAND", 0, TEXT, NULL, topic, "the command to explain"),
    OPTION("SECOND", 0, TEXT, NULL, subtopic, "its second word, as in bench attention"),
    OPTION("man", 0, FLAG, NULL, man, "the manual page of all commands, in roff"),
    {0},
};

const command command_help = {
    .name = "help",
    .summary = "explain a command; make the manual page",
    .about = "Explains a command, as `heed COMMAND --help` does, or prints the manual page of all.",
    .examples = "  heed help show\n"
                "  heed help --man > heed.1\n",
    .options = options,
    .values_size = sizeof(values),
    .run = run,
};
