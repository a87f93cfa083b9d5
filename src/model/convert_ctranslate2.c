/* convert_ctranslate2.c: an encoder–decoder of CTranslate2 as a directory of heed's: which variable is which slot, what the kind of model means, quantised weights as what they stand for.
 *
 * TransformerBase and TransformerBig are the Transformer of 2017 as OpenNMT trains it: norms before, ReLU, embeddings times √width, sinusoidal positions that count from 1. A variable that no
 * slot takes would change what the model computes, so it is refused. */
#include "convert.h"
#include "export.h"
#include "family.h"

#include "../text/tokenizer.h"

#include <stdio.h>

#define TENSORS(STACK)                                                                                                                     \
  {                                                                                                                                        \
    [HD_SLOT_EMBEDDING] = STACK "/embeddings", [HD_SLOT_FINAL_NORM] = STACK "/layer_norm",                                                 \
    [HD_SLOT_ATTENTION_NORM] = STACK "/layer_#/self_attention/layer_norm", [HD_SLOT_QKV] = STACK "/layer_#/self_attention/linear_0",       \
    [HD_SLOT_OUTPUT] = STACK "/layer_#/self_attention/linear_1", [HD_SLOT_CROSS_NORM] = STACK "/layer_#/attention/layer_norm",             \
    [HD_SLOT_CROSS_QUERY] = STACK "/layer_#/attention/linear_0", [HD_SLOT_CROSS_KEY] = STACK "/layer_#/attention/linear_1",                \
    [HD_SLOT_CROSS_OUTPUT] = STACK "/layer_#/attention/linear_2", [HD_SLOT_FEED_FORWARD_NORM] = STACK "/layer_#/ffn/layer_norm",           \
    [HD_SLOT_UP] = STACK "/layer_#/ffn/linear_0", [HD_SLOT_DOWN] = STACK "/layer_#/ffn/linear_1", [HD_SLOT_HEAD] = STACK "/projection",    \
  }
static const hd_spelling encoder_spelling = {.tensors = TENSORS("encoder")}, decoder_spelling = {.tensors = TENSORS("decoder")};

/* Kinds by the name in the file, which stands for their number of heads. */
static const struct {
  const char *name;
  int64_t heads;
} kinds[] = {{"TransformerBase", 8}, {"TransformerBig", 16}};

enum { CONTEXT = 512 }; /* positions are computed, and the file names no limit */

typedef struct conversion {
  heed_context *context;
  const hd_tensors *tensors;
  hd_transformer_spec spec, encoder;
  hd_export out;
  bool *used; /* [variables] */
} conversion;

/* One stack: its names in the file and in the directory. */
typedef struct stack {
  conversion *c;
  const hd_transformer_spec *spec;
  hd_config from, to;
} stack;

/* ---- numbers -------------------------------------------------------------------------------------------------------------------------- */

static void mark(conversion *c, const hd_tensor *tensor) {
  for (int64_t i = 0; i < hd_tensors_count(c->tensors); i++)
    if (hd_tensors_at(c->tensors, i) == tensor) c->used[i] = true;
}

static heed_status find(conversion *c, const char *name, int ndim, const int64_t *dim, const hd_tensor **out) {
  char quoted[HD_QUOTE_LENGTH];
  const hd_tensor *tensor = hd_tensors_find(c->tensors, name);
  HD_REQUIRE(tensor, c->context, HEED_E_FORMAT, "%s: variable \"%s\" is missing", hd_tensors_path(c->tensors),
             hd_quote(hd_text_of(name), quoted));
  HD_REQUIRE(tensor->ndim == ndim && (ndim == 0 || memcmp(tensor->dim, dim, (size_t)ndim * sizeof *dim) == 0), c->context, HEED_E_FORMAT,
             "%s: variable \"%s\" has another shape than the model's sizes ask for", hd_tensors_path(c->tensors), name);
  mark(c, tensor);
  *out = tensor;
  return HEED_OK;
}

/* A variable of f32. */
static heed_status read_floats(conversion *c, const char *name, int ndim, const int64_t *dim, float **out) {
  const hd_tensor *tensor;
  HD_TRY(find(c, name, ndim, dim, &tensor));
  HD_REQUIRE(tensor->storage == HD_F32, c->context, HEED_E_FORMAT, "%s: variable \"%s\" is %s, allowed F32", hd_tensors_path(c->tensors),
             name, tensor->type);
  HD_TRY(hd_arena_allocate(&c->out.arena, c->context, "a variable", tensor->count, sizeof **out, out));
  return hd_tensors_read(c->context, c->tensors, tensor, *out);
}

