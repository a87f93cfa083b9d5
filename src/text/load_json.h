/* load_json.h: what readers of tokenizers in JSON share: load_json.c reads vocabulary and merges, json_steps.c the steps around them, load_words.c a
 * vocabulary that has only the configuration beside it in JSON. */
#ifndef HD_LOAD_JSON_H
#define HD_LOAD_JSON_H

#include "tokenizer.h"
#include "../io/json.h"

typedef struct hd_json_source {
  heed_context *context;
  const char *file;
  hd_json_place top, model; /* the document, and its "model" */
  hd_token *tokens;         /* [token_count] */
  int64_t token_count;
  const json_t *merges;
  hd_pre_tokenizer pre_tokenizer;
  bool words;        /* the model is a WordPiece */
  bool has_template; /* the file says itself what goes around a text */
} hd_json_source;

/* normalizer, pre_tokenizer, decoder and post_processor → spec->settings and spec->pre_tokenizer. What heed does not know is HEED_E_UNSUPPORTED and named. */
heed_status hd_json_steps(hd_json_source *source, hd_tokenizer_spec *spec);

/* Has the tokenizer_config.json that lies beside a tokenizer's file read, where there is one. */
typedef heed_status (*hd_json_reader)(void *user, const hd_json_place *document);
heed_status hd_tokenizer_config(heed_context *context, const char *file, hd_json_reader read, void *user);

#endif
