/* pattern_text.h: a pattern that is said on the command line. */
#ifndef CLI_PATTERN_TEXT_H
#define CLI_PATTERN_TEXT_H

#include "console.h"

#include "heed/heed.h"

/* Reads it for so many heads and tokens; what is wrong with it is a usage error, whose sentence begins with `where` ("--pattern: ", or nothing). Freed by heed_pattern_free. */
int pattern_open(heed_context *context, const char *where, const char *text, int64_t heads, int64_t tokens, heed_pattern **out);

#endif
