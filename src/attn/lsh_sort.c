/* lsh_sort.c: rows of LSH attention hashed, sorted by bucket and position and cut into chunks, and which pairs of two chunks a round has. */
#include "lsh.h"

#include "../base/philox.h"

#include <math.h>

/* ---- hashes ----------------------------------------------------------------------------------------------------------------------- */

double hd_lsh_rotation(const hd_lsh *p, int64_t round, int which, int64_t row, int64_t column) {
  const uint32_t counter[4] = {(uint32_t)column, (uint32_t)row, (uint32_t)round * 2 + (uint32_t)which, p->a.stream};
  uint32_t words[4];
  hd_philox(counter, p->a.seed, words);
  return hd_philox_normal(words);
}

static void draw_rotations(const hd_lsh *p, hd_lsh_group *group) {
  const int64_t floats = p->d * (group->columns[0] + group->columns[1]);
  memset(group->rotations, 0, (size_t)(p->rounds * floats) * sizeof *group->rotations);
  for (int64_t round = 0; round < p->rounds; round++)
    for (int which = 0; which < 2; which++) {
      float *to = group->rotations + round * floats + which * p->d * group->columns[0];
      for (int64_t row = 0; row < p->d; row++)
        for (int64_t c = 0; c < p->buckets[which] / 2; c++)
          to[row * group->columns[which] + c] = (float)hd_lsh_rotation(p, round, which, row, c);
    }
}

/* Buckets of 64 rows x [d][64] in one round; y [columns][64]. Rows stay in lanes, so that the largest of many is found for all at once. */
static void find_buckets(const hd_lsh *p, const hd_lsh_group *group, int64_t round, const float *x, float *y, float bucket[HD_LSH_CHUNK]) {
  const float *w = group->rotations + round * p->d * (group->columns[0] + group->columns[1]);
  float found[HD_LSH_CHUNK];
  for (int which = 0; which < 2 && p->buckets[which] > 1; which++, w += p->d * group->columns[0]) {
    const int64_t half = p->buckets[which] / 2;
    const hd_rows_product product = {.rows = half,
                                     .columns = HD_LSH_CHUNK,
                                     .inputs = p->d,
                                     .x = w,
                                     .x_row = 1,
                                     .x_input = group->columns[which],
                                     .w = x,
                                     .w_stride = HD_LSH_CHUNK,
                                     .y = y,
                                     .y_stride = HD_LSH_CHUNK};
    p->kernels->multiply_rows(&product);
    p->kernels->lsh_buckets(y, half, found);
    for (int i = 0; i < HD_LSH_CHUNK; i++) bucket[i] = which ? bucket[i] + (float)p->buckets[0] * found[i] : found[i];
  }
}

struct hashing {
  float *memory; /* [workers] of [64][d], [d][64], [columns][64] */
  int64_t floats;
};

static int64_t scratch_floats(const hd_lsh *p, const hd_lsh_group *group) {
  return HD_LSH_CHUNK * (2 * hd_padded(p->d) + HD_MAX(group->columns[0], group->columns[1]));
}

static void hash_rows(const hd_lsh_run *run) {
  const hd_lsh *p = run->p;
  const hd_lsh_group *group = run->group;
  const struct hashing *job = run->job;
  const int64_t at = run->head * p->rows + run->begin, batch = (group->first + run->head) / p->heads,
                head = (group->first + run->head) % p->heads, count = run->end - run->begin;
  float *x = job->memory + run->worker * job->floats, *turned = x + HD_LSH_CHUNK * hd_padded(p->d),
        *y = turned + HD_LSH_CHUNK * hd_padded(p->d), *to = group->chunk + at * p->rounds, bucket[HD_LSH_CHUNK];
  const float *rows[HD_LSH_CHUNK];
  for (int64_t i = 0; i < count; i++) {
    float *row = x + i * p->d, square;
    hd_to_floats(p->kernels, hd_grid_row(&p->qk, batch, head, run->begin + i), p->qk.type, p->qk.column_stride, p->d, row);
    p->kernels->compare(row, row, 1, p->d, p->d, &square);
    group->inverse[at + i] = 1.0f / sqrtf(square + (float)hd_lsh_epsilon(p));
    rows[i] = row;
  }
  p->kernels->to_lanes(rows, (int)count, p->d, 1.0f, turned, HD_LSH_CHUNK);
  for (int64_t round = 0; round < p->rounds; round++) {
    if (p->hashes.size) {
      const char *from = hd_grid_row(&p->hashes, batch, head, round);
      for (int64_t i = 0; i < count; i++)
        bucket[i] = (float)*(const int32_t *)(from + (run->begin + i) * p->hashes.column_stride * p->hashes.size);
    } else {
      find_buckets(p, group, round, turned, y, bucket);
    }
    for (int64_t i = 0; i < count; i++) to[i * p->rounds + round] = bucket[i];
  }
}

