/* console.c: messages, the progress bar, Ctrl-C, and what the terminal can show.
 *
 * Ctrl-C only sets a flag that the library's progress callback reads, so that work stops between two pieces and files stay whole; a second Ctrl-C
 * ends the process at once. The bar appears after a moment of waiting, so that quick work stays quiet. */
#define _GNU_SOURCE
#include "console.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t was_interrupted;
static struct {
  bool quiet, stderr_terminal, bar_hidden, bar_drawn;
  const char *color;
} console = {.color = "auto"};

/* ---- start --------------------------------------------------------------------------------------------------------------- */

static char *typed;

/* Appends a word to the command line, in single quotes where the shell would not take it as it is. */
static void type_word(const char *word, size_t *used) {
  bool plain = word[0] && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%") == strlen(word);
  if (*used) typed[(*used)++] = ' ';
  if (!plain) typed[(*used)++] = '\'';
  for (; *word; word++) *used += (size_t)sprintf(typed + *used, *word == '\'' ? "'\\''" : "%c", *word);
  if (!plain) typed[(*used)++] = '\'';
  typed[*used] = 0;
}

const char *command_line(void) { return typed; }

void console_start(int count, char **words) {
  size_t used = 0, room = sizeof "heed";
  for (int i = 1; i < count; i++) room += 4 * strlen(words[i]) + 4;
  typed = allocate("the command line", (int64_t)room, 1);
  type_word("heed", &used);
  for (int i = 1; i < count; i++) type_word(words[i], &used);
  // A closed standard stream would give its number to the next file that is opened, and messages would land in that file.
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) _exit(EXIT_FAILED);
  signal(SIGPIPE, SIG_DFL); // a reader that has seen enough, such as head, ends us quietly
  signal(SIGXFSZ, SIG_IGN); // a file beyond the limit is an error of write, which can be named
  console.stderr_terminal = isatty(STDERR_FILENO);
}

void console_configure(const common_values *common) {
  console.quiet = common->quiet;
  if (common->color) console.color = common->color;
}

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- messages ------------------------------------------------------------------------------------------------------------ */

static void bar_clear(void) {
  if (console.bar_drawn) fputs("\r\033[K", stderr);
  console.bar_drawn = false;
}

