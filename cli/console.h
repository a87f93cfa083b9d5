/* console.h: what a command says to people: errors, notes and progress on standard error, Ctrl-C, what the terminal can show.
 *
 * Results never come through here (output.h). Every message is one line that begins with "heed: ". */
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H

#include "options.h"

#include "heed/heed.h"
#include "heed/model.h"
#include "heed/view.h"

#include <stdio.h>

/* Once, before anything else: the process's signals and standard streams. words is argv. */
void console_start(int count, char **words);
/* The command line as one would type it again; for the life of the program. */
const char *command_line(void);
/* Once the options are known. */
void console_configure(const common_values *common);

/* ---- messages ------------------------------------------------------------------------------------------------------------ */

/* Prints "heed: " and the sentence, returns code, so that a failure reads `return error_of(EXIT_FAILED, ...)`. */
__attribute__((format(printf, 2, 3))) int error_of(int code, const char *format, ...);
#define usage_error(...) error_of(EXIT_USAGE, __VA_ARGS__)
/* Something worth knowing that is not a failure; silent with --quiet. */
__attribute__((format(printf, 1, 2))) void note(const char *format, ...);

/* EXIT_OK, or prints what the library said and returns the exit code of its status. */
int check(const heed_context *context, heed_status status);

/* Leaves for the label `done` with the first exit code that is not EXIT_OK; the function has `int code`. */
#define TRY(expression)                                                                                                                    \
  do {                                                                                                                                     \
    if ((code = (expression)) != EXIT_OK) goto done;                                                                                       \
  } while (0)

/* Zeroed memory for free(); ends the process with a message and EXIT_NO_MEMORY where there is none. */
void *allocate(const char *what, int64_t count, size_t size);
/* The array, moved where there is no room for `needed` elements: *room is then that or twice what it was. Ends the process likewise. */
void *grown(const char *what, void *array, int64_t *room, int64_t needed, size_t size);

/* ---- a context that people watch ----------------------------------------------------------------------------------------- */

/* A context with the chosen threads and level, whose long work shows a progress bar and stops at Ctrl-C. */
int context_open(const common_values *common, heed_context **out);
/* One whose memory comes from `allocator`. */
int context_open_on(const common_values *common, const heed_allocator *allocator, heed_context **out);
/* Draws nothing until progress_show(true): for work that writes to the terminal itself. */
void progress_show(bool show);
/* Long work outside the library; returns false once Ctrl-C was pressed. */
bool progress(const char *what, int64_t done, int64_t total);
bool interrupted(void);
/* SIGTERM and the end of the terminal count as Ctrl-C from here on: for commands that have something to save. */
void interrupt_on_termination(void);

/* ---- the terminal -------------------------------------------------------------------------------------------------------- */

heed_color console_color(void);
bool console_dark(void);
/* Columns of the terminal on standard output; 80 where there is none. */
int console_width(void);
double seconds_now(void);

#endif
