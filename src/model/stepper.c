/* stepper.c: what the steppers of all models have in common. */
#include "stepper.h"

#include "model.h"

heed_status hd_stepper_begin(heed_context *context, const heed_model *model, const hd_stepper_kind *kind, hd_stepper *out) {
  HD_REQUIRE(model->start >= 0, context, HEED_E_UNSUPPORTED, "%s: its files do not say with which token a target begins", model->path);
  *out = (hd_stepper){.kind = kind,
                      .context = context,
                      .name = model->name,
                      .rules = {.start = model->start,
                                .ends = model->ends,
                                .end_count = model->end_count,
                                .never = model->never,
                                .never_count = model->never_count,
                                .forced_first = model->forced_first,
                                .forced_last = model->forced_last}};
  return HEED_OK;
}
