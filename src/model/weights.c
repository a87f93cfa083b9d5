/* weights.c: the tensors of a file into the slots of a model: names from the family's table, shapes from the spec, each matrix packed once in its own storage type.
 *
 * A file is read one stack at a time into a buffer that is given back at once, so loading needs little more than the packed weights. */
#include "model.h"

typedef struct loader {
  const hd_config *config;
  heed_context *context;
  heed_model *whole;   /* has the arena, and counts */
  heed_model *model;   /* the stack of layers being filled: the whole, or its encoder */
  int64_t done, total; /* stacks, for progress */
} loader;

static heed_status find(const loader *in, hd_slot slot, int64_t layer, const char *suffix, int ndim, const int64_t *dim,
                        const hd_tensor **out) {
  char buffer[HD_TENSOR_NAME_LENGTH];
  const char *name = hd_tensor_name(in->config, slot, layer, suffix, buffer);
  return hd_tensors_weight(in->context, in->config->tensors, name, ndim, dim, out);
}

static bool has(const loader *in, hd_slot slot, int64_t layer, const char *suffix) {
  char buffer[HD_TENSOR_NAME_LENGTH];
  return in->config->spelling->tensors[slot] &&
         hd_tensors_find(in->config->tensors, hd_tensor_name(in->config, slot, layer, suffix, buffer));
}

/* ---- vectors: always f32 in memory ---------------------------------------------------------------------------------------- */

static heed_status read_floats(loader *in, const hd_tensor *tensor, float *out) {
  void *bytes = NULL;
  heed_status status = hd_allocate(in->context, "a vector of weights", tensor->bytes, 1, &bytes);
  if (status == HEED_OK) status = hd_tensors_read(in->context, in->config->tensors, tensor, bytes);
  if (status == HEED_OK) hd_dequantise(tensor->storage, bytes, tensor->count, out);
  hd_release(in->context, bytes, tensor->bytes, 1);
  in->whole->parameters += tensor->count;
  return status;
}

/* One slot's vector of n values into memory of its own or, with `into`, there. */
static heed_status load_vector(loader *in, hd_slot slot, int64_t layer, const char *suffix, int64_t n, float *into, const float **out) {
  const hd_tensor *tensor;
  const bool row = slot == HD_SLOT_HEAD_BIAS && in->config->spelling->head_bias_row;
  HD_TRY(find(in, slot, layer, suffix, row ? 2 : 1, row ? (int64_t[]){1, n} : &n, &tensor));
  if (!into) {
    HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "a vector of weights", n, sizeof *into, &into));
    in->whole->weight_bytes += n * (int64_t)sizeof *into;
  }
  if (out) *out = into;
  return read_floats(in, tensor, into);
}

/* The first published BERTs call a norm's weight gamma and its bias beta, as TensorFlow does. */
static heed_status load_norm_of(loader *in, hd_slot slot, int64_t layer, int64_t n, hd_norm *out) {
  const hd_transformer_spec *spec = &in->model->spec;
  const bool greek = has(in, slot, layer, ".gamma");
  HD_TRY(load_vector(in, slot, layer, greek ? ".gamma" : ".weight", n, NULL, &out->weight));
  for (int64_t i = 0; spec->norm_shifted && i < n; i++) ((float *)out->weight)[i] += 1;
  if (spec->norm == HD_NORM_LAYER && !spec->norm_unbiased)
    HD_TRY(load_vector(in, slot, layer, greek ? ".beta" : ".bias", n, NULL, &out->bias));
  return HEED_OK;
}

static heed_status load_norm(loader *in, hd_slot slot, int64_t layer, hd_norm *out) {
  return load_norm_of(in, slot, layer, in->model->spec.width, out);
}

/* ---- matrices ------------------------------------------------------------------------------------------------------------- */

/* What one tensor of a stack must be. */
typedef struct part {
  hd_slot slot;
  int64_t outputs;
  const hd_tensor *tensor;
  int64_t heads; /* rows of queries, keys and values lie together by so many heads; 0: all queries, then all keys, then all values */
} part;

/* Rows of three sides, head by head, as side by side. head: bytes of a head's rows of one side. */
static heed_status regroup(loader *in, char *rows, int64_t heads, int64_t head) {
  char *copy;
  HD_TRY(hd_allocate(in->context, "rows of heads", 3 * heads * head, 1, &copy));
  memcpy(copy, rows, (size_t)(3 * heads * head));
  for (int64_t side = 0; side < 3; side++)
    for (int64_t h = 0; h < heads; h++) memcpy(rows + (side * heads + h) * head, copy + (3 * h + side) * head, (size_t)head);
  hd_release(in->context, copy, 3 * heads * head, 1);
  return HEED_OK;
}

