/* convert.c: a model of any kind that heed reads, as a Hugging Face directory: of CTranslate2 by its own reader, of the others through a learner, which is what writes models. */
#include "convert.h"
#include "export.h"

#include "../../include/heed/model.h"
#include "../../include/heed/train.h"

static heed_status convert_model(heed_context *context, const char *path, const char *directory) {
  heed_model *model;
  heed_learner *learner = NULL;
  HD_TRY(heed_model_load(context, path, &model));
  heed_status status = heed_learner_from_model(context, model, NULL, &learner);
  if (status == HEED_OK) status = hd_export_directory(context, directory);
  if (status == HEED_OK) status = heed_learner_save(learner, heed_model_tokenizer(model), directory);
  heed_learner_free(learner);
  heed_model_free(model);
  return status;
}

heed_status heed_convert(heed_context *context, const char *path, const char *directory) {
  hd_tensors *tensors;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(path && directory, context, HEED_E_ARGUMENT, "heed_convert: path or directory is null");
  HD_TRY(hd_tensors_open(context, path, &tensors));
  const bool ctranslate2 = hd_tensors_is_ctranslate2(tensors);
  heed_status status = ctranslate2 ? hd_export_directory(context, directory) : HEED_OK;
  if (ctranslate2 && status == HEED_OK) status = hd_convert_ctranslate2(context, tensors, directory);
  hd_tensors_close(tensors);
  return ctranslate2 || status != HEED_OK ? status : convert_model(context, path, directory);
}
