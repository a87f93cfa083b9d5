/* export.h: a model as it is written: arrays by name, and a configuration. Nothing is copied; what is put in are views. */
#ifndef HD_EXPORT_H
#define HD_EXPORT_H

#include "../base/base.h"
#include "../io/arrays.h"
#include "../../include/heed/train.h"

#include <jansson.h>

typedef struct hd_export hd_export;
struct hd_export {
  heed_context *context;
  hd_arena arena;
  hd_array *array;
  int64_t count, room;
  json_t *config;     /* config.json, to which the ids of ends are added */
  heed_status status; /* the first error */
};

/* An array under a name, which is copied. `bring` may be NULL: the view has data; otherwise see hd_array. */
void hd_export_put(hd_export *e, const char *name, heed_view view, void (*bring)(heed_context *, const void *, float *));

/* A directory that is there, or is made. */
heed_status hd_export_directory(heed_context *context, const char *directory);

/* Ids that are written into the configuration; below 0: null. */
typedef struct hd_export_ends {
  bool has_start; /* of an encoder–decoder */
  int32_t start, bos, eos, pad;
} hd_export_ends;

/* Writes model.safetensors, config.json and the tokenizers, where there are any, into an existing directory; `target`, that of targets, into target/ in it. */
heed_status hd_export_save(hd_export *e, const hd_export_ends *ends, const heed_tokenizer *tokenizer, const heed_tokenizer *target,
                           const char *directory);
void hd_export_free(hd_export *e);

#endif
