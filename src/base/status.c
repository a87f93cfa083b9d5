/* status.c: names and texts of the statuses, the version, and the sentence a failing call leaves in its context. */
#include "base.h"

#include <stdio.h>

#define STRING(x)                    #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

static const char *const names[] = {
#define STATUS_NAME(name, text) "HEED_" #name,
    HEED_STATUS_LIST(STATUS_NAME)};
static const char *const texts[] = {
#define STATUS_TEXT(name, text) text,
    HEED_STATUS_LIST(STATUS_TEXT)};

const char *heed_status_name(heed_status status) {
  return status >= 0 && (int64_t)status < HD_COUNT(names) ? names[status] : "HEED_UNKNOWN_STATUS";
}

const char *heed_status_text(heed_status status) {
  return status >= 0 && (int64_t)status < HD_COUNT(texts) ? texts[status] : "unknown status";
}

const char *heed_version(void) { return VERSION(HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH); }

heed_status hd_fail(heed_context *context, heed_status status, const char *format, ...) {
  if (!context) return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(context->error, sizeof context->error, format, arguments);
  va_end(arguments);
  return status;
}

heed_status hd_check_range(heed_context *context, const char *name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return HEED_OK;
  if (value < least && most >= (int64_t)1 << 60) // a bound that nobody meets is not worth naming
    return hd_fail(context, HEED_E_ARGUMENT, "%s: got %lld, allowed %lld and more", name, (long long)value, (long long)least);
  return hd_fail(context, HEED_E_ARGUMENT, "%s: got %lld, allowed %lld to %lld", name, (long long)value, (long long)least, (long long)most);
}
