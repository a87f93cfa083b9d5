/* help.h: the pages that are made from the commands' tables. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "options.h"

/* What `heed --help` and `heed COMMAND --help` print on standard output. */
void help_overview(void);
void help_command(const command *of);
/* The pages of a command, or of all whose first word this is; false if there is none. */
bool help_topic(const char *name);

#endif
