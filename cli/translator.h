/* translator.h: a model that turns sentences into others, with what reads and writes them: what translate, align and eval have in common. */
#ifndef CLI_TRANSLATOR_H
#define CLI_TRANSLATOR_H

#include "model.h"
#include "pair_rows.h"

#include "heed/translate.h"

typedef struct translator {
  loaded m;
  pair_tokenizers tokenizers;
  heed_translate_info info;
  heed_tokenizer *target; /* its own, where the target has one; NULL: `tokenizers.target` is borrowed */
} translator;

/* Whether the model turns sentences into others at all. */
bool model_translates(const loaded *m);
/* The rest of what is needed, of a model that is loaded; the model stays the caller's. */
int translator_of(const loaded *m, const char *path, translator *out);
int translator_open(const common_values *common, const char *path, translator *out);
void translator_close(translator *t); /* with its model */

/* Sequences that grow, as heed_translate takes them. Zero is empty. */
typedef struct sequences {
  int32_t *ids;
  int64_t *begin; /* [count + 1] */
  int64_t count, room, begin_room;
} sequences;
void sequences_add(sequences *all, const int32_t *ids, int64_t count);
heed_sources sequences_view(const sequences *all);
void sequences_clear(sequences *all);
void sequences_free(sequences *all);

/* Adds a source. EXIT_BAD_FILE with a reason, nothing printed, where the model cannot read it; other failures have said so. */
int translator_read(const translator *t, heed_text text, sequences *sources, char reason[REASON_LENGTH]);
/* Adds a target that is given, with its end token; the same way. */
int translator_read_target(const translator *t, heed_text text, sequences *targets, char reason[REASON_LENGTH]);
/* What ids of a target say, without special tokens; for free(), with a NUL behind. */
int translator_text(const translator *t, const int32_t *ids, int64_t count, heed_text *out);

/* ---- how to translate ------------------------------------------------------------------------------------------------------------------ */

typedef struct search_values {
  int64_t beam, most, batch;
  double length_penalty; /* NAN: 1 */
  const char *early;
} search_values;

#define SEARCH_DEFAULTS .beam = 1, .length_penalty = NAN, .early = "likely"
#define SEARCH_OPTIONS(field)                                                                                                              \
  OPTION("beam", 0, WHOLE, "N", field.beam, "targets under way in the search (default 1: always the likeliest token)", .low = 1,           \
         .high = 4096),                                                                                                                    \
      OPTION("length-penalty", 0, NUMBER, "X", field.length_penalty, "scores are divided by length to this power (default 1)",             \
             .low = -100, .high = 100),                                                                                                    \
      OPTION("early", 0, CHOICE, NULL, field.early, "when a search stops that has found enough", .choices = "likely|first|never"),         \
      OPTION("max-tokens", 0, WHOLE, "N", field.most, "tokens of a result (default: what the model allows, at most 256)", .low = 1,        \
             .high = 1e6),                                                                                                                 \
      OPTION("batch", 0, WHOLE, "N", field.batch, "sentences under way at once (default 32)", .low = 1, .high = 4096)

/* Refuses what the model does not allow. */
int search_options(const translator *t, const search_values *v, heed_translate_options *out);

#endif