/* [inputs, outputs] numbers of `size` bytes as [outputs, inputs]. */
static void transpose(const char *from, char *to, int64_t inputs, int64_t outputs, int64_t size) {
  for (int64_t o = 0; o < outputs; o++)
    for (int64_t i = 0; i < inputs; i++) memcpy(to + (o * inputs + i) * size, from + (i * outputs + o) * size, (size_t)size);
}

static heed_status read_rows(loader *in, const hd_tensor *tensor, int64_t inputs, bool transposed, char *to) {
  if (!transposed) return hd_tensors_read(in->context, in->config->tensors, tensor, to);
  HD_REQUIRE(hd_storage_block(tensor->storage) == 1, in->context, HEED_E_UNSUPPORTED,
             "%s: tensor %s is stored by inputs, which heed reads as plain numbers only (got %s)", in->config->file, tensor->name,
             tensor->type);
  char *bytes = NULL;
  heed_status status = hd_allocate(in->context, "a matrix being transposed", tensor->bytes, 1, &bytes);
  if (status == HEED_OK) status = hd_tensors_read(in->context, in->config->tensors, tensor, bytes);
  if (status == HEED_OK) transpose(bytes, to, inputs, tensor->count / inputs, hd_storage_bytes(tensor->storage));
  hd_release(in->context, bytes, tensor->bytes, 1);
  return status;
}

/* Packs n tensors of one storage type as one matrix. */
static heed_status pack(loader *in, const part *parts, int n, int64_t inputs, bool transposed, hd_matrix *out) {
  int64_t bytes = 0, outputs = 0;
  for (int i = 0; i < n; i++) {
    bytes += parts[i].tensor->bytes; // tensors do not overlap, so their sizes sum to less than the file's
    outputs += parts[i].outputs;
    in->whole->parameters += parts[i].tensor->count;
  }
  char *rows = NULL;
  heed_status status = hd_allocate(in->context, "a matrix being loaded", bytes, 1, &rows);
  char *at = rows;
  for (int i = 0; i < n && status == HEED_OK; i++) {
    const int64_t heads = parts[i].heads;
    status = read_rows(in, parts[i].tensor, inputs, transposed, at);
    if (status == HEED_OK && heads) status = regroup(in, at, heads, parts[i].tensor->bytes / (3 * heads));
    at += parts[i].tensor->bytes;
  }
  if (status == HEED_OK) status = hd_matrix_pack(in->context, &in->whole->arena, parts[0].tensor->storage, outputs, inputs, rows, out);
  hd_release(in->context, rows, bytes, 1);
  HD_TRY(status);
  in->whole->weight_bytes += out->bytes;
  return hd_progress(in->context, "load", ++in->done, in->total);
}

static heed_status load_matrix(loader *in, hd_slot slot, int64_t outputs, int64_t inputs, hd_matrix *out) {
  part one = {slot, outputs, NULL, 0};
  HD_TRY(find(in, slot, 0, ".weight", 2, (int64_t[]){outputs, inputs}, &one.tensor));
  return pack(in, &one, 1, inputs, false, out);
}

/* The parts' biases into one vector; parts[i] starts where the parts before it end. */
static heed_status load_biases(loader *in, const part *parts, int n, int64_t layer, hd_stack *out) {
  float *bias;
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "biases", out->outputs, sizeof *bias, &bias));
  in->whole->weight_bytes += out->outputs * (int64_t)sizeof *bias;
  out->bias = bias;
  for (int i = 0; i < n; i++) {
    const int64_t heads = parts[i].heads;
    HD_TRY(load_vector(in, parts[i].slot, layer, ".bias", parts[i].outputs, bias, NULL));
    if (heads) HD_TRY(regroup(in, (char *)bias, heads, parts[i].outputs / (3 * heads) * (int64_t)sizeof *bias));
    bias += parts[i].outputs;
  }
  return HEED_OK;
}

