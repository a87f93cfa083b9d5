/* translator.h: a model that turns sentences into others, with what reads and writes them: what translate, align and eval have in common. */
#ifndef CLI_TRANSLATOR_H
#define CLI_TRANSLATOR_H

#include "examples.h"
#include "model.h"
#include "sentences.h"

#include "heed/translate.h"

typedef struct translator {
  loaded m;
  pair_tokenizers tokenizers;
  heed_translate_info info;
  heed_tokenizer *target; /* its own, where the target has one; NULL: `tokenizers.target` is borrowed */
} translator;

/* The rest of what is needed, of a model that is loaded; the model stays the caller's. */
int translator_of(const loaded *m, const char *path, translator *out);
int translator_open(const common_values *common, const char *path, translator *out);
void translator_close(translator *t); /* with its model */

/* Adds a source. EXIT_BAD_FILE with a reason, nothing printed, where the model cannot read it; other failures have said so. */
int translator_read(const translator *t, heed_text text, sequences *sources, char reason[REASON_LENGTH]);
/* Adds both sides of an example, the target with its end token, where there is one. Messages say where it stands. */
int translator_read_example(const translator *t, const examples *all, const example *e, sequences *sources, sequences *targets);
/* Adds what the model makes of each source, by always the likeliest token. */
int translator_write(const translator *t, const sequences *sources, sequences *targets);
/* What ids of a target say, without special tokens; for free(), with a NUL behind. */
int translator_text(const translator *t, const int32_t *ids, int64_t count, heed_text *out);

/* ---- how to translate ------------------------------------------------------------------------------------------------------------------ */

/* 0, NAN, NULL: not given. */
typedef struct search_values {
  int64_t beam, most, batch;
  double length_penalty;
  const char *early;
} search_values;

#define EARLY_CHOICES   "likely|first|never" /* in the order of heed_early_stopping */
#define SEARCH_DEFAULTS .length_penalty = NAN
#define SEARCH_OPTIONS(field)                                                                                                              \
  OPTION("beam", 0, WHOLE, "N", field.beam, "targets under way in the search (default 1: always the likeliest token)", .low = 1,           \
         .high = 4096),                                                                                                                    \
      OPTION("length-penalty", 0, NUMBER, "X", field.length_penalty, "scores are divided by length to this power (default 1)",             \
             .low = -100, .high = 100),                                                                                                    \
      OPTION("early", 0, CHOICE, NULL, field.early, "when a search stops that has found enough (default likely)",                          \
             .choices = EARLY_CHOICES),                                                                                                    \
      OPTION("max-tokens", 0, WHOLE, "N", field.most, "tokens of a result (default: what the model allows, at most 256)", .low = 1,        \
             .high = 1e6),                                                                                                                 \
      OPTION("batch", 0, WHOLE, "N", field.batch, "sentences under way at once (default: 32 for each thread)", .low = 1, .high = 4096)

/* Refuses what the model does not allow. */
int search_options(const translator *t, const search_values *v, heed_translate_options *out);
/* The first of these options that was given, or NULL. */
const char *search_given(const search_values *v);

#endif
