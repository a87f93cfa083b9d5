/* saved.h: a learner as a model, by way of a directory. */
#ifndef HEED_SAVED_H
#define HEED_SAVED_H

#include "folder.h"

#include "../include/heed/train.h"

static inline heed_model *saved(heed_context *context, const heed_learner *learner) {
  char path[FOLDER_PATH];
  heed_model *model;
  begin_folder(path);
  ok(context, heed_learner_save(learner, NULL, path));
  ok(context, heed_model_load(context, path, &model));
  end_folder(path);
  return model;
}

#endif
