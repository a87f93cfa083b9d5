/* pattern_text.c: a pattern that is said on the command line. */
#include "pattern_text.h"

int pattern_open(heed_context *context, const char *where, const char *text, int64_t heads, int64_t tokens, heed_pattern **out) {
  heed_status status = heed_pattern_parse(context, text, out);
  if (status == HEED_OK) status = heed_pattern_check(context, *out, heads, tokens);
  if (status == HEED_E_ARGUMENT || status == HEED_E_SHAPE) return usage_error("%s%s", where, heed_error(context));
  return check(context, status);
}