/* Codes q as q / scale, one scale (i16) or one a row (i8). */
static heed_status read_codes(conversion *c, const char *name, const hd_tensor *tensor, float **out) {
  const int64_t rows = tensor->dim[0], columns = tensor->dim[1], size = tensor->bytes / HD_MAX(tensor->count, 1);
  char scale_name[HD_TENSOR_NAME_LENGTH];
  char *codes;
  float *scale;
  snprintf(scale_name, sizeof scale_name, "%s_scale", name);
  HD_TRY(read_floats(c, scale_name, size == 1, &rows, &scale));
  for (int64_t r = 0; r < (size == 1 ? rows : 1); r++)
    HD_REQUIRE(scale[r] != 0 && isfinite(scale[r]), c->context, HEED_E_FORMAT, "%s: a scale is 0 or not finite (\"%s\", row %lld)",
               hd_tensors_path(c->tensors), scale_name, (long long)r);
  HD_TRY(hd_arena_allocate(&c->out.arena, c->context, "a variable", tensor->count, sizeof **out, out));
  HD_TRY(hd_allocate(c->context, "codes", tensor->bytes, 1, &codes));
  heed_status status = hd_tensors_read(c->context, c->tensors, tensor, codes);
  for (int64_t i = 0; i < tensor->count && status == HEED_OK; i++) {
    int16_t word;
    memcpy(&word, codes + (size == 2 ? 2 * i : 0), sizeof word * (size == 2));
    (*out)[i] = (float)(size == 2 ? word : (signed char)codes[i]) / scale[size == 1 ? i / columns : 0];
  }
  hd_release(c->context, codes, tensor->bytes, 1);
  return status;
}

static heed_status read_matrix(conversion *c, const char *name, int64_t rows, int64_t columns, float **out) {
  const hd_tensor *tensor;
  HD_TRY(find(c, name, 2, (int64_t[]){rows, columns}, &tensor));
  return tensor->storage == HD_F32 ? read_floats(c, name, 2, tensor->dim, out) : read_codes(c, name, tensor, out);
}

/* ---- slots ---------------------------------------------------------------------------------------------------------------------------- */

static heed_status put(stack *s, hd_slot slot, int64_t layer, const char *suffix, heed_view view) {
  char buffer[HD_TENSOR_NAME_LENGTH];
  hd_export_put(&s->c->out, hd_tensor_name(&s->to, slot, layer, suffix, buffer), view, NULL);
  return s->c->out.status;
}

static heed_status put_norm(stack *s, hd_slot slot, int64_t layer) {
  static const char *const from[] = {"/gamma", "/beta"}, *const to[] = {".weight", ".bias"};
  for (int i = 0; i < 2; i++) {
    char buffer[HD_TENSOR_NAME_LENGTH];
    float *numbers;
    HD_TRY(read_floats(s->c, hd_tensor_name(&s->from, slot, layer, from[i], buffer), 1, &s->spec->width, &numbers));
    HD_TRY(put(s, slot, layer, to[i], heed_view_of(numbers, HEED_F32, 1, &s->spec->width)));
  }
  return HEED_OK;
}

/* A variable whose rows are those of the slots one behind another, `rows` each; and its bias. */
static heed_status put_rows(stack *s, const hd_slot *slots, int count, int64_t layer, int64_t rows, int64_t columns, bool biased) {
  const int64_t all = count * rows;
  char buffer[HD_TENSOR_NAME_LENGTH];
  float *matrix, *bias;
  HD_TRY(read_matrix(s->c, hd_tensor_name(&s->from, slots[0], layer, "/weight", buffer), all, columns, &matrix));
  for (int i = 0; i < count; i++)
    HD_TRY(put(s, slots[i], layer, ".weight", heed_view_of(matrix + i * rows * columns, HEED_F32, 2, (int64_t[]){rows, columns})));
  if (!biased) return HEED_OK;
  HD_TRY(read_floats(s->c, hd_tensor_name(&s->from, slots[0], layer, "/bias", buffer), 1, &all, &bias));
  for (int i = 0; i < count; i++) HD_TRY(put(s, slots[i], layer, ".bias", heed_view_of(bias + i * rows, HEED_F32, 1, &rows)));
  return HEED_OK;
}

