/* json.c: a writer of a few lines; a document tree would need the memory of all that passes through. */
#include "json.h"

#include "output.h"

#include <math.h>
#include <string.h>

static void write_escaped(heed_text text) {
  out("\"");
  for (size_t i = 0; i < text.length;) {
    size_t length = utf8_length(text.data + i, text.length - i);
    unsigned char byte = (unsigned char)text.data[i];
    if (length == 0) out("\\ufffd");
    else if (byte == '"' || byte == '\\') out("\\%c", byte);
    else if (byte == '\n') out("\\n");
    else if (byte < 0x20) out("\\u%04x", byte);
    else out_bytes(text.data + i, length);
    i += length ? length : 1;
  }
  out("\"");
}

static void begin_value(json *j, const char *key) {
  if (j->depth > 0 && j->follows[j->depth]) out(", ");
  j->follows[j->depth] = true;
  if (!key) return;
  write_escaped((heed_text){key, strlen(key)});
  out(": ");
}

void json_open(json *j, const char *key, char bracket) {
  begin_value(j, key);
  out("%c", bracket);
  j->depth++;
  j->follows[j->depth] = false;
  j->closes[j->depth] = bracket == '{' ? '}' : ']';
}

void json_close(json *j) {
  out("%c", j->closes[j->depth--]);
  if (j->depth == 0) out("\n");
}

void json_bytes(json *j, const char *key, heed_text text) {
  begin_value(j, key);
  write_escaped(text);
}

void json_text(json *j, const char *key, const char *text) { json_bytes(j, key, (heed_text){text, strlen(text)}); }

void json_number(json *j, const char *key, double value) {
  begin_value(j, key);
  if (isfinite(value)) out("%.9g", value);
  else out("null");
}

void json_whole(json *j, const char *key, int64_t value) {
  begin_value(j, key);
  out("%lld", (long long)value);
}

void json_bool(json *j, const char *key, bool value) {
  begin_value(j, key);
  out(value ? "true" : "false");
}
