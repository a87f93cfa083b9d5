/* dequantise.c: the meaning of every storage type: how a file lays out a block, and the f32 values of its numbers.
 *
 * Each quantised type has one reader that takes a block apart into codes, scales and minima (hd_quant_block); from there all types are one formula (quant.h). Packing for
 * the kernels starts from the same readers. */
#include "quant.h"

#include "matrix.h"

#include <math.h>

static uint16_t u16_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

/* Codes j and j + half share a byte: the low and the high nibble. */
static void split_nibbles(const uint8_t *bytes, int half, uint8_t *code) {
  for (int j = 0; j < half; j++) {
    code[j] = bytes[j] & 15;
    code[j + half] = bytes[j] >> 4;
  }
}

/* Bit j of the mask is bit 4 of code j. */
static void add_fifth_bits(const uint8_t *mask, uint8_t *code) {
  for (int j = 0; j < 32; j++) code[j] |= (uint8_t)((mask[j / 8] >> j % 8 & 1) << 4);
}

static void read_q4_0(const uint8_t *p, hd_quant_block *out) {
  out->d = u16_at(p);
  split_nibbles(p + 2, 16, out->code);
}

static void read_q4_1(const uint8_t *p, hd_quant_block *out) {
  out->d = u16_at(p);
  out->m = u16_at(p + 2);
  split_nibbles(p + 4, 16, out->code);
}

static void read_q5_0(const uint8_t *p, hd_quant_block *out) {
  out->d = u16_at(p);
  split_nibbles(p + 6, 16, out->code);
  add_fifth_bits(p + 2, out->code);
}

static void read_q5_1(const uint8_t *p, hd_quant_block *out) {
  out->d = u16_at(p);
  out->m = u16_at(p + 2);
  split_nibbles(p + 8, 16, out->code);
  add_fifth_bits(p + 4, out->code);
}

static void read_q8_0(const uint8_t *p, hd_quant_block *out) {
  out->d = u16_at(p);
  memcpy(out->code, p + 2, 32);
}