/* ---- sorting ------------------------------------------------------------------------------------------------------------------------ */

struct sorting {
  const hd_lsh *p;
  const hd_lsh_group *group;
  int64_t *starts; /* [workers][buckets] */
};

/* By counting: rows of a bucket keep their order. */
static void sort_head(void *argument, int64_t head, int worker) {
  const struct sorting *job = argument;
  const hd_lsh *p = job->p;
  const int64_t buckets = p->buckets[0] * p->buckets[1], length = hd_lsh_length(p, (job->group->first + head) / p->heads);
  int64_t *start = job->starts + worker * buckets;
  for (int64_t round = 0; round < p->rounds; round++) {
    float *chunk = job->group->chunk + head * p->rows * p->rounds + round;
    int32_t *order = job->group->order + (head * p->rounds + round) * p->rows;
    memset(start, 0, (size_t)buckets * sizeof *start);
    for (int64_t i = 0; i < length; i++) start[(int64_t)chunk[i * p->rounds]]++;
    for (int64_t b = 0, before = 0, count; b < buckets; b++, before += count) count = start[b], start[b] = before;
    for (int64_t i = 0; i < length; i++) {
      const int64_t place = start[(int64_t)chunk[i * p->rounds]]++;
      order[place] = (int32_t)i;
      chunk[i * p->rounds] = (float)(place / HD_LSH_CHUNK);
    }
  }
}

/* ---- groups ------------------------------------------------------------------------------------------------------------------------- */

heed_status hd_lsh_group_new(const hd_lsh *p, hd_lsh_group *group) {
  const int64_t heads = p->batch * p->heads;
  *group = (hd_lsh_group){.most = HD_MAX(1, HD_MIN(heads, HD_LSH_ROWS / HD_MAX(1, p->rows)))};
  for (int which = 0; which < 2; which++) group->columns[which] = p->buckets[which] > 1 ? hd_padded(p->buckets[which] / 2) : 0;
  float *order;
  int64_t tables = 0, rotations = 0, again = 0;
  const bool fits =
      hd_mul(p->rows * group->most, p->rounds, &tables) && hd_mul(p->d * (group->columns[0] + group->columns[1]), p->rounds, &rotations);
  const hd_part parts[] = {
      {&order, 1, tables}, {&group->chunk, 1, tables}, {&group->inverse, group->most, p->rows}, {&group->rotations, 1, rotations}};
  HD_REQUIRE(fits && hd_cut(NULL, parts, HD_COUNT(parts), &group->floats), p->context, HEED_E_OVERFLOW,
             "%lld rows in %lld rounds are too many", (long long)p->rows, (long long)p->rounds);
  HD_TRY(hd_allocate(p->context, "rounds of LSH attention", group->floats, sizeof *group->memory, &group->memory));
  hd_cut(group->memory, parts, HD_COUNT(parts), &again);
  group->order = (int32_t *)order;
  if (!p->hashes.size) draw_rotations(p, group);
  return HEED_OK;
}

void hd_lsh_group_free(const hd_lsh *p, hd_lsh_group *group) {
  hd_release(p->context, group->memory, group->memory ? group->floats : 0, sizeof *group->memory);
}