static heed_status load_stack(loader *in, int64_t layer, part *parts, int n, int64_t inputs, bool biased, hd_stack *out) {
  bool transposed = in->config->spelling->transposed;
  for (int i = 0; i < n; i++) {
    int64_t outputs = parts[i].outputs, dim[2] = {transposed ? inputs : outputs, transposed ? outputs : inputs};
    HD_TRY(find(in, parts[i].slot, layer, ".weight", 2, dim, &parts[i].tensor));
    out->outputs += outputs;
  }
  for (int i = 0, same; i < n; i += same) {
    for (same = 1; i + same < n && parts[i + same].tensor->storage == parts[i].tensor->storage;) same++;
    HD_TRY(pack(in, parts + i, same, inputs, transposed, &out->part[out->parts]));
    out->parts++;
  }
  return biased ? load_biases(in, parts, n, layer, out) : HEED_OK;
}

heed_status hd_stack_product(heed_context *context, const hd_stack *stack, const float *x, int64_t rows, int64_t x_stride, float *y,
                             int64_t y_stride) {
  const float *bias = stack->bias;
  for (int i = 0; i < stack->parts; i++) {
    HD_TRY(hd_matrix_product(context, &stack->part[i], x, rows, x_stride, bias, y, y_stride));
    y += stack->part[i].outputs;
    if (bias) bias += stack->part[i].outputs;
  }
  return HEED_OK;
}

/* ---- the model ------------------------------------------------------------------------------------------------------------ */

/* The attention to an encoder's rows. */
static heed_status load_cross(loader *in, int64_t i, hd_layer *layer) {
  const hd_transformer_spec *spec = &in->model->spec;
  int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  part query[] = {{HD_SLOT_CROSS_QUERY, q, NULL, 0}}, output[] = {{HD_SLOT_CROSS_OUTPUT, spec->width, NULL, 0}};
  part sides[] = {{HD_SLOT_CROSS_KEY, kv, NULL, 0}, {HD_SLOT_CROSS_VALUE, kv, NULL, 0}};
  HD_TRY(load_norm(in, HD_SLOT_CROSS_NORM, i, &layer->cross_norm));
  HD_TRY(load_stack(in, i, query, 1, spec->width, spec->bias_qkv, &layer->cross_query));
  HD_TRY(load_stack(in, i, sides, 2, spec->width, spec->bias_qkv, &layer->cross_kv));
  return load_stack(in, i, output, 1, q, spec->bias_output, &layer->cross_output);
}

static heed_status make_slopes(loader *in) {
  const int64_t heads = in->model->spec.heads;
  double slopes[HD_MAX_HEADS];
  float *out;
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "slopes", heads, sizeof *out, &out));
  HD_TRY(heed_alibi_slopes(in->context, heads, slopes));
  for (int64_t i = 0; i < heads; i++) out[i] = (float)slopes[i];
  in->model->slopes = out;
  return HEED_OK;
}

/* What distances are made of. */
static heed_status make_distances(loader *in) {
  const hd_transformer_spec *spec = &in->model->spec;
  const int64_t count = hd_spec_distances(spec, spec->context), first = hd_spec_first_distance(spec, spec->context);
  float *rows;
  HD_TRY(hd_memory_check(in->context, "rows of distances", count * (spec->width + spec->layers * spec->heads * spec->head_dim) * 4));
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "distances", count * spec->width, sizeof *rows, &rows));
  for (int64_t i = 0; i < count; i++) hd_spec_sinusoid(spec, first + i, rows + i * spec->width);
  in->model->of_distances = rows;
  in->model->distances = count;
  return HEED_OK;
}

/* The rows of all distances that the layer's queries meet. */
static heed_status load_distances(loader *in, int64_t i, hd_layer *layer) {
  const hd_transformer_spec *spec = &in->model->spec;
  const int64_t q = spec->heads * spec->head_dim;
  part matrix[] = {{HD_SLOT_DISTANCE, q, NULL, 0}};
  const struct {
    hd_slot slot;
    const float **to;
  } sides[] = {{HD_SLOT_CONTENT, &layer->content}, {HD_SLOT_PLACE, &layer->place}};
  hd_stack stack = {0};
  float *numbers;
  for (int side = 0; side < 2; side++) {
    const hd_tensor *tensor;
    HD_TRY(find(in, sides[side].slot, i, ".weight", 2, (int64_t[]){spec->heads, spec->head_dim}, &tensor));
    HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "positions", q, sizeof *numbers, &numbers));
    HD_TRY(read_floats(in, tensor, numbers));
    *sides[side].to = numbers;
  }
  HD_TRY(load_stack(in, i, matrix, 1, spec->width, false, &stack));
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "distances", in->model->distances * q, sizeof *numbers, &numbers));
  layer->distances = numbers;
  return hd_stack_product(in->context, &stack, in->model->of_distances, in->model->distances, spec->width, numbers, q);
}

