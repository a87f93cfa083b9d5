/* json.h: writes JSON to standard output, value by value; commas come by themselves. Text that is not UTF-8 gets U+FFFD, numbers that JSON lacks are null. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include "heed/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct json {
  int depth;
  bool follows[16]; /* whether a value already stands at this depth */
  char closes[16];
} json;

/* key is NULL inside arrays and at the top. */
void json_open(json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(json *j);                               /* at the top also ends the line */
void json_text(json *j, const char *key, const char *text);
void json_bytes(json *j, const char *key, heed_text text);
void json_number(json *j, const char *key, double value);
void json_whole(json *j, const char *key, int64_t value);
void json_bool(json *j, const char *key, bool value);

#endif
