/* pretokenize.h: the regular expressions that cut text into the pieces inside which byte-level BPE merges.
 *
 * A pre-tokenizer is a short chain of patterns: each cuts every piece of the one before at the borders of its matches. The four that models in use name are here; a file
 * may bring others. Compiled patterns are immutable; a session is one caller's use of them and bounds what all its matches together may cost. */
#ifndef HD_PRETOKENIZE_H
#define HD_PRETOKENIZE_H

#include "../base/base.h"
#include "../../include/heed/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { HD_MAX_PATTERNS = 4 };

typedef struct hd_pre_tokenizer {
  const char *name;
  int count;
  const char *pattern[HD_MAX_PATTERNS];
  bool drops_rest[HD_MAX_PATTERNS]; /* text between the matches is no piece: it is dropped */
} hd_pre_tokenizer;

/* "gpt2", "smollm", "llama3", "qwen2", with the names that GGUF files use for them; NULL if unknown. */
const hd_pre_tokenizer *hd_pre_tokenizer_named(heed_text name);
/* The name of the one with the same patterns, "none" where there is no pattern, else "pattern". */
const char *hd_pre_tokenizer_name(const hd_pre_tokenizer *pre_tokenizer);
/* "gpt2, smollm, ..." for messages; static. */
const char *hd_pre_tokenizer_known(void);

extern const char hd_pattern_gpt2[], hd_pattern_digit[], hd_pattern_digits[];

enum { HD_MAX_PATTERN_BYTES = 16 * 1024 };

/* A pattern as the tokenizers library means it (Oniguruma's Ruby syntax) in PCRE2's syntax, where they differ: \s and \S are Unicode's White_Space. Returns its length, and
 * writes it where out is not NULL; −1 for what would silently mean something else. */
int64_t hd_pattern_translate(heed_text pattern, char *out);

typedef struct hd_splitter {
  heed_allocator allocator;
  const char *name;
  int count;
  pcre2_general_context *memory;
  pcre2_code *code[HD_MAX_PATTERNS];
  const char *pattern[HD_MAX_PATTERNS]; /* as given to hd_splitter_init, borrowed */
  bool drops_rest[HD_MAX_PATTERNS];
} hd_splitter;

/* Compiles and tries each pattern on short probes; `file` is for messages. The splitter must not move afterwards: PCRE2 keeps its address. HEED_E_UNSUPPORTED for a pattern
 * that PCRE2 does not take, or that needs exponential time. */
heed_status hd_splitter_init(heed_context *context, hd_splitter *splitter, const hd_pre_tokenizer *pre_tokenizer, const char *file);
void hd_splitter_free(hd_splitter *splitter);

typedef heed_status (*hd_piece)(void *user, heed_text piece);

typedef struct hd_split_session {
  heed_context *context;
  const hd_splitter *splitter;
  pcre2_general_context *memory;
  pcre2_match_context *limits;
  pcre2_match_data *match;
  int64_t budget; /* match steps left for the difficult matches */
} hd_split_session;

/* For texts of `bytes` bytes in all. */
heed_status hd_split_begin(hd_split_session *session, heed_context *context, const hd_splitter *splitter, size_t bytes);
void hd_split_end(hd_split_session *session);
/* Calls piece for each piece of valid UTF-8 text, in order; pieces are never empty. */
heed_status hd_split(hd_split_session *session, heed_text text, hd_piece piece, void *user);

#endif