static heed_status load_layer(loader *in, int64_t i, hd_layer *layer) {
  const hd_transformer_spec *spec = &in->model->spec;
  const hd_attention_kind kind = hd_kind_of(&in->model->kinds, i);
  int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  bool fused = in->config->spelling->tensors[HD_SLOT_QKV] != NULL;
  bool gated = spec->feed_forward_kind == HD_FEED_FORWARD_GATED;
  part split[] = {{HD_SLOT_QUERY, q, NULL, 0}, {HD_SLOT_KEY, kv, NULL, 0}, {HD_SLOT_VALUE, kv, NULL, 0}},
       whole[] = {{HD_SLOT_QKV, hd_kind_columns(&kind, spec), NULL, in->config->spelling->head_by_head ? spec->heads : 0}};
  part output[] = {{HD_SLOT_OUTPUT, spec->width, NULL, 0}}, down[] = {{HD_SLOT_DOWN, spec->width, NULL, 0}};
  const hd_slot beside_gate = in->config->spelling->tensors[HD_SLOT_GATED_UP] ? HD_SLOT_GATED_UP : HD_SLOT_UP;
  part up[] = {{HD_SLOT_GATE, spec->feed_forward, NULL, 0}, {gated ? beside_gate : HD_SLOT_UP, spec->feed_forward, NULL, 0}};

  const bool around = spec->norm_place == HD_NORM_AROUND, row = spec->side_norm == HD_SIDE_NORM_ROW;
  part both[] = {{HD_SLOT_GATE_UP, 2 * spec->feed_forward, NULL, 0}};
  const bool gate_up = gated && in->config->spelling->tensors[HD_SLOT_GATE_UP];

  if (!spec->first_bare || i > 0) HD_TRY(load_norm(in, HD_SLOT_ATTENTION_NORM, i, &layer->attention_norm));
  if (around) HD_TRY(load_norm(in, HD_SLOT_ATTENTION_POST, i, &layer->attention_post));
  if (spec->side_norm != HD_SIDE_NORM_NONE) {
    HD_TRY(load_norm_of(in, HD_SLOT_QUERY_NORM, i, row ? q : spec->head_dim, &layer->query_norm));
    HD_TRY(load_norm_of(in, HD_SLOT_KEY_NORM, i, row ? kv : spec->head_dim, &layer->key_norm));
  }
  HD_TRY(load_stack(in, i, fused ? whole : split, fused ? 1 : 3, spec->width, spec->bias_qkv, &layer->qkv));
  HD_TRY(load_stack(in, i, output, 1, q, spec->bias_output, &layer->output));
  if (hd_spec_positions_of(spec, i) == HD_POSITIONS_XL) HD_TRY(load_distances(in, i, layer));
  if (spec->cross) HD_TRY(load_cross(in, i, layer));
  HD_TRY(load_norm(in, HD_SLOT_FEED_FORWARD_NORM, i, &layer->feed_forward_norm));
  if (around) HD_TRY(load_norm(in, HD_SLOT_FEED_FORWARD_POST, i, &layer->feed_forward_post));
  HD_TRY(load_stack(in, i,
                    gate_up ? both
                    : gated ? up
                            : up + 1,
                    gated && !gate_up ? 2 : 1, spec->width, spec->bias_feed_forward, &layer->up));
  return load_stack(in, i, down, 1, spec->feed_forward, spec->bias_feed_forward, &layer->down);
}

static heed_status make_turns(loader *in, const heed_rope_scaling *scaling, double **frequency, hd_rope_turns *out) {
  const hd_transformer_spec *spec = &in->model->spec;
  const int64_t pairs = spec->rotary_dim / 2;
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "rotary frequencies", pairs, sizeof **frequency, frequency));
  hd_rope_frequencies(scaling, hd_spec_exponent(spec), *frequency);
  *out = (hd_rope_turns){*frequency, pairs, hd_rope_attention_factor(scaling)};
  return HEED_OK;
}

