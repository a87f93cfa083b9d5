/* completion.c: `heed completion`: completion scripts for the common shells, made from the commands' tables. */
#include "output.h"

#include <string.h>

typedef struct values {
  common_values common;
  const char *shell;
} values;

static bool takes_file(const option *o) { return o->value && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "MODEL") == 0); }

/* Prints text with the quote character doubled out of a single-quoted shell string. */
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

/* First words of all commands, each once. */
static void first_words(void) {
  for (int i = 0; i < command_count; i++) {
    size_t span = strcspn(commands[i]->name, " ");
    if (i > 0 && strncmp(commands[i]->name, commands[i - 1]->name, span) == 0 && commands[i - 1]->name[span] == ' ') continue;
    out("%s%.*s", i ? " " : "", (int)span, commands[i]->name);
  }
}

/* The second words that may follow a first word. */
static void second_words(const char *first, size_t span) {
  for (int i = 0; i < command_count; i++)
    if (strncmp(commands[i]->name, first, span) == 0 && commands[i]->name[span] == ' ') out("%s ", commands[i]->name + span + 1);
}

static void bash(void) {
  const option *o;
  out("# bash completion for heed: source <(heed completion bash)\n"
      "_heed() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=\n"
      "  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '");
  first_words();
  out(" --help --version' -- \"$word\"))\n    return\n  fi\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    const char *space = strchr(commands[i]->name, ' ');
    if (!space || (i > 0 && strncmp(commands[i]->name, commands[i - 1]->name, (size_t)(space - commands[i]->name) + 1) == 0)) continue;
    out("  %.*s)\n    if ((COMP_CWORD == 2)); then\n      COMPREPLY=($(compgen -W '", (int)(space - commands[i]->name), commands[i]->name);
    second_words(commands[i]->name, (size_t)(space - commands[i]->name));
    out("' -- \"$word\"))\n      return\n    fi\n    command+=\" ${COMP_WORDS[2]}\" ;;\n");
  }
  out("  esac\n  case $command:$before in\n");
  for (int i = 0; i < command_count; i++)
    for (int k = 0; (o = command_option(commands[i], k)); k++) {
      if (!o->choices) continue;
      out("  '%s:%s%s') COMPREPLY=($(compgen -W '", commands[i]->name, option_is_positional(o) ? "" : "--",
          option_is_positional(o) ? commands[i]->name : o->name);
      choices(o->choices);
      out("' -- \"$word\")); return ;;\n");
    }
  out("  esac\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    out("  '%s') words='", commands[i]->name);
    for (int k = 0; (o = command_option(commands[i], k)); k++)
      if (!option_is_positional(o)) out("--%s ", o->name);
    out("' ;;\n");
  }
  out("  esac\n  [[ $word == -* ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
      "complete -o default -F _heed heed\n");
}

static void zsh(void) {
  const option *o;
  out("#compdef heed\n# zsh completion for heed: source <(heed completion zsh), or a file _heed on $fpath\n"
      "_heed() {\n  local -a first\n  first=(\n");
  for (int i = 0; i < command_count; i++) {
    size_t span = strcspn(commands[i]->name, " ");
    if (i > 0 && strncmp(commands[i]->name, commands[i - 1]->name, span) == 0 && commands[i - 1]->name[span] == ' ') continue;
    out("    '%.*s:", (int)span, commands[i]->name);
    quoted(commands[i]->summary);
    out("'\n");
  }
  out("  )\n  if ((CURRENT == 2)); then _describe command first; return; fi\n  local command=$words[2]\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    const char *space = strchr(commands[i]->name, ' ');
    if (!space || (i > 0 && strncmp(commands[i]->name, commands[i - 1]->name, (size_t)(space - commands[i]->name) + 1) == 0)) continue;
    out("  %.*s) if ((CURRENT == 3)); then compadd -- ", (int)(space - commands[i]->name), commands[i]->name);
    second_words(commands[i]->name, (size_t)(space - commands[i]->name));
    out("; return; fi; command+=\" $words[3]\" ;;\n");
  }
  out("  esac\n  case $command in\n");
  for (int i = 0; i < command_count; i++) {
    out("  '%s') _arguments -S '*:file:_files'", commands[i]->name);
    for (int k = 0; (o = command_option(commands[i], k)); k++) {
      if (option_is_positional(o)) continue;
      out(" \\\n    '%s--%s[", o->kind == OPTION_TEXTS ? "*" : "", o->name);
      for (const char *at = o->help; *at; at++) {
        if (*at == '\'') out("'\\''");
        else out(*at == '[' || *at == ']' || *at == ':' ? "\\%c" : "%c", *at);
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
    out(" ;;\n");
  }
  out("  esac\n}\ncompdef _heed heed\n");
}

static void fish(void) {
  const option *o;
  out("# fish completion for heed: heed completion fish | source\n");
  for (int i = 0; i < command_count; i++) {
    const char *name = commands[i]->name, *space = strchr(name, ' ');
    int span = (int)strcspn(name, " ");
    bool seen = i > 0 && space && strncmp(name, commands[i - 1]->name, (size_t)span + 1) == 0;
    if (!seen) {
      out("complete -c heed -n __fish_use_subcommand -f -a %.*s -d '", span, name);
      quoted(commands[i]->summary);
      out("'\n");
    }
    if (space) out("complete -c heed -n '__fish_seen_subcommand_from %.*s' -f -a %s\n", span, name, space + 1);
    for (int k = 0; (o = command_option(commands[i], k)); k++) {
      if (option_is_positional(o)) continue;
      out("complete -c heed -n '__fish_seen_subcommand_from %.*s%s%s' -l %s", span, name, space ? "; and __fish_seen_subcommand_from " : "",
          space ? space + 1 : "", o->name);
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
  }
}

static int run(const void *pointer) {
  const values *v = pointer;
  if (strcmp(v->shell, "bash") == 0) bash();
  else if (strcmp(v->shell, "zsh") == 0) zsh();
  else fish();
  return EXIT_OK;
}

static const option options[] = {
    {.name = "SHELL",
     .kind = OPTION_CHOICE,
     .at = offsetof(values, shell),
     .help = "the shell",
     .choices = "bash|zsh|fish",
     .required = true},
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