heed_status hd_lsh_group_fill(const hd_lsh *p, hd_lsh_group *group, int64_t first) {
  heed_context *context = p->context;
  heed_status status = HEED_OK;
  group->first = first;
  group->heads = HD_MIN(group->most, p->batch * p->heads - first);
  const int64_t workers = hd_lsh_workers(p, group), buckets = p->buckets[0] * p->buckets[1];
  struct hashing hashing = {.floats = scratch_floats(p, group)};
  struct sorting sorting = {.p = p, .group = group};
  HD_TRY_DONE(hd_allocate(context, "LSH hashes", hashing.floats * workers, sizeof *hashing.memory, &hashing.memory));
  HD_TRY_DONE(hd_allocate(context, "LSH buckets", buckets * workers, sizeof *sorting.starts, &sorting.starts));
  hd_lsh_rows(p, group, &hashing, hash_rows);
  hd_parallel(context, group->heads, sort_head, &sorting);
done:
  hd_release(context, hashing.memory, hashing.memory ? hashing.floats * workers : 0, sizeof *hashing.memory);
  hd_release(context, sorting.starts, sorting.starts ? buckets * workers : 0, sizeof *sorting.starts);
  return status;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------------------- */

bool hd_lsh_chunk_cut(const hd_lsh *p, hd_lsh_chunk *chunk, float *memory, int64_t *floats) {
  const hd_part parts[] = {
      {&chunk->earlier, p->rounds, HD_LSH_CHUNK}, {&chunk->keys, HD_LSH_CHUNK, p->d}, {&chunk->values, HD_LSH_CHUNK, p->dv}};
  return hd_cut(memory, parts, HD_COUNT(parts), floats);
}

int64_t hd_lsh_chunks(const hd_lsh *p, int64_t batch) { return hd_ceil_div(hd_lsh_length(p, batch), HD_LSH_CHUNK); }

void hd_lsh_chunk_load(const hd_lsh_run *run, int64_t index, float *scratch, hd_lsh_chunk *chunk) {
  const hd_lsh *p = run->p;
  const hd_kernels *kernels = p->kernels;
  const int64_t head = run->group->first + run->head, first = index * HD_LSH_CHUNK;
  const int32_t *order = run->group->order + (run->head * p->rounds + run->round) * p->rows + first;
  const float *rows[HD_MAX_LANES], *chunks = run->group->chunk + run->head * p->rows * p->rounds,
                                   *inverse = run->group->inverse + run->head * p->rows;
  hd_lanes *lanes = &chunk->rows;
  lanes->batch = head / p->heads;
  lanes->heads = 1;
  lanes->count = (int)HD_MIN(HD_LSH_CHUNK, hd_lsh_length(p, lanes->batch) - first);
  for (int i = 0; i < HD_LSH_CHUNK; i++) {
    const int64_t row = i < lanes->count ? order[i] : 0;
    lanes->head[i] = head % p->heads;
    lanes->row[i] = row;
    chunk->position[i] = (uint32_t)row;
    for (int64_t round = 0; round < run->round; round++) chunk->earlier[round * HD_LSH_CHUNK + i] = chunks[row * p->rounds + round];
  }
  hd_lane_rows(kernels, &p->qk, lanes, 0, p->d, scratch, rows);
  for (int i = 0; i < lanes->count; i++) kernels->scale(rows[i], inverse[lanes->row[i]], p->d, false, chunk->keys + i * p->d);
  hd_lane_rows(kernels, &p->v, lanes, 0, p->dv, chunk->values, rows);
  for (int i = 0; i < lanes->count; i++)
    if (rows[i] != chunk->values + i * p->dv) memcpy(chunk->values + i * p->dv, rows[i], (size_t)p->dv * sizeof(float));
}

void hd_lsh_chunk_lanes(const hd_lsh *p, const hd_lsh_chunk *chunk, int from, hd_lanes *lanes) {
  lanes->batch = chunk->rows.batch;
  lanes->heads = 1;
  lanes->count = HD_MIN(p->kernels->tile_lanes, chunk->rows.count - from);
  memcpy(lanes->head, chunk->rows.head + from, (size_t)lanes->count * sizeof *lanes->head);
  memcpy(lanes->row, chunk->rows.row + from, (size_t)lanes->count * sizeof *lanes->row);
}

int hd_lsh_padded(const hd_lsh *p, const hd_lanes *lanes) {
  return (int)hd_ceil_div(lanes->count, p->kernels->vector) * p->kernels->vector;
}

int hd_lsh_blocks(const hd_lsh *p, const hd_lanes *lanes, hd_attn_block *blocks) {
  const hd_kernels *kernels = p->kernels;
  int count = 0;
  for (int shift = 0; shift < lanes->count; shift += kernels->block_lanes, count++)
    blocks[count] = hd_attn_block_of(kernels, p->d, p->dv, shift, HD_MIN(lanes->count - shift, kernels->block_lanes));
  return count;
}

hd_cover hd_lsh_visible(const hd_lsh_run *run, const hd_lsh_chunk *queries, int from, int count, const hd_lsh_chunk *keys,
                        uint64_t visible[HD_KEY_TILE]) {
  const hd_lsh *p = run->p;
  if (queries != keys && !p->a.causal && run->round == 0) return HD_FULL;
  const hd_lsh_pairs pairs = {.lanes = queries->rows.count,
                              .keys = keys->rows.count,
                              .rounds = (int)run->round,
                              .causal = p->a.causal,
                              .query = queries->position,
                              .key = keys->position,
                              .query_chunk = queries->earlier,
                              .key_chunk = keys->earlier};
  const uint64_t used = ~(uint64_t)0 >> (64 - count);
  uint64_t any = 0, all = used;
  p->kernels->lsh_pairs(&pairs, visible);
  for (int key = 0; key < keys->rows.count; key++) {
    if (queries == keys) visible[key] &= ~((uint64_t)1 << key);
    visible[key] = visible[key] >> from & used;
    any |= visible[key];
    all &= visible[key];
  }
  return !any ? HD_EMPTY : all == used ? HD_FULL : HD_PARTIAL;
}

/* ---- the public call ------------------------------------------------------------------------------------------------------------------ */

heed_status heed_lsh_hash(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *hashes) {
  if (!context) return HEED_E_ARGUMENT;
  hd_lsh p;
  hd_grid out;
  hd_lsh_group group;
  HD_TRY(hd_lsh_make(context, a, qk, NULL, &p));
  HD_TRY(hd_lsh_storable(&p));
  HD_REQUIRE(!p.a.hashes, context, HEED_E_ARGUMENT, "hashes are given, though they are asked for");
  HD_TRY(hd_grid_make(context, hashes, "hashes", &out));
  HD_REQUIRE(hashes->type == HEED_I32, context, HEED_E_TYPE, "hashes is %s, allowed i32", heed_type_name(hashes->type));
  HD_TRY(hd_grid_expect(context, &out, hashes, "hashes", &p.qk, p.heads, p.rounds, p.rows));
  HD_TRY(hd_outputs_apart(context, &(hd_named_view){hashes, "hashes"}, &(hd_named_view){qk, "qk"}, 1));
  HD_TRY(hd_lsh_group_new(&p, &group));
  heed_status status = HEED_OK;
  struct hashing job = {.floats = scratch_floats(&p, &group)};
  const int64_t workers = hd_lsh_workers(&p, &group);
  HD_TRY_DONE(hd_allocate(context, "LSH hashes", job.floats * workers, sizeof *job.memory, &job.memory));
  for (group.first = 0; group.first < p.batch * p.heads; group.first += group.heads) {
    group.heads = HD_MIN(group.most, p.batch * p.heads - group.first);
    hd_lsh_rows(&p, &group, &job, hash_rows);
    for (int64_t i = 0; i < group.heads * p.rounds; i++) {
      const int64_t head = group.first + i / p.rounds, round = i % p.rounds;
      const float *bucket = group.chunk + i / p.rounds * p.rows * p.rounds + round;
      char *to = hd_grid_row(&out, head / p.heads, head % p.heads, round);
      for (int64_t row = 0; row < p.rows; row++) *(int32_t *)(to + row * out.column_stride * out.size) = (int32_t)bucket[row * p.rounds];
    }
  }
done:
  hd_release(context, job.memory, job.memory ? job.floats * workers : 0, sizeof *job.memory);
  hd_lsh_group_free(&p, &group);
  return status;
}