/* The frequencies by the spec, divided by the file's own factors where it has some. */
static heed_status load_frequencies(loader *in) {
  heed_model *model = in->model;
  double *frequency;
  if (model->spec.rotary_local.size) HD_TRY(make_turns(in, &model->spec.rotary_local, &frequency, &model->local));
  HD_TRY(make_turns(in, &model->spec.rotary, &frequency, &model->turns));
  if (!has(in, HD_SLOT_ROTARY_FACTORS, 0, ".weight")) return HEED_OK;
  const float *factor;
  HD_TRY(load_vector(in, HD_SLOT_ROTARY_FACTORS, 0, ".weight", model->turns.pairs, NULL, &factor));
  for (int64_t i = 0; i < model->turns.pairs; i++) {
    HD_REQUIRE(factor[i] >= 1e-6f && factor[i] <= 1e6f, in->context, HEED_E_FORMAT,
               "%s: a rotary factor out of range (rope_freqs[%lld], got %g, allowed 1e-6..1e6)", in->config->file, (long long)i,
               (double)factor[i]);
    frequency[i] /= (double)factor[i];
  }
  return HEED_OK;
}

/* What the spec computes, of the first positions: as many as are often met, in a megabyte or four. */
static heed_status make_sinusoids(loader *in) {
  enum { MOST_FLOATS = 1 << 20 };
  const hd_transformer_spec *spec = &in->model->spec;
  float *rows;
  in->model->sinusoids = HD_MIN(spec->context, MOST_FLOATS / spec->width);
  HD_TRY(
      hd_arena_allocate(&in->whole->arena, in->context, "sinusoidal positions", in->model->sinusoids * spec->width, sizeof *rows, &rows));
  for (int64_t i = 0; i < in->model->sinusoids; i++) hd_spec_sinusoid(spec, i, rows + i * spec->width);
  in->model->sinusoid = rows;
  return HEED_OK;
}

static heed_status load_relative(loader *in) {
  const hd_transformer_spec *spec = &in->model->spec;
  const hd_tensor *tensor;
  float *numbers;
  HD_TRY(find(in, HD_SLOT_RELATIVE, 0, ".weight", 2, (int64_t[]){spec->relative_buckets, spec->heads}, &tensor));
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "relative positions", tensor->count, sizeof *numbers, &numbers));
  in->whole->weight_bytes += tensor->count * (int64_t)sizeof *numbers;
  in->model->relative = numbers;
  return read_floats(in, tensor, numbers);
}

static heed_status load_positions(loader *in) {
  const hd_transformer_spec *spec = &in->model->spec;
  const int64_t rows = spec->context + spec->position_offset;
  if (hd_spec_has_table(spec)) HD_TRY(load_matrix(in, HD_SLOT_POSITION, rows, spec->width, &in->model->position));
  if (hd_spec_uses(spec, HD_POSITIONS_SINUSOIDAL)) HD_TRY(make_sinusoids(in));
  if (hd_spec_uses(spec, HD_POSITIONS_RELATIVE)) HD_TRY(load_relative(in));
  if (hd_spec_uses(spec, HD_POSITIONS_ALIBI)) HD_TRY(make_slopes(in));
  if (hd_spec_uses(spec, HD_POSITIONS_XL)) HD_TRY(make_distances(in));
  return hd_spec_rotates(spec) ? load_frequencies(in) : HEED_OK;
}

/* A configuration that names more layers than there are tensors must not make heed allocate for them; one that names fewer would run a part of the model in silence. */
static heed_status check_layers(const loader *in) {
  int64_t layers = in->model->spec.layers, tensors = hd_tensors_count(in->config->tensors);
  HD_REQUIRE(layers <= tensors, in->context, HEED_E_FORMAT, "%s: more layers than tensors (got %lld layers, %lld tensors)",
             in->config->file, (long long)layers, (long long)tensors);
  HD_REQUIRE(!has(in, HD_SLOT_OUTPUT, layers, ".weight"), in->context, HEED_E_FORMAT,
             "%s: tensors of a layer beyond the last (got layer %lld, allowed 0..%lld)", in->config->file, (long long)layers,
             (long long)layers - 1);
  return HEED_OK;
}

/* The weights in few large blocks, which the allocator can give huge pages; never larger than what the file holds. */
static void expect_weights(const loader *in) {
  enum { LARGE_BLOCK = 32 << 20 };
  int64_t bytes = 0;
  for (int64_t i = 0; bytes < LARGE_BLOCK && i < hd_tensors_count(in->config->tensors); i++)
    bytes += hd_tensors_at(in->config->tensors, i)->bytes;
  in->whole->arena.block = HD_MIN(bytes, LARGE_BLOCK);
}

