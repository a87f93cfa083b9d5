/* storage.h: how the weights of a file are stored: plain numbers or blocks of quantised ones. One table; readers take sizes from it and kernels take meaning from
 * their own. The layouts are those of GGUF (ggml-quants); the numbers are GGUF's type numbers. */
#ifndef HD_STORAGE_H
#define HD_STORAGE_H

#include "base.h"

/* X(name, GGUF number, elements a block, bytes a block). One line expands to HD_<name> and to a row of the table. These are the types whose values heed can read. */
#define HD_STORAGE_LIST(X)                                                                                                                 \
  X(F32, 0, 1, 4)                                                                                                                          \
  X(F16, 1, 1, 2)                                                                                                                          \
  X(BF16, 30, 1, 2)                                                                                                                        \
  X(F64, 28, 1, 8)                                                                                                                         \
  X(Q4_0, 2, 32, 18)                                                                                                                       \
  X(Q4_1, 3, 32, 20)                                                                                                                       \
  X(Q5_0, 6, 32, 22)                                                                                                                       \
  X(Q5_1, 7, 32, 24)                                                                                                                       \
  X(Q8_0, 8, 32, 34)                                                                                                                       \
  X(Q2_K, 10, 256, 84)                                                                                                                     \
  X(Q3_K, 11, 256, 110)                                                                                                                    \
  X(Q4_K, 12, 256, 144)                                                                                                                    \
  X(Q5_K, 13, 256, 176)                                                                                                                    \
  X(Q6_K, 14, 256, 210)                                                                                                                    \
  X(IQ4_NL, 20, 32, 18)

typedef enum hd_storage {
#define HD_STORAGE_ENUM(name, number, elements, bytes) HD_##name,
  HD_STORAGE_LIST(HD_STORAGE_ENUM)
#undef HD_STORAGE_ENUM
      HD_STORAGE_COUNT
} hd_storage;

const char *hd_storage_name(hd_storage type);
int64_t hd_storage_block(hd_storage type); /* elements a block */
int64_t hd_storage_bytes(hd_storage type); /* bytes a block */
/* HD_STORAGE_COUNT for a GGUF number whose values heed cannot read. */
hd_storage hd_storage_from_gguf(uint32_t number);
/* HD_STORAGE_COUNT for a name that is none of the list. */
hd_storage hd_storage_from_name(const char *name);
/* "F32, F16, ..." for messages; static. */
const char *hd_storage_known(void);

#endif
