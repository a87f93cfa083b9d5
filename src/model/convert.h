/* convert.h: models of other programs as directories that heed reads. */
#ifndef HD_CONVERT_H
#define HD_CONVERT_H

#include "../io/tensors.h"

/* convert_ctranslate2.c: an open model.bin, with the vocabularies beside it, into an existing directory. */
heed_status hd_convert_ctranslate2(heed_context *context, const hd_tensors *tensors, const char *directory);

#endif