static heed_status put_product(stack *s, hd_slot slot, int64_t layer, int64_t rows, int64_t columns) {
  return put_rows(s, &slot, 1, layer, rows, columns, true);
}

static heed_status put_layer(stack *s, int64_t i) {
  const int64_t width = s->spec->width, wide = s->spec->feed_forward;
  HD_TRY(put_norm(s, HD_SLOT_ATTENTION_NORM, i));
  HD_TRY(put_product(s, HD_SLOT_QKV, i, 3 * width, width));
  HD_TRY(put_product(s, HD_SLOT_OUTPUT, i, width, width));
  if (s->spec->cross) {
    HD_TRY(put_norm(s, HD_SLOT_CROSS_NORM, i));
    HD_TRY(put_product(s, HD_SLOT_CROSS_QUERY, i, width, width));
    HD_TRY(put_rows(s, (const hd_slot[]){HD_SLOT_CROSS_KEY, HD_SLOT_CROSS_VALUE}, 2, i, width, width, true));
    HD_TRY(put_product(s, HD_SLOT_CROSS_OUTPUT, i, width, width));
  }
  HD_TRY(put_norm(s, HD_SLOT_FEED_FORWARD_NORM, i));
  HD_TRY(put_product(s, HD_SLOT_UP, i, wide, width));
  return put_product(s, HD_SLOT_DOWN, i, width, wide);
}

static heed_status put_stack(conversion *c, const hd_family *family, const hd_transformer_spec *spec) {
  stack s = {.c = c, .spec = spec, .from = {.spelling = spec->cross ? &decoder_spelling : &encoder_spelling}};
  s.to.spelling = spec->cross ? &family->json : &family->encoder->json;
  HD_TRY(put_rows(&s, (const hd_slot[]){HD_SLOT_EMBEDDING}, 1, 0, spec->vocabulary, spec->width, false));
  for (int64_t i = 0; i < spec->layers; i++) HD_TRY(put_layer(&s, i));
  HD_TRY(put_norm(&s, HD_SLOT_FINAL_NORM, 0));
  return spec->cross ? put_product(&s, HD_SLOT_HEAD, 0, spec->vocabulary, spec->width) : HEED_OK;
}

static heed_status check_used(const conversion *c) {
  char quoted[HD_QUOTE_LENGTH];
  for (int64_t i = 0; i < hd_tensors_count(c->tensors); i++)
    HD_REQUIRE(c->used[i], c->context, HEED_E_UNSUPPORTED, "%s: variable \"%s\" belongs to no part of the model that heed knows",
               hd_tensors_path(c->tensors), hd_quote(hd_text_of(hd_tensors_at(c->tensors, i)->name), quoted));
  return HEED_OK;
}

/* ---- sizes ---------------------------------------------------------------------------------------------------------------------------- */

static heed_status heads_of_kind(const conversion *c, int64_t *heads) {
  char quoted[HD_QUOTE_LENGTH];
  heed_text kind;
  HD_TRY(hd_meta_text(c->context, c->tensors, "spec", &kind));
  for (int64_t i = 0; i < HD_COUNT(kinds); i++)
    if (hd_text_is(kind, kinds[i].name)) return *heads = kinds[i].heads, HEED_OK;
  return hd_fail(c->context, HEED_E_UNSUPPORTED, "%s: this kind of model is not supported (got %s, allowed %s, %s)",
                 hd_tensors_path(c->tensors), hd_quote(kind, quoted), kinds[0].name, kinds[1].name);
}

/* Rows and columns of a matrix of the file, both at least 1. */
static heed_status size_of(const conversion *c, const hd_spelling *spelling, hd_slot slot, int64_t *rows, int64_t *columns) {
  char buffer[HD_TENSOR_NAME_LENGTH];
  const char *name = hd_tensor_name(&(hd_config){.spelling = spelling}, slot, 0, "/weight", buffer);
  const hd_tensor *tensor = hd_tensors_find(c->tensors, name);
  HD_REQUIRE(tensor && tensor->ndim == 2 && tensor->dim[0] >= 1 && tensor->dim[1] >= 1 && tensor->dim[0] <= HD_MAX_VOCABULARY &&
                 tensor->dim[1] <= HD_MAX_WIDTH,
             c->context, HEED_E_FORMAT, "%s: no matrix \"%s\" of a size that models have", hd_tensors_path(c->tensors), name);
  *rows = tensor->dim[0];
  *columns = tensor->dim[1];
  return HEED_OK;
}

