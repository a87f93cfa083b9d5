/* Models of CTranslate2 in all three kinds of weights as directories of heed's that translate: what is known of the transliteration model; what is malformed. */
#include "../malformed.h"
#include "../model_test.h"

#include "../../include/heed/translate.h"

#include "../../src/io/tensors.h"

static heed_context *context;

#define AREN TEST_MODELS "aren-transliteration"

/* ---- what it says ------------------------------------------------------------------------------------------------------------------- */

static const char *const names[][2] = {{"آتزمون", "atzmon"}, {"برلين", "berlin"}, {"نادر", "nader"}};
enum { NAMES = 3 };

static heed_tokenizer *open_tokenizer(const char *directory, const char *within) {
  char path[512];
  heed_tokenizer *tokenizer;
  snprintf(path, sizeof path, "%s/%stokenizer.json", directory, within);
  ok(context, heed_tokenizer_load(context, path, &tokenizer));
  return tokenizer;
}

/* The text of a target without its end token. */
static void text_of(const heed_tokenizer *tokenizer, const heed_translation *t, char out[64]) {
  size_t length = 0;
  for (int64_t i = 0; i < t->count - t->ended; i++) {
    const heed_text text = heed_token_text(tokenizer, t->ids[i]);
    assert_true(length + text.length < 64);
    memcpy(out + length, text.data, text.length);
    length += text.length;
  }
  out[length] = 0;
}

static void expect_names(const char *directory, int64_t width) {
  heed_model *model = test_model(context, directory);
  heed_tokenizer *source = open_tokenizer(directory, ""), *target = open_tokenizer(directory, "target/");
  heed_sources sources = {.count = NAMES};
  int32_t ids[64];
  int64_t begin[NAMES + 1] = {0}, count;
  for (int i = 0; i < NAMES; i++) {
    int32_t *encoded;
    const heed_encode_options special = {.size = sizeof special, .add_special = true};
    ok(context, heed_encode(context, source, (heed_text){names[i][0], strlen(names[i][0])}, &special, &encoded, &count));
    memcpy(ids + begin[i], encoded, (size_t)count * sizeof *ids);
    begin[i + 1] = begin[i] + count;
    heed_ids_free(context, encoded, count);
  }
  sources.ids = ids, sources.begin = begin;
  heed_translations *found;
  const heed_translate_options options = {.size = sizeof options, .width = width};
  ok(context, heed_translate(context, model, &sources, &options, &found));
  for (int i = 0; i < NAMES; i++) {
    char text[64];
    const heed_translation *t = heed_translations_of(found, i, &count);
    text_of(target, t, text);
    assert_true(t->ended);
    assert_string_equal(text, names[i][1]);
  }
  heed_translations_free(found);
  heed_tokenizer_free(source);
  heed_tokenizer_free(target);
  heed_model_free(model);
}

static void test_names(void **state) {
  (void)state;
  static const char *const kinds[] = {"", "-i16", "-i8", "/model.bin"};
  for (int i = 0; i < 4; i++) {
    char from[256], name[16];
    snprintf(from, sizeof from, AREN "%s", kinds[i]);
    snprintf(name, sizeof name, "aren%d", i);
    char to[256];
    snprintf(to, sizeof to, "%s", in_folder(name));
    ok(context, heed_convert(context, from, to));
    expect_names(to, 1);
    expect_names(to, 4);
  }
}

static void test_describe(void **state) {
  (void)state;
  char to[256];
  snprintf(to, sizeof to, "%s", in_folder("described"));
  ok(context, heed_convert(context, AREN, to));
  heed_model *model = test_model(context, to);
  const heed_model_info info = test_info(model);
  assert_string_equal(info.family, "heed");
  assert_int_equal(info.encoder_layers, 6);
  assert_int_equal(info.layers, 6);
  assert_int_equal(info.width, 32);
  assert_int_equal(info.heads, 8);
  assert_int_equal(info.encoder_vocabulary, 51);
  assert_int_equal(info.vocabulary, 43);
  assert_int_equal(info.start, 1);
  // A character that no line has is the row beyond them.
  int32_t *ids;
  int64_t count;
  ok(context, heed_encode(context, heed_model_tokenizer(model), (heed_text){"Qي", 3}, NULL, &ids, &count));
  assert_int_equal(count, 2);
  assert_int_equal(ids[0], 50);
  assert_int_equal(ids[1], 3);
  heed_ids_free(context, ids, count);
  heed_model_free(model);
}

/* i8: each row has its scale, at least 185 here, and codes are rounded; i16: all have one, 1000, and codes are cut. */
static void test_weights(void **state) {
  (void)state;
  static const char *const kinds[] = {"", "-i16", "-i8"};
  static const double most[] = {0, 1.0 / 1000, 1.0 / 2 / 92};
  heed_view plain = {0};
  for (int i = 0; i < 3; i++) {
    char from[256], name[16], file[300];
    snprintf(from, sizeof from, AREN "%s", kinds[i]);
    snprintf(name, sizeof name, "weights%d", i);
    char to[256];
    snprintf(to, sizeof to, "%s", in_folder(name));
    ok(context, heed_convert(context, from, to));
    snprintf(file, sizeof file, "%s/model.safetensors", to);
    heed_view view = test_array(context, file, "layers.3.cross_value.weight");
    if (i == 0) plain = view;
    const double off = largest_difference(view.data, plain.data, 32 * 32);
    assert_true(off <= most[i] && (i == 0 || off > 0));
    if (i > 0) heed_array_free(context, &view);
  }
  heed_array_free(context, &plain);
}

