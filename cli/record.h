/* record.h: what show draws and align ranks: the attention weights of chosen layers and heads while a model reads a prompt, or writes a target. */
#ifndef CLI_RECORD_H
#define CLI_RECORD_H

#include "translator.h"

typedef struct recording {
  heed_record record;
  int64_t *layers, *heads;      /* the model's numbers of what was chosen */
  int64_t *windows;             /* [layers] */
  uint8_t *visible;             /* as weights; NULL: no layer has a pattern */
  heed_text *notes;             /* [layers] */
  heed_stage stage;             /* the attention that is kept */
  heed_text *tokens, *source;   /* source: of cross-attention */
  char (*numbers)[ID_TEXT_MAX]; /* the tokens' text where there is no tokenizer */
  float *weights;
  int64_t room;          /* floats at weights */
  bool by_value;         /* of cross-attention: weights times the lengths of the values, rows summing to 1 */
  int64_t head_dim;      /* of those values */
  heed_session *session; /* that targets ran in */
} recording;

/* Runs the prompt and records the chosen layers and heads (lists of the options --layers and --heads; NULL: all). Weights that do not fit into half of
 * the machine's memory are EXIT_NO_MEMORY, with the advice to choose fewer. Free the recording also after a failure. */
int record_run(const loaded *m, const prompt *p, const char *layers, const char *heads, recording *out);
/* What each token of a target was written from: cross-attention between the source and the target, or with target NULL what the model writes. */
int record_cross(const translator *t, const char *source, const char *target, const char *layers, const char *heads, recording *out);
/* The same for many pairs: begin, then each pair, whose weights [layers,heads,tokens of the target,tokens of the source] stand in the record until the next. */
int record_begin(const translator *t, const char *layers, const char *heads, bool by_value, recording *out);
int record_pair(const translator *t, const sequences *sources, const sequences *targets, int64_t number, recording *r);
void record_free(recording *r);

/* Hash of a model's bytes, "fnv1a64:…": of the file, or of all .json and .safetensors files of a directory in the order of their names. It tells whether two
 * pictures came from the same weights; it is not meant to resist forgery. */
enum { HASH_MAX = 32 };
int hash_model(const char *path, char hash[HASH_MAX]);

#endif
