/* quant.h: what the quantised storage types have in common: a value is scale · code + minimum, rounded once.
 *
 * scale and minimum belong to a group of 16 or 32 values. They are the block's own half-precision numbers, or (K types) products of those with small integers of the group,
 * which are exact in f32, as scale · code is; so one fused multiply-add gives what the format defines. dequantise.c knows how files lay blocks out, body_quant.h how panels do. */
#ifndef HD_QUANT_H
#define HD_QUANT_H

#include "../base/base.h"
#include "../base/storage.h"

typedef struct hd_quant {
  int bits;     /* of a code: 2 to 6 unsigned, 8 signed; 0: not a quantised type */
  int group;    /* values that share scale and minimum: 16 or 32 */
  int offset;   /* the code that means 0, where no minimum is stored: the minimum is −offset · scale */
  bool integer; /* a group has integers of its own: scale = d · scale_i, minimum = m · minimum_i */
  bool minimum; /* a minimum is stored */
  bool lookup;  /* codes are places in hd_iq4_values */
} hd_quant;

static const hd_quant hd_quants[HD_STORAGE_COUNT] = {
    [HD_Q4_0] = {.bits = 4, .group = 32, .offset = 8},
    [HD_Q4_1] = {.bits = 4, .group = 32, .minimum = true},
    [HD_Q5_0] = {.bits = 5, .group = 32, .offset = 16},
    [HD_Q5_1] = {.bits = 5, .group = 32, .minimum = true},
    [HD_Q8_0] = {.bits = 8, .group = 32},
    [HD_Q2_K] = {.bits = 2, .group = 16, .integer = true, .minimum = true},
    [HD_Q3_K] = {.bits = 3, .group = 16, .integer = true, .offset = 4},
    [HD_Q4_K] = {.bits = 4, .group = 32, .integer = true, .minimum = true},
    [HD_Q5_K] = {.bits = 5, .group = 32, .integer = true, .minimum = true},
    [HD_Q6_K] = {.bits = 6, .group = 16, .integer = true, .offset = 32},
    [HD_IQ4_NL] = {.bits = 4, .group = 32, .lookup = true},
};

/* The non-linear 4-bit code of GGUF's IQ4 types. */
static const float hd_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* One block of a file taken apart: codes in order, the block's half-precision scale and minimum, the groups' integers.
 * The K types subtract their minima: here the integers are negative, so that the formula adds. */
enum { HD_QUANT_BLOCK = 256 };
typedef struct hd_quant_block {
  uint16_t d, m;
  int8_t scale[HD_QUANT_BLOCK / 16], minimum[HD_QUANT_BLOCK / 16];
  uint8_t code[HD_QUANT_BLOCK];
} hd_quant_block;

/* storage is a quantised type; block has hd_storage_bytes(storage) bytes. */
void hd_quant_read(hd_storage storage, const void *block, hd_quant_block *out);

#endif
