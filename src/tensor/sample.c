/* sample.c: random legal calls of operations, for the tests. Draws come from Philox under the sample's seed, so a printed seed repeats one. */
#include "tensor.h"

#include "../base/philox.h"
#include "../base/storage.h"

int64_t hd_sample_pick(hd_sample *sample, int64_t low, int64_t high) {
  return low + (int64_t)(hd_philox_uniform(sample->seed, 0, sample->draws++) * (double)(high - low + 1));
}

void hd_sample_store(hd_sample *sample, hd_sample_input *in) {
  const int64_t storage = hd_sample_pick(sample, 0, HD_STORAGE_COUNT - 1), block = hd_storage_block((hd_storage)storage);
  in->stored = (int)storage + 1;
  in->dim[1] = hd_ceil_div(in->dim[1], block) * block;
}

void hd_sample_shape(hd_sample *sample, hd_sample_input *in, int64_t most) {
  in->ndim = (int)hd_sample_pick(sample, 1, 3);
  for (int i = 0; i < in->ndim; i++) in->dim[i] = hd_sample_pick(sample, 1, i + 1 < in->ndim ? 5 : most);
}