static heed_status read_spec(const conversion *c, const hd_spelling *spelling, hd_transformer_spec *spec) {
  hd_config names = {.spelling = spelling};
  char buffer[HD_TENSOR_NAME_LENGTH];
  int64_t unused;
  HD_TRY(heads_of_kind(c, &spec->heads));
  HD_TRY(size_of(c, spelling, HD_SLOT_EMBEDDING, &spec->vocabulary, &spec->width));
  HD_TRY(size_of(c, spelling, HD_SLOT_UP, &spec->feed_forward, &unused));
  while (hd_tensors_find(c->tensors, hd_tensor_name(&names, HD_SLOT_QKV, spec->layers, "/weight", buffer))) spec->layers++;
  return hd_spec_finish(c->context, hd_tensors_path(c->tensors), spec);
}

/* ---- the directory -------------------------------------------------------------------------------------------------------------------- */

/* A vocabulary of the model's, by the first of its names that is there. */
static heed_status read_vocabulary(conversion *c, const char *name, int64_t rows, hd_open_nmt_vocabulary *ids, heed_tokenizer **out) {
  const char *const names[] = {name, "shared_vocabulary.txt"};
  for (int i = 0; i < 2; i++) {
    char *path;
    int64_t room;
    HD_TRY(hd_join_path(c->context, hd_tensors_directory(c->tensors), names[i], &path, &room));
    const bool there = hd_file_exists(path) || i == 1;
    heed_status status = there ? hd_tokenizer_load_open_nmt(c->context, path, ids, out) : HEED_OK;
    if (there && status == HEED_OK && ids->count != rows)
      status = hd_fail(c->context, HEED_E_FORMAT, "%s: %lld tokens with the unknown one, but the embedding has %lld", path,
                       (long long)ids->count, (long long)rows);
    hd_release(c->context, path, room, 1);
    if (there) return status;
  }
  return HEED_OK;
}

static heed_status convert(conversion *c, heed_tokenizer **source, heed_tokenizer **target, const char *directory) {
  hd_open_nmt_vocabulary sources, targets;
  c->encoder = (hd_transformer_spec){.bidirectional = true, .headless = true};
  c->spec = (hd_transformer_spec){.cross = true, .bias_head = true};
  for (int i = 0; i < 2; i++) {
    hd_transformer_spec *spec = i ? &c->spec : &c->encoder;
    spec->norm = HD_NORM_LAYER;
    spec->norm_eps = 1e-5;
    spec->activation = HEED_ACTIVATION_RELU;
    spec->positions = HD_POSITIONS_SINUSOIDAL;
    spec->position_offset = 1;
    spec->sinusoid_closed = spec->scaled_embedding = spec->bias_qkv = spec->bias_output = spec->bias_feed_forward = true;
    spec->context = CONTEXT;
    HD_TRY(read_spec(c, i ? &decoder_spelling : &encoder_spelling, spec));
  }
  HD_TRY(read_vocabulary(c, "source_vocabulary.txt", c->encoder.vocabulary, &sources, source));
  HD_TRY(read_vocabulary(c, "target_vocabulary.txt", c->spec.vocabulary, &targets, target));
  const hd_family *family = hd_family_for(&c->spec, &c->encoder);
  HD_REQUIRE(family, c->context, HEED_E_FORMAT, "%s: encoder and decoder do not fit together", hd_tensors_path(c->tensors));
  HD_TRY(hd_arena_allocate(&c->out.arena, c->context, "variables", hd_tensors_count(c->tensors), sizeof *c->used, &c->used));
  HD_TRY(put_stack(c, family, &c->encoder));
  HD_TRY(put_stack(c, family, &c->spec));
  HD_TRY(check_used(c));
  c->out.config = hd_config_write(family, &c->spec, &c->encoder, NULL);
  const hd_export_ends ends = {.has_start = true, .start = targets.begin, .bos = -1, .eos = targets.end, .pad = targets.blank};
  return hd_export_save(&c->out, &ends, *source, *target, directory);
}

heed_status hd_convert_ctranslate2(heed_context *context, const hd_tensors *tensors, const char *directory) {
  conversion c = {.context = context, .tensors = tensors, .out = {.context = context}};
  heed_tokenizer *source = NULL, *target = NULL;
  hd_arena_init(&c.out.arena, context);
  heed_status status = convert(&c, &source, &target, directory);
  heed_tokenizer_free(source);
  heed_tokenizer_free(target);
  hd_export_free(&c.out);
  return status;
}
