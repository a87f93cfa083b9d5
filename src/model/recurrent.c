/* recurrent.c: the recurrent encoder–decoder in files: a config.json of model_type "heed" with an object "recurrent", and its weights in the slots that the stepper reads. */
#include "recurrent.h"

#include "../io/json.h"

static const char *const scores[] = {"additive", "dot", "scaled", "bilinear", "none"};
static const char *const outputs[] = {"state", "tanh", "maxout"};

json_t *hd_recurrent_config(const hd_recurrent_spec *s) {
  return json_pack("{ss s{sI sI sI sI sI ss ss} ss}", "model_type", "heed", "recurrent", "width", (json_int_t)s->width, "vocabulary",
                   (json_int_t)s->vocabulary, "source_vocabulary", (json_int_t)s->source_vocabulary, "source", (json_int_t)s->source,
                   "context", (json_int_t)s->context, "score", scores[s->score], "output", outputs[s->output], "torch_dtype", "float32");
}
