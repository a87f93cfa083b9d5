/* completion.c: `heed completion`: completion scripts for the common shells, made from the commands' tables. */
#include "output.h"

#include <string.h>

typedef struct values {
  common_values common;
  const char *shell;
} values;

static bool takes_file(const option *o) { return o->value && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "MODEL") == 0); }

/* Prints text inside a single-quoted string of a shell. */
static void quoted(const char *text) {
  for (; *text; text++) {
    if (*text == '\'') out("'\\''");
    else out("%c", *text);
  }
}

/* "auto|always" as "auto always". */
static void choices(const char *list) {
  for (; *list; list++) out("%c", *list == '|' ? ' ' : *list);
}

/* ---- names of one and two words ------------------------------------------------------------------------------------------- */

static int first_word(int i) { return (int)strcspn(commands[i]->name, " "); }

/* What follows the first word; "" where the name has only one. */
static const char *second_word(int i) { return commands[i]->name + first_word(i) + (commands[i]->name[first_word(i)] == ' '); }

/* Whether no earlier command begins with the same word. */
static bool is_new(int i) { return i == 0 || strncmp(commands[i]->name, commands[i - 1]->name, (size_t)first_word(i) + 1) != 0; }

/* The second words that may follow the first word of command i. */
static void print_second_words(int i) {
  for (int k = i; k < command_count && (k == i || !is_new(k)); k++) out("%s ", second_word(k));
}

/* ---- bash ---------------------------------------------------------------------------------------------------------------- */

static void bash_words(void) {
  out("  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '");
  for (int i = 0; i < command_count; i++)
    if (is_new(i)) out("%.*s ", first_word(i), commands[i]->name);
  out("--help --version' -- \"$word\"))\n    return\n  fi\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    if (!is_new(i) || !second_word(i)[0]) continue;
    out("  %.*s)\n    if ((COMP_CWORD == 2)); then\n      COMPREPLY=($(compgen -W '", first_word(i), commands[i]->name);
    print_second_words(i);
    out("' -- \"$word\"))\n      return\n    fi\n    command+=\" ${COMP_WORDS[2]}\" ;;\n");
  }
  out("  esac\n");
}

static void bash_choices(void) {
  const option *o;
  out("  case $command:$before in\n");
  for (int i = 0; i < command_count; i++)
    for (int k = 0; (o = command_option(commands[i], k)); k++) {
      if (!o->choices) continue;
      bool positional = option_is_positional(o); // stands right after the command's name
      out("  '%s:%s%s') COMPREPLY=($(compgen -W '", commands[i]->name, positional ? "" : "--", positional ? commands[i]->name : o->name);
      choices(o->choices);
      out("' -- \"$word\")); return ;;\n");
    }
  out("  esac\n");
}

static void bash_options(void) {
  const option *o;
  out("  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    out("  '%s') words='", commands[i]->name);
    for (int k = 0; (o = command_option(commands[i], k)); k++)
      if (!option_is_positional(o)) out("--%s ", o->name);
    out("' ;;\n");
  }
  out("  esac\n  [[ $word == -* ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n");
}

static void bash(void) {
  out("# bash completion for heed: source <(heed completion bash)\n_heed() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=\n");
  bash_words();
  bash_choices();
  bash_options();
  out("}\ncomplete -o default -F _heed heed\n");
}

/* ---- zsh ----------------------------------------------------------------------------------------------------------------- */

/* '--layers[which layers]:LIST:' as _arguments reads it, in single quotes. */
static void zsh_option(const option *o) {
  out(" \\\n    '%s--%s[", o->kind == OPTION_TEXTS ? "*" : "", o->name);
  for (const char *at = o->help; *at; at++) {
    if (*at == '\'') out("'\\''");
    else out(strchr("[]:", *at) ? "\\%c" : "%c", *at);
  }
  out("]");
  if (o->choices) {
    out(":which:(");
    choices(o->choices);
    out(")");
  } else if (o->kind != OPTION_FLAG) {
    out(":%s:%s", o->value, takes_file(o) ? "_files" : "");
  }
  out("'");
}

static void zsh(void) {
  const option *o;
  out("#compdef heed\n# zsh completion for heed: source <(heed completion zsh), or a file _heed on $fpath\n"
      "_heed() {\n  local -a first\n  first=(\n");
  for (int i = 0; i < command_count; i++) {
    if (!is_new(i)) continue;
    out("    '%.*s:", first_word(i), commands[i]->name);
    quoted(commands[i]->summary);
    out("'\n");
  }
  out("  )\n  if ((CURRENT == 2)); then _describe command first; return; fi\n  local command=$words[2]\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    if (!is_new(i) || !second_word(i)[0]) continue;
    out("  %.*s) if ((CURRENT == 3)); then compadd -- ", first_word(i), commands[i]->name);
    print_second_words(i);
    out("; return; fi; command+=\" $words[3]\" ;;\n");
  }
  out("  esac\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    out("  '%s') _arguments -S '*:file:_files'", commands[i]->name);
    for (int k = 0; (o = command_option(commands[i], k)); k++)
      if (!option_is_positional(o)) zsh_option(o);
    out(" ;;\n");
  }
  out("  esac\n}\n"
      "# Read from a file on $fpath this is the first completion itself; sourced, it only registers.\n"
      "if [[ $funcstack[1] = _heed ]]; then _heed \"$@\"; else compdef _heed heed; fi\n");
}

/* ---- fish ---------------------------------------------------------------------------------------------------------------- */

static void fish_option(int i, const option *o) {
  const char *second = second_word(i);
  out("complete -c heed -n '__fish_seen_subcommand_from %.*s%s%s' -l %s", first_word(i), commands[i]->name,
      second[0] ? "; and __fish_seen_subcommand_from " : "", second, o->name);
  if (o->letter) out(" -s %c", o->letter);
  if (o->kind != OPTION_FLAG) out(takes_file(o) ? " -r" : " -x");
  if (o->choices) {
    out(" -a '");
    choices(o->choices);
    out("'");
  }
  out(" -d '");
  quoted(o->help);
  out("'\n");
}

static void fish(void) {
  const option *o;
  out("# fish completion for heed: heed completion fish | source\n");
  for (int i = 0; i < command_count; i++) {
    const char *name = commands[i]->name;
    if (is_new(i)) {
      out("complete -c heed -n __fish_use_subcommand -f -a %.*s -d '", first_word(i), name);
      quoted(commands[i]->summary);
      out("'\n");
    }
    if (second_word(i)[0]) out("complete -c heed -n '__fish_seen_subcommand_from %.*s' -f -a %s\n", first_word(i), name, second_word(i));
    for (int k = 0; (o = command_option(commands[i], k)); k++)
      if (!option_is_positional(o)) fish_option(i, o);
  }
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static int run(const void *pointer) {
  const values *v = pointer;
  if (strcmp(v->shell, "bash") == 0) bash();
  else if (strcmp(v->shell, "zsh") == 0) zsh();
  else fish();
  return EXIT_OK;
}

static const option options[] = {
    OPTION("SHELL", 0, CHOICE, NULL, shell, "the shell", .choices = "bash|zsh|fish", .required = true),
    {0},
};

const command command_completion = {
    .name = "completion",
    .summary = "print a completion script for your shell",
    .about = "Prints a script that teaches your shell to complete heed's commands and options.",
    .examples = "  source <(heed completion bash)\n"
                "  heed completion fish > ~/.config/fish/completions/heed.fish\n",
    .options = options,
    .values_size = sizeof(values),
    .run = run,
};
