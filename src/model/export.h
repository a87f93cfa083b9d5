/* export.h: a learner as it is written: arrays by name, and a configuration. Nothing is copied; what bodies put in are views. */
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

/* Writes model.safetensors. */
heed_status hd_export_weights(hd_export *e, const char *directory);

#endif