static void say(const char *format, va_list arguments) {
  bar_clear();
  fputs("heed: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

int error_of(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(format, arguments);
  va_end(arguments);
  return code;
}

void note(const char *format, ...) {
  if (console.quiet) return;
  va_list arguments;
  va_start(arguments, format);
  say(format, arguments);
  va_end(arguments);
}

static int exit_code_of(heed_status status) {
  switch (status) {
  case HEED_OK: return EXIT_OK;
  case HEED_E_FILE:
  case HEED_E_FORMAT: return EXIT_BAD_FILE;
  case HEED_E_UNSUPPORTED: return EXIT_UNSUPPORTED;
  case HEED_E_MEMORY: return EXIT_NO_MEMORY;
  default: return EXIT_FAILED;
  }
}

int check(const heed_context *context, heed_status status) {
  bar_clear();
  if (status == HEED_OK) return EXIT_OK;
  if (status == HEED_E_CANCELLED && interrupted()) return EXIT_INTERRUPTED;
  const char *sentence = context ? heed_error(context) : "";
  return error_of(exit_code_of(status), "%s", sentence[0] ? sentence : heed_status_text(status));
}

void *allocate(const char *what, int64_t count, size_t size) {
  void *memory = calloc(count > 0 ? (size_t)count : 1, size);
  if (!memory) exit(error_of(EXIT_NO_MEMORY, "out of memory (%s, %lld × %zu bytes)", what, (long long)count, size));
  return memory;
}

void *grown(const char *what, void *array, int64_t *room, int64_t needed, size_t size) {
  if (needed <= *room) return array;
  *room = needed > 2 * *room ? needed : 2 * *room;
  void *larger = realloc(array, (size_t)*room * size);
  if (!larger) exit(error_of(EXIT_NO_MEMORY, "out of memory (%s, %lld × %zu bytes)", what, (long long)*room, size));
  return larger;
}

/* ---- progress and Ctrl-C ------------------------------------------------------------------------------------------------- */

enum { BAR_CELLS = 24 };
static const double BAR_DELAY = 0.4, BAR_INTERVAL = 0.1; // seconds before the bar first appears, and between two drawings

/* Remembers the interrupt; SA_RESETHAND makes the second one end the process. Without SA_RESTART a blocked read returns at once. */
static void on_interrupt(int signal_number) {
  (void)signal_number;
  was_interrupted = 1;
}

bool interrupted(void) { return was_interrupted; }

void progress_show(bool show) {
  bar_clear();
  console.bar_hidden = !show;
}

static void bar_draw(const char *what, int64_t done, int64_t total, double seconds) {
  double share = (double)done / (double)total, left = done ? seconds / (double)done * (double)(total - done) : 0;
  int cells = (int)(share * BAR_CELLS);
  fprintf(stderr, "\r%-10s ", what);
  for (int i = 0; i < BAR_CELLS; i++) fputs(i < cells ? "━" : "╌", stderr);
  fprintf(stderr, " %3.0f %%", 100 * share);
  if (done && seconds > 0) {
    double rate = (double)done / seconds, unit = rate < 1e4 ? 1 : rate < 1e7 ? 1e3 : 1e6;
    fprintf(stderr, "  %.3g%s/s  %d:%02d left", rate / unit, unit == 1 ? "" : unit == 1e3 ? " k" : " M", (int)left / 60, (int)left % 60);
  }
  fputs("\033[K", stderr);
  fflush(stderr);
  console.bar_drawn = true;
}

bool progress(const char *what, int64_t done, int64_t total) {
  static double started, drawn;
  static const char *current;
  double now = seconds_now();
  if (!current || strcmp(current, what) != 0 || done == 0) {
    current = what;
    started = now;
  }
  if (console.stderr_terminal && !console.quiet && !console.bar_hidden && total > 0) {
    if (done >= total) {
      bar_clear();
      current = NULL;
    } else if (now - started > BAR_DELAY && now - drawn > BAR_INTERVAL) {
      drawn = now;
      bar_draw(what, done, total, now - started);
    }
  }
  return !interrupted();
}

static bool on_progress(void *user, const char *what, int64_t done, int64_t total) {
  (void)user;
  return progress(what, done, total);
}

void interrupt_on_termination(void) {
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
  static const int numbers[] = {SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL); // nohup
}

int context_open(const common_values *common, heed_context **out) { return context_open_on(common, &(heed_allocator){0}, out); }

int context_open_on(const common_values *common, const heed_allocator *allocator, heed_context **out) {
  heed_level level = common->level ? heed_level_from_name(common->level) : HEED_LEVEL_AUTO;
  if (!heed_level_available(level))
    return error_of(EXIT_UNSUPPORTED, "--level %s: this processor does not have it (`heed info` lists what it has)", common->level);
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &action, NULL);
  heed_options options = {
      .size = sizeof options, .threads = (int)common->threads, .level = level, .allocator = *allocator, .progress = on_progress};
  return check(NULL, heed_context_new(&options, out));
}

/* ---- the terminal -------------------------------------------------------------------------------------------------------- */

static bool variable_is(const char *name, const char *value) {
  const char *found = getenv(name);
  return found && strcmp(found, value) == 0;
}

heed_color console_color(void) {
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  if (strcmp(console.color, "never") == 0) return HEED_COLOR_NONE;
  if (strcmp(console.color, "auto") == 0) {
    if (!isatty(STDOUT_FILENO) || (no_color && no_color[0]) || !term || strcmp(term, "dumb") == 0) return HEED_COLOR_NONE;
  }
  return variable_is("COLORTERM", "truecolor") || variable_is("COLORTERM", "24bit") ? HEED_COLOR_TRUE : HEED_COLOR_256;
}

bool console_dark(void) {
  // COLORFGBG is "foreground;background" where a terminal sets it; 7 and 9 to 15 are the light colours. Dark is the common case elsewhere.
  const char *colors = getenv("COLORFGBG"), *background = colors ? strrchr(colors, ';') : NULL;
  int number = background ? atoi(background + 1) : 0;
  return number < 7 || number == 8;
}

int console_width(void) {
  struct winsize size;
  const char *columns = getenv("COLUMNS");
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}
