/* model.h: a loaded model and what it can read: what show, generate, logits and bench have in common. */
#ifndef CLI_MODEL_H
#define CLI_MODEL_H

#include "prompt.h"

#include "heed/model.h"

typedef struct loaded {
  heed_context *context;
  heed_model *model;
  const heed_tokenizer *tokenizer; /* the model's; NULL where it has none */
  heed_model_info info;
  double seconds; /* that loading took */
} loaded;

/* Refuses an encoder–decoder; model_open_any takes it too. model_close also after an error. */
int model_open(const common_values *common, const char *path, loaded *out);
int model_open_any(const common_values *common, const char *path, loaded *out);
void model_close(loaded *m);

/* Whether it turns sentences into others. */
bool model_translates(const loaded *m);
/* Refuses a model that only reads. */
int model_generates(const loaded *m);

/* The place of the largest of `count` logits, the first of equals. */
int64_t likeliest(const float *logits, int64_t count);

/* Refuses a prompt that is empty or, where it is bounded, has more tokens than the model's context. */
int prompt_check(const loaded *m, const prompt *p, bool bounded);
/* A prompt without tokens becomes the tokenizer's begin token, where it has one. */
int prompt_begin(const loaded *m, prompt *p);

#endif
