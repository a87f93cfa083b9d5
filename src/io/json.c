/* json.c: scanning, parsing, writing and reading JSON. The scan runs over the text as it arrives from the file, so that 100 MB of "[" are refused
 * at the first megabyte. */
#include "json.h"

#include <math.h>
#include <stdio.h>

/* Deeper than any configuration or tokenizer; jansson would recurse to 2048. */
enum { DEPTH_LIMIT = 64 };

/* What jansson 2.14 takes for a value, in bytes with malloc's overhead (its structures on a 64-bit machine): an empty object has a hash
 * table of 8 buckets, an empty array 8 slots. A text whose values would take more than 32 times its own size (plus a slack for small
 * ones) is refused before anything is built. */
enum { OBJECT_COST = 224, ARRAY_COST = 128, STRING_COST = 80, NUMBER_COST = 32, PAIR_COST = 32, SLOT_COST = 16 };
enum { COST_FACTOR = 32, COST_SLACK = 1 << 20 };
enum { SCAN_BYTES = 1 << 20 };

/* ---- messages -------------------------------------------------------------------------------------------------------------- */

/* Length of the UTF-8 character at the start of text (not a control character), or 0. */
static size_t printable_character(const unsigned char *text, size_t length) {
  unsigned char first = text[0];
  if (first < 0x80) return first >= 0x20 && first != 0x7f;
  size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length < bytes) return 0;
  for (size_t i = 1; i < bytes; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  uint32_t point = first & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; i++) point = point << 6 | (text[i] & 0x3f);
  bool overlong = (bytes == 3 && point < 0x800) || (bytes == 4 && point < 0x10000);
  bool control = (point >= 0x80 && point < 0xa0) || point == 0x2028 || point == 0x2029 || (point >= 0x202a && point <= 0x202e);
  return overlong || control || (point >= 0xd800 && point < 0xe000) || point > 0x10ffff ? 0 : bytes;
}

bool hd_is_printable(heed_text text) {
  for (size_t i = 0, bytes; i < text.length; i += bytes) {
    bytes = printable_character((const unsigned char *)text.data + i, text.length - i);
    if (!bytes) return false;
  }
  return true;
}

const char *hd_quote(heed_text text, char buffer[HD_QUOTE_LENGTH]) {
  enum { SHOWN = 60 };
  size_t out = 0;
  for (size_t i = 0; i < text.length;) {
    if (i >= SHOWN) {
      memcpy(buffer + out, "...", 3);
      out += 3;
      break;
    }
    size_t bytes = printable_character((const unsigned char *)text.data + i, text.length - i);
    if (bytes) {
      memcpy(buffer + out, text.data + i, bytes);
      out += bytes;
      i += bytes;
    } else {
      out += (size_t)snprintf(buffer + out, 5, "\\x%02x", (unsigned char)text.data[i]);
      i++;
    }
  }
  buffer[out] = 0;
  return buffer;
}

/* A value as a message shows it. */
static const char *describe(const json_t *value, char buffer[HD_QUOTE_LENGTH]) {
  char quoted[HD_QUOTE_LENGTH];
  switch (value ? json_typeof(value) : JSON_NULL) {
  case JSON_OBJECT: return "an object";
  case JSON_TRUE: return "true";
  case JSON_FALSE: return "false";
  case JSON_NULL: return value ? "null" : "nothing";
  case JSON_ARRAY: snprintf(buffer, HD_QUOTE_LENGTH, "an array of %zu", json_array_size(value)); break;
  case JSON_INTEGER: snprintf(buffer, HD_QUOTE_LENGTH, "%lld", (long long)json_integer_value(value)); break;
  case JSON_REAL: snprintf(buffer, HD_QUOTE_LENGTH, "%.17g", json_real_value(value)); break;
  case JSON_STRING:
    hd_quote((heed_text){json_string_value(value), json_string_length(value)}, quoted);
    snprintf(buffer, HD_QUOTE_LENGTH, "\"%.*s\"", HD_QUOTE_LENGTH - 3, quoted);
    break;
  }
  return buffer;
}

/* ---- scanning -------------------------------------------------------------------------------------------------------------- */

typedef struct scanner {
  int64_t depth, cost;
  bool in_string, escaped, in_number;
} scanner;

/* The problem with the bytes at the start of a text, or NULL. */
static const char *encoding_problem(const unsigned char *text, int64_t bytes) {
  if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) return "starts with a byte-order mark";
  if (bytes >= 2 && ((text[0] == 0xff && text[1] == 0xfe) || (text[0] == 0xfe && text[1] == 0xff))) return "is UTF-16";
  if (bytes >= 2 && (!text[0] || !text[1])) return "is UTF-16 or UTF-32";
  return NULL;
}