static heed_status load_head(loader *in) {
  heed_model *model = in->model;
  const hd_transformer_spec *spec = &model->spec;
  if (spec->head == HEED_HEAD_CLASS) {
    part pooler[] = {{HD_SLOT_POOLER, spec->width, NULL, 0}};
    HD_TRY(load_stack(in, 0, pooler, 1, spec->width, spec->bias_head, &model->head_dense));
  }
  if (hd_spec_transforms(spec)) {
    part dense[] = {{HD_SLOT_HEAD_DENSE, spec->width, NULL, 0}};
    HD_TRY(load_stack(in, 0, dense, 1, spec->width, spec->bias_head && !spec->head_dense_unbiased, &model->head_dense));
    HD_TRY(load_norm(in, HD_SLOT_HEAD_NORM, 0, &model->head_norm));
  }
  const bool tokens = spec->head == HEED_HEAD_TOKENS;
  const int64_t outputs = hd_spec_outputs(spec);
  // BERT's bias of a head that is not the embedding may stand with that matrix.
  const bool own_bias = tokens && !spec->tied && has(in, HD_SLOT_HEAD, 0, ".bias");
  const hd_slot bias = own_bias ? HD_SLOT_HEAD : tokens ? HD_SLOT_HEAD_BIAS : HD_SLOT_CLASSIFIER;
  const bool stored = !in->config->spelling->head_bias_row || has(in, bias, 0, "");
  if (spec->bias_head && stored) HD_TRY(load_vector(in, bias, 0, ".bias", outputs, NULL, &model->head_bias));
  if (hd_spec_head_is_embedding(spec)) {
    model->head = &model->embedding;
    return HEED_OK;
  }
  hd_matrix *head;
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "the head", 1, sizeof *head, &head));
  model->head = head;
  return load_matrix(in, tokens ? HD_SLOT_HEAD : HD_SLOT_CLASSIFIER, outputs, spec->width, head);
}

/* As many as there are where each is stored in one type. */
static int64_t count_stacks(const hd_transformer_spec *spec) {
  int64_t distances = 0;
  for (int64_t i = 0; i < spec->layers; i++) distances += hd_spec_positions_of(spec, i) == HD_POSITIONS_XL;
  return (spec->cross ? 7 : 4) * spec->layers + distances + !spec->shared_embedding + hd_spec_has_table(spec) + (spec->segments > 0) +
         hd_spec_transforms(spec) + (spec->head == HEED_HEAD_CLASS) + !(spec->headless || hd_spec_head_is_embedding(spec));
}

/* One stack of layers with what is before and after it. */
static heed_status load_model(loader *in) {
  heed_model *model = in->model;
  const hd_transformer_spec *spec = &model->spec;
  HD_TRY(check_layers(in));
  if (spec->shared_embedding) model->embedding = in->whole->embedding;
  else HD_TRY(load_matrix(in, HD_SLOT_EMBEDDING, spec->vocabulary, spec->width, &model->embedding));
  HD_TRY(load_positions(in));
  if (spec->segments > 0) HD_TRY(load_matrix(in, HD_SLOT_SEGMENT, spec->segments, spec->width, &model->segment));
  if (spec->embedding_norm) HD_TRY(load_norm(in, HD_SLOT_EMBEDDING_NORM, 0, &model->embedding_norm));
  HD_TRY(hd_arena_allocate(&in->whole->arena, in->context, "layers", spec->layers, sizeof *model->layers, &model->layers));
  for (int64_t i = 0; i < spec->layers; i++) HD_TRY(load_layer(in, i, &model->layers[i]));
  if (spec->norm_place != HD_NORM_AFTER) HD_TRY(load_norm(in, HD_SLOT_FINAL_NORM, 0, &model->final_norm));
  return spec->headless ? HEED_OK : load_head(in);
}

heed_status hd_weights_load(const hd_config *config, heed_model *model) {
  heed_model *encoder = model->encoder;
  hd_config own = *config;
  own.separate = encoder && !encoder->spec.shared_embedding;
  loader in = {&own, config->context, model, model, 0, count_stacks(&model->spec) + (encoder ? count_stacks(&encoder->spec) : 0)};
  expect_weights(&in);
  HD_TRY(load_model(&in));
  if (!encoder) return HEED_OK;
  hd_config of_encoder = hd_config_of_encoder(&own);
  in.config = &of_encoder;
  in.model = encoder;
  return load_model(&in);
}