/* Of other kinds by way of a learner: the same logits. (Of GGUF: model_gguf_gpt2.c.) */
static void test_directory(void **state) {
  (void)state;
  char to[256];
  float before[512], after[512];
  snprintf(to, sizeof to, "%s", in_folder("directory"));
  ok(context, heed_convert(context, STORIES_HF, to));
  const char *const paths[] = {STORIES_HF, to};
  float *const logits[] = {before, after};
  for (int i = 0; i < 2; i++) {
    heed_model *model = test_model(context, paths[i]);
    heed_session *session = test_session(context, model, 0);
    ok(context, heed_session_run(session, (int32_t[]){1, 403, 407}, 3, logits[i], 1, NULL));
    heed_session_free(session);
    heed_model_free(model);
  }
  assert_memory_equal(before, after, sizeof before);
}

/* ---- malformed ---------------------------------------------------------------------------------------------------------------------- */

static void put_name(bytes *b, const char *name) {
  put_little(b, strlen(name) + 1, 2);
  put(b, name, strlen(name) + 1);
}

static void put_variable(bytes *b, const char *name, int rank, const uint32_t *dim, int size, uint32_t elements) {
  put_name(b, name);
  put_little(b, (uint64_t)rank, 1);
  for (int i = 0; i < rank; i++) put_u32(b, dim[i]);
  put_little(b, (uint64_t)size, 1);
  put_u32(b, elements);
}

/* A sound file of two variables, a [2,3] and b [], with one edit. */
typedef struct edit {
  uint32_t version, count, elements;
  const char *kind;
  int size, rank, name_end, cut, more;
  heed_status status;
  const char *fragment;
} edit;

static void write_edited(bytes *b, const edit *e) {
  put_u32(b, e->version ? e->version : 2);
  put_name(b, e->kind ? e->kind : "TransformerBase");
  put_u32(b, 2);
  put_u32(b, e->count ? e->count : 2);
  put_variable(b, "a", e->rank ? e->rank : 2, (uint32_t[]){2, 3, 1, 1, 1, 1, 1, 1}, e->size ? e->size : 4, e->elements ? e->elements : 6);
  put_fill(b, 0, 24);
  put_variable(b, "b", 0, NULL, 4, 1);
  if (e->name_end) b->data[b->size - 7] = 'x'; // the NUL behind "b"
  put_fill(b, 0, (size_t)(4 + e->more));
  b->size -= (size_t)e->cut;
}

static const edit edits[] = {
    {.version = 3, .status = HEED_E_UNSUPPORTED, .fragment = "got 3, allowed 2"},
    {.version = 6, .status = HEED_E_UNSUPPORTED, .fragment = "got 6, allowed 2"},
    {.version = 7, .status = HEED_E_FORMAT, .fragment = "not a model file"},
    {.version = 0x04034b50, .status = HEED_E_FORMAT, .fragment = "not a model file"}, // a zip, such as PyTorch's own
    {.count = 3, .status = HEED_E_FORMAT, .fragment = "truncated (variable 2"},
    {.count = 1, .status = HEED_E_FORMAT, .fragment = "bytes behind the last variable"},
    {.count = 0xffffffff, .status = HEED_E_FORMAT, .fragment = "more variables than the file has room for"},
    {.elements = 7, .status = HEED_E_FORMAT, .fragment = "another number of elements"},
    {.size = 3, .status = HEED_E_FORMAT, .fragment = "size of an element (variable 0"},
    {.size = 8, .status = HEED_E_FORMAT, .fragment = "got 8, allowed 1, 2 and 4"},
    {.rank = 7, .status = HEED_E_FORMAT, .fragment = "too many dimensions"},
    {.name_end = 1, .status = HEED_E_FORMAT, .fragment = "does not end in a NUL"},
    {.cut = 1, .status = HEED_E_FORMAT, .fragment = "longer than the rest of the file (variable 1"},
    {.cut = 9, .status = HEED_E_FORMAT, .fragment = "truncated (variable 1"},
    {.more = 1, .status = HEED_E_FORMAT, .fragment = "got 1, allowed none"},
    {.kind = "a\nb", .status = HEED_E_FORMAT, .fragment = "bad character"},
    {.kind = "", .status = HEED_E_FORMAT, .fragment = "text of bad length"},
};

static heed_status open_file(heed_context *with, const char *path) {
  hd_tensors *tensors;
  const heed_status status = hd_tensors_open(with, path, &tensors);
  hd_tensors_close(tensors);
  return status;
}