/* Scans one more piece; false where the depth is too great. Structure is not checked: that is the parser's work. */
static bool scan(scanner *s, const char *text, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i++) {
    char c = text[i];
    if (s->in_string) {
      s->cost++;
      if (s->escaped) s->escaped = false;
      else if (c == '\\') s->escaped = true;
      else if (c == '"') s->in_string = false;
      continue;
    }
    bool digit = (c >= '0' && c <= '9') || c == '-';
    if (digit && !s->in_number) s->cost += NUMBER_COST;
    s->in_number = digit || (s->in_number && (c == '.' || c == 'e' || c == 'E' || c == '+'));
    switch (c) {
    case '"':
      s->in_string = true;
      s->cost += STRING_COST;
      break;
    case '{':
      s->cost += OBJECT_COST;
      if (++s->depth > DEPTH_LIMIT) return false;
      break;
    case '[':
      s->cost += ARRAY_COST;
      if (++s->depth > DEPTH_LIMIT) return false;
      break;
    case '}':
    case ']': s->depth--; break;
    case ':': s->cost += PAIR_COST; break;
    case ',': s->cost += SLOT_COST; break;
    }
  }
  return true;
}

/* What the messages of one text begin with: "FILE: " or "FILE: header: ". */
typedef struct source {
  heed_context *context;
  const hd_file *file;
  const char *part;
} source;

#define PREFIX          "%s: %s%s"
#define PREFIX_OF(from) (from)->file->path, (from)->part, *(from)->part ? ": " : ""

static heed_status read_and_scan(const source *from, int64_t offset, int64_t bytes, char *text) {
  scanner s = {0};
  int64_t allowed = COST_SLACK + COST_FACTOR * bytes;
  for (int64_t done = 0; done < bytes;) {
    int64_t piece = HD_MIN(bytes - done, SCAN_BYTES);
    HD_TRY(hd_file_read(from->context, from->file, offset + done, piece, text + done));
    const char *problem = done == 0 ? encoding_problem((const unsigned char *)text, piece) : NULL;
    HD_REQUIRE(!problem, from->context, HEED_E_FORMAT, PREFIX "%s (at byte 0, allowed UTF-8 without one)", PREFIX_OF(from), problem);
    HD_REQUIRE(scan(&s, text + done, piece), from->context, HEED_E_FORMAT, PREFIX "values nested too deep (allowed %d levels)",
               PREFIX_OF(from), DEPTH_LIMIT);
    HD_REQUIRE(s.cost <= allowed, from->context, HEED_E_FORMAT,
               PREFIX "too many values for its size (%lld bytes of memory, allowed %d times the text)", PREFIX_OF(from), (long long)s.cost,
               COST_FACTOR);
    done += piece;
  }
  return HEED_OK;
}

static heed_status parse(const source *from, hd_json_rules rules, const char *text, int64_t bytes, json_t **out) {
  json_error_t error;
  size_t flags = JSON_REJECT_DUPLICATES | (rules.big_integers ? JSON_DECODE_INT_AS_REAL : 0);
  json_t *value = json_loadb(text, (size_t)bytes, flags, &error);
  if (!value) {
    char quoted[HD_QUOTE_LENGTH];
    // Where jansson has nothing to say about the text, a request for memory has failed.
    HD_REQUIRE(error.text[0] && json_error_code(&error) != json_error_out_of_memory, from->context, HEED_E_MEMORY,
               "out of memory: " PREFIX "JSON values", PREFIX_OF(from));
    return hd_fail(from->context, HEED_E_FORMAT, PREFIX "not valid JSON (line %d, column %d: %s)", PREFIX_OF(from), error.line,
                   error.column, hd_quote(hd_text_of(error.text), quoted));
  }
  if (!json_is_object(value)) {
    json_decref(value);
    return hd_fail(from->context, HEED_E_FORMAT, PREFIX "the outermost value must be an object (got an array)", PREFIX_OF(from));
  }
  *out = value;
  return HEED_OK;
}

heed_status hd_json_read(heed_context *context, const hd_file *file, const char *part, int64_t offset, int64_t bytes, hd_json_rules rules,
                         json_t **out) {
  const source from = {context, file, part};
  char *text = NULL;
  heed_status status;
  *out = NULL;
  HD_REQUIRE(bytes <= rules.limit, context, HEED_E_FORMAT, PREFIX "too large (got %lld bytes, allowed %lld)", PREFIX_OF(&from),
             (long long)bytes, (long long)rules.limit);
  HD_TRY(hd_allocate(context, "a JSON text", bytes, 1, &text));
  HD_TRY_DONE(read_and_scan(&from, offset, bytes, text));
  HD_TRY_DONE(parse(&from, rules, text, bytes, out));
done:
  hd_release(context, text, bytes, 1);
  return status;
}

heed_status hd_json_load(heed_context *context, const char *path, hd_json_rules rules, json_t **out) {
  hd_file file = {0};
  *out = NULL;
  HD_TRY(hd_file_open(context, path, &file));
  heed_status status = hd_json_read(context, &file, "", 0, file.size, rules, out);
  hd_file_close(&file);
  return status;
}

/* ---- writing -------------------------------------------------------------------------------------------------------------- */

