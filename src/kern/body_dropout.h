/* body_dropout.h: what dropout keeps: Philox4x32-10 (base/philox.c) for as many counters at once as a vector has lanes. Of a tile of scores queries are lanes and a draw serves four
 * keys; of an array neighbours are lanes. */

INLINE void v_philox(vi word[4], uint64_t seed) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    vi low0, high0, low2, high2;
    v_mul_wide(word[0], HD_PHILOX_M0, &low0, &high0);
    v_mul_wide(word[2], HD_PHILOX_M1, &low2, &high2);
    word[0] = v_xor(v_xor(high2, word[1]), v_set_u32(k0));
    word[1] = low2;
    word[2] = v_xor(v_xor(high0, word[3]), v_set_u32(k1));
    word[3] = low0;
    k0 += HD_PHILOX_W0;
    k1 += HD_PHILOX_W1;
  }
}

void KERNEL(attn_kept)(const hd_attn_dropout *dropout, uint64_t *kept) {
  const int64_t end = dropout->key + dropout->keys;
  memset(kept, 0, (size_t)dropout->keys * sizeof *kept);
  for (int lane = 0; lane < dropout->lanes; lane += LANES) {
    const vi query = v_load_u32(dropout->query + lane), head = v_load_u32(dropout->head + lane);
    for (int64_t quarter = dropout->key / 4; quarter * 4 < end; quarter++) {
      vi word[4] = {v_set_u32((uint32_t)quarter), query, head, v_set_u32(dropout->stream)};
      v_philox(word, dropout->seed);
      for (int i = 0; i < 4; i++) {
        int64_t key = quarter * 4 + i - dropout->key;
        if (key >= 0 && key < dropout->keys) kept[key] |= v_above(word[i], dropout->last_dropped) << lane;
      }
    }
  }
}