static void test_malformed(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    bytes b = {0};
    write_edited(&b, &edits[i]);
    const char *path = write_file("model.bin", b.data, b.size);
    const heed_status status = open_file(context, path);
    if (status != edits[i].status || !strstr(heed_error(context), edits[i].fragment) ||
        strncmp(heed_error(context), path, strlen(path)) != 0)
      fail_msg("edit %zu: %s \"%s\" does not say \"%s\"", i, heed_status_name(status), heed_error(context), edits[i].fragment);
    bytes_free(&b);
  }
  bytes b = {0};
  write_edited(&b, &(const edit){0});
  ok(context, open_file(context, write_file("model.bin", b.data, b.size)));
  // Cut anywhere it is refused, and never read beyond its end.
  for (size_t size = 0; size < b.size; size++) assert_int_equal(open_file(context, write_file("model.bin", b.data, size)), HEED_E_FORMAT);
  bytes_free(&b);
}

/* Whole files that are no model: refused before anything is written. */
static void refused(const char *from, heed_status status, const char *fragment) {
  char to[256], weights[300];
  snprintf(to, sizeof to, "%s", in_folder("refused"));
  snprintf(weights, sizeof weights, "%s/model.safetensors", to);
  assert_int_equal(heed_convert(context, from, to), status);
  if (!strstr(heed_error(context), fragment)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), fragment);
  assert_int_not_equal(access(weights, F_OK), 0);
}

static void copy_model(const char *from, const char *name, char to[256]) {
  char command[1200];
  snprintf(to, 256, "%s", in_folder(name));
  snprintf(command, sizeof command, "rm -rf %s && mkdir %s && cp %s/* %s/ && chmod u+w %s/*", to, to, from, to, to);
  assert_int_equal(system(command), 0);
}

static void edit_file(const char *directory, const char *name, const char *command_form) {
  char command[1200], path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  snprintf(command, sizeof command, command_form, path);
  assert_int_equal(system(command), 0);
}

static void test_refused(void **state) {
  (void)state;
  char copy[256];
  bytes b = {0};
  write_edited(&b, &(const edit){0});
  refused(write_file("model.bin", b.data, b.size), HEED_E_FORMAT, "no matrix \"encoder/embeddings/weight\"");
  bytes_free(&b);
  write_edited(&b, &(const edit){.kind = "WhisperSpec"});
  refused(write_file("model.bin", b.data, b.size), HEED_E_UNSUPPORTED, "got WhisperSpec, allowed TransformerBase, TransformerBig");
  bytes_free(&b);
  assert_int_equal(heed_model_load(context, AREN, &(heed_model *){NULL}), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "heed convert"));

  static const struct {
    const char *file, *edit;
    heed_status status;
    const char *says;
  } edits[] = {
      {"source_vocabulary.txt", "sed -i '$d' %s", HEED_E_FORMAT, "50 tokens with the unknown one, but the embedding has 51"},
      {"target_vocabulary.txt", "sed -i '7s/.*//' %s", HEED_E_FORMAT, "target_vocabulary.txt: line 7 is empty"},
      {"target_vocabulary.txt", "sed -i '7s/.*/a/' %s", HEED_E_FORMAT, "lines 4 and 7 hold the same token"},
      {"target_vocabulary.txt", "rm %s", HEED_E_FILE, "shared_vocabulary.txt"},
      {"model.bin", "sed -i 's,encoder/layer_2/ffn/layer_norm/beta,encoder/layer_2/ffn/layer_norm/beto,' %s", HEED_E_FORMAT,
       "variable \"encoder/layer_2/ffn/layer_norm/beta\" is missing"},
  };
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    copy_model(AREN, "lines", copy);
    edit_file(copy, edits[i].file, edits[i].edit);
    refused(copy, edits[i].status, edits[i].says);
  }

  // Tokens that are more than a character: no tokenizer, but a model.
  copy_model(AREN, "words", copy);
  edit_file(copy, "target_vocabulary.txt", "sed -i '7s/.*/abc/' %s");
  char to[256], target[300];
  snprintf(to, sizeof to, "%s", in_folder("to-words"));
  snprintf(target, sizeof target, "%s/target/tokenizer.json", to);
  ok(context, heed_convert(context, copy, to));
  assert_int_not_equal(access(target, F_OK), 0);
  heed_model_free(test_model(context, to));

  refused(STORIES, HEED_E_UNSUPPORTED, "does not write tokenizers that merge by scores");
  assert_int_equal(heed_convert(context, AREN, "no/such/place"), HEED_E_WRITE);
  assert_int_equal(heed_convert(context, NULL, "x"), HEED_E_ARGUMENT);
  assert_int_equal(heed_convert(context, AREN, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_convert(NULL, AREN, "x"), HEED_E_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),     cmocka_unit_test(test_describe),  cmocka_unit_test(test_weights),
      cmocka_unit_test(test_directory), cmocka_unit_test(test_malformed), cmocka_unit_test(test_refused),
  };
  context = test_context(NULL);
  int failures = cmocka_run_group_tests(tests, make_folder, remove_folder);
  heed_context_free(context);
  return failures;
}
