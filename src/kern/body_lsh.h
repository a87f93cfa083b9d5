/* body_lsh.h: the buckets of rows in LSH attention, and which pairs of rows a round has and no round before it had. */

/* A round had the pair where the query's chunk less the key's is 0 or 1: no more than 1/2 from 1/2. Chunks are integers that f32 holds, so that the test is exact; distances are not below 0, and their
 * order is that of their bits. */
void KERNEL(lsh_pairs)(const hd_lsh_pairs *pairs, uint64_t *visible) {
  const vf half = v_set(0.5f);
  for (int key = 0; key < pairs->keys; key++) {
    uint64_t bits = 0;
    for (int lane = 0; lane < pairs->lanes; lane += LANES) {
      vf nearest = v_set(INFINITY);
      for (int r = 0; r < pairs->rounds; r++) {
        const vf apart = v_sub(v_load(pairs->query_chunk + r * HD_KEY_TILE + lane), v_set(pairs->key_chunk[r * HD_KEY_TILE + key]));
        nearest = v_min(nearest, v_abs(v_sub(apart, half)));
      }
      float store[LANES];
      uint32_t words[LANES];
      v_store(store, nearest);
      memcpy(words, store, sizeof words);
      uint64_t fresh = v_above(v_load_u32(words), 0x3f000000u);
      if (pairs->causal) fresh &= v_above(v_load_u32(pairs->query + lane), pairs->key[key]);
      bits |= fresh << lane;
    }
    visible[key] = bits;
  }
}

void KERNEL(lsh_buckets)(const float *y, int64_t half, float *bucket) {
  const vf zero = v_set(0.0f);
  for (int lane = 0; lane < HD_KEY_TILE; lane += LANES) {
    vf best = zero, at = zero;
    for (int64_t c = 0; c < half; c++) {
      const vf x = v_load(y + c * HD_KEY_TILE + lane), size = v_abs(x);
      const vm larger = v_gt(size, best);
      best = v_select(larger, size, best);
      at = v_select(larger, v_select(v_gt(zero, x), v_set((float)(half + c)), v_set((float)c)), at);
    }
    v_store(bucket + lane, at);
  }
}