heed_status hd_json_dump(heed_context *context, const json_t *value, size_t flags, char **text, int64_t *bytes) {
  const size_t length = json_dumpb(value, NULL, 0, flags);
  const bool newline = flags == HD_JSON_INDENTED;
  *text = NULL;
  *bytes = (int64_t)length + newline;
  // jansson says 0 where it runs out of memory.
  HD_REQUIRE(length > 0, context, HEED_E_MEMORY, "out of memory: a JSON text");
  HD_TRY(hd_allocate(context, "a JSON text", *bytes, 1, text));
  if (json_dumpb(value, *text, length, flags) == length) {
    if (newline) (*text)[length] = '\n';
    return HEED_OK;
  }
  hd_release(context, *text, *bytes, 1);
  *text = NULL;
  return hd_fail(context, HEED_E_MEMORY, "out of memory: a JSON text");
}

heed_status hd_json_save(heed_context *context, const char *path, const json_t *value) {
  hd_writer writer;
  char *text;
  int64_t bytes;
  HD_TRY(hd_json_dump(context, value, HD_JSON_INDENTED, &text, &bytes));
  heed_status status = hd_writer_begin(context, path, &writer);
  if (status == HEED_OK) {
    status = hd_writer_write(&writer, text, bytes);
    if (status == HEED_OK) status = hd_writer_commit(&writer);
    else hd_writer_abandon(&writer);
  }
  hd_release(context, text, bytes, 1);
  return status;
}

/* ---- getters -------------------------------------------------------------------------------------------------------------- */

static const json_t *find(const hd_json_place *in, const char *key) {
  const json_t *value = json_object_get(in->object, key);
  return json_is_null(value) ? NULL : value;
}

bool hd_json_has(const hd_json_place *in, const char *key) { return find(in, key) != NULL; }

heed_status hd_json_wrong(const hd_json_place *in, const char *key, const char *problem) {
  char buffer[HD_QUOTE_LENGTH];
  return hd_fail(in->context, HEED_E_FORMAT, "%s: %s%s%s: %s (got %s)", in->file, in->part, *in->part ? "." : "", key, problem,
                 describe(json_object_get(in->object, key), buffer));
}

heed_status hd_json_integer(const hd_json_place *in, const char *key, int64_t min, int64_t max, int64_t *out) {
  const json_t *value = find(in, key);
  char problem[96];
  if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max) {
    snprintf(problem, sizeof problem, "must be an integer from %lld to %lld", (long long)min, (long long)max);
    return hd_json_wrong(in, key, problem);
  }
  *out = json_integer_value(value);
  return HEED_OK;
}

heed_status hd_json_number(const hd_json_place *in, const char *key, double min, double max, double *out) {
  const json_t *value = find(in, key);
  double number = json_number_value(value);
  char problem[96];
  // Written so that NaN fails.
  if (!json_is_number(value) || !(number >= min && number <= max)) {
    snprintf(problem, sizeof problem, "must be a number from %g to %g", min, max);
    return hd_json_wrong(in, key, problem);
  }
  *out = number;
  return HEED_OK;
}

heed_status hd_json_bool(const hd_json_place *in, const char *key, bool *out) {
  const json_t *value = find(in, key);
  if (!json_is_boolean(value)) return hd_json_wrong(in, key, "must be true or false");
  *out = json_is_true(value);
  return HEED_OK;
}

heed_status hd_json_text(const hd_json_place *in, const char *key, heed_text *out) {
  const json_t *value = find(in, key);
  if (!json_is_string(value)) return hd_json_wrong(in, key, "must be a text");
  *out = (heed_text){json_string_value(value), json_string_length(value)};
  return HEED_OK;
}

heed_status hd_json_object(const hd_json_place *in, const char *key, hd_json_place *out) {
  const json_t *value = find(in, key);
  if (!json_is_object(value)) return hd_json_wrong(in, key, "must be an object");
  *out = (hd_json_place){in->context, in->file, key, value};
  return HEED_OK;
}

heed_status hd_json_array(const hd_json_place *in, const char *key, const json_t **out) {
  const json_t *value = find(in, key);
  if (!json_is_array(value)) return hd_json_wrong(in, key, "must be an array");
  *out = value;
  return HEED_OK;
}

heed_status hd_json_integer_or(const hd_json_place *in, const char *key, int64_t fallback, int64_t min, int64_t max, int64_t *out) {
  if (hd_json_has(in, key)) return hd_json_integer(in, key, min, max, out);
  *out = fallback;
  return HEED_OK;
}

heed_status hd_json_number_or(const hd_json_place *in, const char *key, double fallback, double min, double max, double *out) {
  if (hd_json_has(in, key)) return hd_json_number(in, key, min, max, out);
  *out = fallback;
  return HEED_OK;
}

heed_status hd_json_bool_or(const hd_json_place *in, const char *key, bool fallback, bool *out) {
  if (hd_json_has(in, key)) return hd_json_bool(in, key, out);
  *out = fallback;
  return HEED_OK;
}

heed_status hd_json_text_or(const hd_json_place *in, const char *key, const char *fallback, heed_text *out) {
  if (hd_json_has(in, key)) return hd_json_text(in, key, out);
  *out = hd_text_of(fallback ? fallback : "");
  return HEED_OK;
}
