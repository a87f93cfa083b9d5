/* json.h: the one door through which JSON enters: configuration, tokenizers, safetensors headers and indexes.
 *
 * jansson parses; this door bounds what it may cost and names what is wrong. A text is scanned before it is parsed: encoding, depth, and
 * an estimate of the memory that its values will take. Duplicate keys, NaN, numbers out of range, lone surrogates and NUL are refused.
 * The getters check range and kind and name file and key. */
#ifndef HD_JSON_H
#define HD_JSON_H

#include "../base/file.h"
#include "../../include/heed/text.h"

#include <jansson.h>

/* What a text may be. */
typedef struct hd_json_rules {
  int64_t limit; /* bytes */
  bool
      big_integers; /* numbers beyond 64 bits are wanted ("no limit" as 10^30): every number then becomes a real, which the integer getters refuse */
} hd_json_rules;

#define HD_JSON_CONFIG_BYTES    (16 << 20)  /* config.json, generation_config.json, tokenizer_config.json */
#define HD_JSON_TOKENIZER_BYTES (100 << 20) /* the largest tokenizer.json in use has about 33 MB */

/* The whole file as one JSON object. Release with json_decref. HEED_E_FILE, HEED_E_FORMAT, HEED_E_MEMORY. */
heed_status hd_json_load(heed_context *context, const char *path, hd_json_rules rules, json_t **out);
/* The same for the bytes [offset, offset + bytes) of an open file; `part` names them in messages ("header"). */
heed_status hd_json_read(heed_context *context, const hd_file *file, const char *part, int64_t offset, int64_t bytes, hd_json_rules rules,
                         json_t **out);

/* ---- writing -------------------------------------------------------------------------------------------------------------- */

/* The value as text (keys in the order they were set, reals so that they read back as they are), *bytes long. flags: JSON_COMPACT or HD_JSON_INDENTED, which ends in a
 * newline. Release with hd_release(context, text, bytes, 1). HEED_E_MEMORY. */
#define HD_JSON_INDENTED JSON_INDENT(2)
heed_status hd_json_dump(heed_context *context, const json_t *value, size_t flags, char **text, int64_t *bytes);
/* The indented text as a file, written aside. */
heed_status hd_json_save(heed_context *context, const char *path, const json_t *value);

/* ---- getters -------------------------------------------------------------------------------------------------------------- */

/* Where a getter looks, and what its messages say. */
typedef struct hd_json_place {
  heed_context *context;
  const char *file;
  const char *part; /* "rope_scaling" inside config.json, say; "" for the top */
  const json_t *object;
} hd_json_place;

/* A key that must be there, of that kind and in that range (both ends allowed): HEED_E_FORMAT otherwise. Integers are written as
 * integers (not 1e3, 1.5); numbers may be either. Text is borrowed from the document; it holds no NUL and ends in one. */
heed_status hd_json_integer(const hd_json_place *in, const char *key, int64_t min, int64_t max, int64_t *out);
heed_status hd_json_number(const hd_json_place *in, const char *key, double min, double max, double *out);
heed_status hd_json_bool(const hd_json_place *in, const char *key, bool *out);
heed_status hd_json_text(const hd_json_place *in, const char *key, heed_text *out);
heed_status hd_json_object(const hd_json_place *in, const char *key, hd_json_place *out); /* out->part is key */
heed_status hd_json_array(const hd_json_place *in, const char *key, const json_t **out);

/* The same where the key may be absent or null: then the fallback, which is not checked. */
heed_status hd_json_integer_or(const hd_json_place *in, const char *key, int64_t fallback, int64_t min, int64_t max, int64_t *out);
heed_status hd_json_number_or(const hd_json_place *in, const char *key, double fallback, double min, double max, double *out);
heed_status hd_json_bool_or(const hd_json_place *in, const char *key, bool fallback, bool *out);
heed_status hd_json_text_or(const hd_json_place *in, const char *key, const char *fallback, heed_text *out);

/* Whether the key is there and not null. */
bool hd_json_has(const hd_json_place *in, const char *key);

/* For a value the caller has found itself: HEED_E_FORMAT "FILE: PART.KEY: <problem> (got <value, shortened>)". */
heed_status hd_json_wrong(const hd_json_place *in, const char *key, const char *problem);

static inline heed_text hd_text_of(const char *chars) { return (heed_text){chars, strlen(chars)}; }
static inline bool hd_text_is(heed_text text, const char *what) {
  return strlen(what) == text.length && memcmp(text.data, what, text.length) == 0;
}

/* Whether a text is UTF-8 without control characters, as names are that people see. */
bool hd_is_printable(heed_text text);
/* Text of a file as it may stand in a one-line message: at most 60 bytes, control characters and broken UTF-8 as \xNN. Returns buffer. */
#define HD_QUOTE_LENGTH 256
const char *hd_quote(heed_text text, char buffer[HD_QUOTE_LENGTH]);

#endif
