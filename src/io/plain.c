/* plain.c: the number types of array files and their way into memory. Files are little-endian unless they say otherwise; so is every
 * machine heed runs on. */
#include "reader.h"

static const hd_plain types[] = {
    {"F32", 'f', 4, HEED_F32}, {"F64", 'f', 8, HEED_F64}, {"F16", 'f', 2, HEED_F16},   {"BF16", 0, 2, HEED_BF16}, {"I64", 'i', 8, HEED_I64},
    {"I32", 'i', 4, HEED_I32}, {"I16", 'i', 2, HEED_I32}, {"I8", 'i', 1, HEED_I32},    {"U64", 'u', 8, HEED_I64}, {"U32", 'u', 4, HEED_I64},
    {"U16", 'u', 2, HEED_I32}, {"U8", 'u', 1, HEED_U8},   {"BOOL", 'b', 1, HEED_BOOL},
};

const hd_plain *hd_plain_by_name(const char *name) {
  for (int64_t i = 0; i < HD_COUNT(types); i++)
    if (strcmp(types[i].name, name) == 0) return &types[i];
  return NULL;
}

const hd_plain *hd_plain_by_kind(char kind, int64_t bytes) {
  for (int64_t i = 0; i < HD_COUNT(types); i++)
    if (types[i].kind == kind && types[i].bytes == bytes) return &types[i];
  return NULL;
}

/* The file's bytes of one element as an unsigned number. */
static uint64_t raw_bits(const unsigned char *at, int bytes, bool big_endian) {
  uint64_t bits = 0;
  for (int i = 0; i < bytes; i++) bits |= (uint64_t)at[big_endian ? bytes - 1 - i : i] << (8 * i);
  return bits;
}

heed_status hd_plain_widen(heed_context *context, const char *file, const hd_plain *plain, bool big_endian, int64_t count, void *array) {
  const int wide = (int)heed_type_bytes(plain->type);
  const unsigned char *raw = (unsigned char *)array + count * (wide - plain->bytes);
  if (plain->type == HEED_BOOL) {
    for (int64_t i = 0; i < count; i++)
      HD_REQUIRE(raw[i] <= 1, context, HEED_E_FORMAT, "%s: a boolean that is neither 0 nor 1 (element %lld, got %d)", file, (long long)i,
                 raw[i]);
    return HEED_OK;
  }
  const bool may_overflow = plain->kind == 'u' && plain->bytes == 8;
  if (wide == plain->bytes && !big_endian && !may_overflow) return HEED_OK;
  for (int64_t i = 0; i < count; i++) {
    // Element i is read before its place is written, and element i + 1 begins at or behind the end of that place.
    uint64_t bits = raw_bits(raw + i * plain->bytes, plain->bytes, big_endian);
    HD_REQUIRE(!may_overflow || bits <= INT64_MAX, context, HEED_E_UNSUPPORTED,
               "%s: an unsigned 64-bit number beyond the signed range (element %lld, got %llu, allowed %lld)", file, (long long)i,
               (unsigned long long)bits, (long long)INT64_MAX);
    int unused = 64 - 8 * plain->bytes;
    if (plain->kind == 'i') bits = (uint64_t)((int64_t)(bits << unused) >> unused);
    memcpy((unsigned char *)array + i * wide, &bits, (size_t)wide);
  }
  return HEED_OK;
}
