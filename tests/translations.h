/* translations.h: what tests of heed_translate have in common. */
#ifndef TEST_TRANSLATIONS_H
#define TEST_TRANSLATIONS_H

#include "test.h"

#include "../include/heed/translate.h"

/* Results of a source in one call and of one in another, which has `length` tokens: the same bits. */
static inline void same_translations(const heed_translations *a, int64_t source, const heed_translations *b, int64_t other,
                                     int64_t length) {
  int64_t count, others;
  const heed_translation *x = heed_translations_of(a, source, &count), *y = heed_translations_of(b, other, &others);
  assert_int_equal(count, others);
  for (int64_t k = 0; k < count; k++) {
    assert_int_equal(x[k].count, y[k].count);
    assert_memory_equal(x[k].ids, y[k].ids, (size_t)x[k].count * sizeof *x[k].ids);
    assert_memory_equal(&x[k].score, &y[k].score, sizeof x[k].score);
    assert_memory_equal(&x[k].log_probability, &y[k].log_probability, sizeof x[k].score);
    assert_memory_equal(x[k].weights, y[k].weights, (size_t)(x[k].count * length) * sizeof *x[k].weights);
  }
}

#endif