/* 256 codes of two bits: each run of 128 codes is 32 bytes, code 32 j + l in bits 2 j of byte l. */
static void split_pairs(const uint8_t *bytes, uint8_t *code) {
  for (int i = 0; i < 256; i++) code[i] = bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void read_q2_k(const uint8_t *p, hd_quant_block *out) {
  for (int g = 0; g < 16; g++) {
    out->scale[g] = p[g] & 15;
    out->minimum[g] = (int8_t) - (p[g] >> 4);
  }
  split_pairs(p + 16, out->code);
  out->d = u16_at(p + 80);
  out->m = u16_at(p + 82);
}

/* Third bits: bit j of mask byte l belongs to code 32 j + l. Scales: sixteen of six bits, the low four in nibbles, the high two packed four a byte. */
static void read_q3_k(const uint8_t *p, hd_quant_block *out) {
  const uint8_t *mask = p, *scales = p + 96;
  split_pairs(p + 32, out->code);
  for (int i = 0; i < 256; i++) out->code[i] |= (uint8_t)((mask[i % 32] >> i / 32 & 1) << 2);
  for (int g = 0; g < 16; g++) {
    int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4, high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
    out->scale[g] = (int8_t)((low | high << 4) - 32);
  }
  out->d = u16_at(p + 108);
}

/* Eight scales and eight minima of six bits in twelve bytes: the first four of each whole, the others' high bits in the spare bits of the first. */
static void split_scales(const uint8_t *s, hd_quant_block *out) {
  for (int g = 0; g < 4; g++) {
    out->scale[g] = s[g] & 63;
    out->minimum[g] = (int8_t) - (s[g + 4] & 63);
    out->scale[g + 4] = (int8_t)((s[g + 8] & 15) | s[g] >> 6 << 4);
    out->minimum[g + 4] = (int8_t) - (s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
  }
}

static void read_q4_k(const uint8_t *p, hd_quant_block *out) {
  out->d = u16_at(p);
  out->m = u16_at(p + 2);
  split_scales(p + 4, out);
  for (int run = 0; run < 4; run++) split_nibbles(p + 16 + 32 * run, 32, out->code + 64 * run);
}

/* Fifth bits: bit j of mask byte l belongs to code 32 j + l. */
static void read_q5_k(const uint8_t *p, hd_quant_block *out) {
  const uint8_t *mask = p + 16;
  out->d = u16_at(p);
  out->m = u16_at(p + 2);
  split_scales(p + 4, out);
  for (int run = 0; run < 4; run++) split_nibbles(p + 48 + 32 * run, 32, out->code + 64 * run);
  for (int i = 0; i < 256; i++) out->code[i] |= (uint8_t)((mask[i % 32] >> i / 32 & 1) << 4);
}

static void read_q6_k(const uint8_t *p, hd_quant_block *out) {
  for (int run = 0; run < 2; run++) {
    const uint8_t *low = p + 64 * run, *high = p + 128 + 32 * run;
    uint8_t *code = out->code + 128 * run;
    split_nibbles(low, 64, code);
    for (int i = 0; i < 128; i++) code[i] |= (uint8_t)((high[i % 32] >> (i / 32 * 2) & 3) << 4);
  }
  memcpy(out->scale, p + 192, 16);
  out->d = u16_at(p + 208);
}

static void (*const readers[HD_STORAGE_COUNT])(const uint8_t *, hd_quant_block *) = {
    [HD_Q4_0] = read_q4_0, [HD_Q4_1] = read_q4_1, [HD_Q5_0] = read_q5_0,   [HD_Q5_1] = read_q5_1,
    [HD_Q8_0] = read_q8_0, [HD_Q2_K] = read_q2_k, [HD_Q3_K] = read_q3_k,   [HD_Q4_K] = read_q4_k,
    [HD_Q5_K] = read_q5_k, [HD_Q6_K] = read_q6_k, [HD_IQ4_NL] = read_q4_0,
};

void hd_quant_read(hd_storage storage, const void *block, hd_quant_block *out) { readers[storage](block, out); }

/* body_quant.h computes the same operations in the same order. */
static void block_values(hd_storage storage, const hd_quant_block *block, float *out) {
  const hd_quant *q = &hd_quants[storage];
  float d = hd_f16_to_f32(block->d), m = hd_f16_to_f32(block->m);
  for (int g = 0; g < hd_storage_block(storage) / q->group; g++) {
    float scale = q->integer ? d * block->scale[g] : d;
    float minimum = !q->minimum ? scale * (float)-q->offset : q->integer ? m * block->minimum[g] : m;
    for (int i = g * q->group; i < (g + 1) * q->group; i++) {
      float code = q->lookup ? hd_iq4_values[block->code[i]] : q->bits == 8 ? (int8_t)block->code[i] : block->code[i];
      out[i] = fmaf(scale, code, minimum);
    }
  }
}

/* The plain types, element by element: a file's bytes need not be aligned. */
static void plain_values(hd_storage storage, const uint8_t *p, int64_t n, float *out) {
  switch (storage) {
  case HD_F32: memcpy(out, p, (size_t)n * sizeof *out); break;
  case HD_F16:
    for (int64_t i = 0; i < n; i++) out[i] = hd_f16_to_f32(u16_at(p + 2 * i));
    break;
  case HD_BF16:
    for (int64_t i = 0; i < n; i++) out[i] = hd_bf16_to_f32(u16_at(p + 2 * i));
    break;
  case HD_F64:
    for (int64_t i = 0; i < n; i++) {
      double value;
      memcpy(&value, p + 8 * i, sizeof value);
      out[i] = (float)value;
    }
    break;
  default: break;
  }
}

void hd_dequantise(hd_storage storage, const void *blocks, int64_t n, float *out) {
  if (!hd_quants[storage].bits) {
    plain_values(storage, blocks, n, out);
    return;
  }
  const uint8_t *p = blocks;
  for (int64_t i = 0; i < n; i += hd_storage_block(storage), p += hd_storage_bytes(storage)) {
    hd_quant_block block = {0};
    hd_quant_read(storage, p, &block);
    block_values(storage, &block, out + i);
  }
}
