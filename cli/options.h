/* options.h: what a command is, and the one table per command that describes its arguments.
 *
 * The table drives everything: parsing (options.c), `--help`, the manual page and shell completions (manual.c). A command is a file that defines
 * one `command` and one line in list.h. Parsed values land in a plain struct of the command's own, at the offsets its table names. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the process returns. */
enum exit_code { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_BAD_FILE, EXIT_UNSUPPORTED, EXIT_NO_MEMORY, EXIT_INTERRUPTED = 130 };

/* Values that may stand several times or as a list. */
enum { LIST_MAX = 64 };
typedef struct text_list {
  int count;
  const char *items[LIST_MAX];
} text_list;
typedef struct whole_list {
  int count;
  int64_t items[LIST_MAX];
} whole_list;
typedef struct number_list {
  int count;
  double items[LIST_MAX];
} number_list;

typedef enum option_kind {
  OPTION_FLAG,    /* bool */
  OPTION_WHOLE,   /* int64_t in [low, high] */
  OPTION_NUMBER,  /* double in [low, high]; give NAN as the default to tell "absent" */
  OPTION_TEXT,    /* const char * */
  OPTION_CHOICE,  /* const char *, one of choices */
  OPTION_TEXTS,   /* text_list: the option may be repeated */
  OPTION_WHOLES,  /* whole_list "512,2048", each in [low, high] */
  OPTION_NUMBERS, /* number_list "0,0.1", each in [low, high] */
  OPTION_CHOICES, /* whole_list of places in choices: "f32,bf16" */
} option_kind;

typedef struct option {
  const char *name; /* "layers" is --layers; a name in capitals is a positional argument */
  char letter;      /* 'o' is -o; 0: none */
  option_kind kind;
  const char *value; /* what stands for the value in help: "LIST"; FILE, MODEL and DIR complete to files */
  size_t at;         /* offset in the command's values */
  const char *help;
  double low, high;    /* both 0: any */
  const char *choices; /* "auto|always|never" */
  bool required;
} option;

/* A line of a table, for a command whose values are the struct `values`: OPTION("top", 0, WHOLE, "K", top, "candidates", .low = 1, .high = 9) is --top K. */
#define OPTION(name_, letter_, kind_, value_, field_, help_, ...)                                                                          \
  { .name = name_, .letter = letter_, .kind = OPTION_##kind_, .value = value_, .at = offsetof(values, field_), .help = help_, __VA_ARGS__ }

/* Options that mean the same in many commands. They are the first member, `common`, of every command's values. */
typedef struct common_values {
  bool help, quiet, json;
  const char *color;
  int64_t threads; /* 0: all */
  const char *level;
  int64_t seed;
} common_values;
#define LEVEL_CHOICES "auto|scalar|avx2|avx2x2|avx512|avx512bf16|amx|neon"
enum { TAKES_MACHINE = 1, TAKES_JSON = 2, TAKES_SEED = 4 }; /* help, quiet and color are taken by all */

/* `name` may be two words ("bench attention"). options ends with an empty entry. Help and the manual print `about` wrapped and `examples` as they are. */
typedef struct command {
  const char *name, *summary, *about, *examples;
  const option *options;
  unsigned takes;
  size_t values_size;
  const void *defaults;           /* NULL: all zero */
  int (*run)(const void *values); /* returns an exit code, its message already printed */
} command;

extern const command *const commands[];
extern const int command_count;

/* The choice at a place in "f32|f16|bf16" (returns buffer), and the place of a choice or −1. */
enum { CHOICE_MAX = 32 };
const char *choice_at(const char *choices, int64_t place, char buffer[CHOICE_MAX]);
int choice_place(const char *choices, const char *word);

/* Walks a command's own options and then the common ones it takes: NULL after the last. */
const option *command_option(const command *of, int index);
bool option_is_positional(const option *o);

/* Fills values (values_size bytes) from the words after the command's name. Returns EXIT_OK or, with a message on standard error, EXIT_USAGE. */
int options_parse(const command *of, int count, char **words, void *values);

/* The candidate that word is probably a misspelling of, or NULL. */
const char *closest_name(const char *word, int count, const char *const *names);

/* Chooses among things numbered from 0: "all", "0,3-5,-1" (negative numbers count from the end). *list is malloc'ed, ascending, without
 * repeats. `option_name` and `thing` ("layer") are for the message. */
int parse_selection(const char *option_name, const char *thing, const char *text, int64_t count, int64_t **list, int64_t *list_count);
/* "5,17,3": *list is malloc'ed. */
int parse_ids(const char *option_name, const char *text, int64_t vocabulary, int32_t **list, int64_t *list_count);
/* A whole number, a finite number, that is all of text. */
bool parse_whole(const char *text, int64_t *out);
bool parse_number(const char *text, double *out);

#endif
