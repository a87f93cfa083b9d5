/* malformed_gguf: every GGUF file that must be refused, each the valid base below plus one edit, and the odd ones that must be accepted. */
#include "malformed.h"

#include "../../src/io/tensors.h"

/* ---- the base -------------------------------------------------------------------------------------------------------------- */

typedef struct plan_meta {
  const char *key;
  uint64_t key_length;
  uint32_t type;
  bytes value;
} plan_meta;

typedef struct plan_tensor {
  const char *name;
  uint64_t name_length;
  uint32_t rank;
  uint64_t dim[8]; /* innermost first, as in the file */
  uint32_t type;
  uint64_t offset;
} plan_tensor;

enum { METAS = 6, TENSORS = 4 };

typedef struct plan {
  const char *magic;
  uint32_t version;
  uint64_t tensor_count, key_count;
  plan_meta meta[METAS];
  plan_tensor tensor[TENSORS];
  size_t data_bytes, alignment;
} plan;

static void set_meta(plan_meta *meta, const char *key, uint32_t type) {
  bytes_free(&meta->value);
  *meta = (plan_meta){.key = key, .key_length = strlen(key), .type = type};
}

static void set_integer(plan_meta *meta, const char *key, uint32_t type, uint64_t value, int size) {
  set_meta(meta, key, type);
  put_little(&meta->value, value, size);
}

static void set_name(plan_tensor *tensor, const char *name) {
  tensor->name = name;
  tensor->name_length = strlen(name);
}

static void set_array(plan_meta *meta, uint32_t element, uint64_t count) {
  set_meta(meta, "an.array", HD_META_ARRAY);
  put_u32(&meta->value, element);
  put_u64(&meta->value, count);
}

/* Six metadata of all shapes and four tensors of 64 × 2 numbers: f32, Q4_0, f16, and f32 of rank 1. */
static plan base(void) {
  plan p = {
      .magic = "GGUF", .version = 3, .tensor_count = TENSORS, .key_count = METAS, .data_bytes = 512 + 96 + 256 + 256, .alignment = 32};
  set_meta(&p.meta[0], "general.architecture", HD_META_TEXT);
  put_u64(&p.meta[0].value, 5);
  put_text(&p.meta[0].value, "llama");
  set_integer(&p.meta[1], "general.alignment", HD_META_U32, 32, 4);
  set_integer(&p.meta[2], "a.bool", HD_META_BOOL, 1, 1);
  set_array(&p.meta[3], HD_META_TEXT, 2);
  for (int i = 0; i < 2; i++) {
    put_u64(&p.meta[3].value, 3);
    put_text(&p.meta[3].value, "abc");
  }
  set_integer(&p.meta[4], "a.number", HD_META_F64, 0x3ff0000000000000, 8);
  set_integer(&p.meta[5], "an.integer", HD_META_I16, 0xfffe, 2);
  p.tensor[0] = (plan_tensor){.rank = 2, .dim = {64, 2}, .type = 0, .offset = 0};
  p.tensor[1] = (plan_tensor){.rank = 2, .dim = {64, 2}, .type = 2, .offset = 512};
  p.tensor[2] = (plan_tensor){.rank = 2, .dim = {64, 2}, .type = 1, .offset = 608};
  p.tensor[3] = (plan_tensor){.rank = 1, .dim = {64}, .type = 0, .offset = 864};
  set_name(&p.tensor[0], "one");
  set_name(&p.tensor[1], "two");
  set_name(&p.tensor[2], "three");
  set_name(&p.tensor[3], "four");
  return p;
}

static void write_plan(const plan *p, bytes *out) {
  put(out, p->magic, 4);
  put_u32(out, p->version);
  put_u64(out, p->tensor_count);
  put_u64(out, p->key_count);
  for (int i = 0; i < METAS; i++) {
    put_u64(out, p->meta[i].key_length);
    put(out, p->meta[i].key, p->meta[i].key_length < 1 << 20 ? p->meta[i].key_length : 0);
    put_u32(out, p->meta[i].type);
    put(out, p->meta[i].value.data, p->meta[i].value.size);
  }
  for (int i = 0; i < TENSORS; i++) {
    const plan_tensor *t = &p->tensor[i];
    put_u64(out, t->name_length);
    put(out, t->name, t->name_length < 1 << 20 ? t->name_length : 0);
    put_u32(out, t->rank);
    for (uint32_t d = 0; d < t->rank; d++) put_u64(out, t->dim[d]);
    put_u32(out, t->type);
    put_u64(out, t->offset);
  }
  while (out->size % p->alignment) put_fill(out, 0, 1);
  put_fill(out, 7, p->data_bytes);
}

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

static heed_status open_and_close(heed_context *context, const char *path) {
  hd_tensors *tensors;
  heed_status status = hd_tensors_open(context, path, &tensors);
  hd_tensors_close(tensors);
  return status;
}

/* Also reads every tensor's bytes. */
static heed_status open_and_read(heed_context *context, const char *path) {
  hd_tensors *tensors;
  HD_TRY(hd_tensors_open(context, path, &tensors));
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < hd_tensors_count(tensors) && status == HEED_OK; i++) {
    const hd_tensor *tensor = hd_tensors_at(tensors, i);
    char *memory = NULL;
    status = hd_allocate(context, "a tensor", tensor->bytes, 1, &memory);
    if (status == HEED_OK) status = hd_tensors_read(context, tensors, tensor, memory);
    hd_release(context, memory, tensor->bytes, 1);
  }
  hd_tensors_close(tensors);
  return status;
}

static void check_bytes(const bytes *content, demand wanted) {
  const char *path = write_file("case.gguf", content->data, content->size);
  check_file(wanted.status == HEED_E_FORMAT ? open_and_close : open_and_read, path, wanted);
}

static void check_plan(plan *p, heed_status status, const char *fragment) {
  bytes content = {0};
  write_plan(p, &content);
  check_bytes(&content, (demand){.status = status, .fragment = fragment});
  bytes_free(&content);
  for (int i = 0; i < METAS; i++) bytes_free(&p->meta[i].value);
}

/* REFUSED("what the message says", edit of p;); */
#define REFUSED(fragment, ...)                                                                                                             \
  do {                                                                                                                                     \
    plan p = base();                                                                                                                       \
    __VA_ARGS__;                                                                                                                           \
    check_plan(&p, HEED_E_FORMAT, fragment);                                                                                               \
  } while (0)
#define ACCEPTED(...)                                                                                                                      \
  do {                                                                                                                                     \
    plan p = base();                                                                                                                       \
    __VA_ARGS__;                                                                                                                           \
    check_plan(&p, HEED_OK, NULL);                                                                                                         \
  } while (0)

/* ---- the cases -------------------------------------------------------------------------------------------------------------- */

static void heads(void **state) {
  (void)state;
  ACCEPTED((void)p);
  ACCEPTED(p.version = 2);
  REFUSED("not a GGUF file", p.magic = "GGUX");
  REFUSED("unknown GGUF version (head 0, byte 8, got 0,", p.version = 0);
  REFUSED("unknown GGUF version", p.version = 1);
  REFUSED("unknown GGUF version", p.version = 4);
  REFUSED("unknown GGUF version", p.version = 0x03000000);
  REFUSED("more tensors than the file can hold", p.tensor_count = UINT64_MAX);
  REFUSED("more tensors than the file can hold", p.tensor_count = 1000);
  REFUSED("name of bad length (tensor 4,", p.tensor_count = 5); // alignment padding is read as its name
  REFUSED("more metadata than the file can hold", p.key_count = UINT64_MAX);
  REFUSED("more metadata than the file can hold", p.key_count = 1000);
  REFUSED("too many metadata", p.key_count = 20000; p.data_bytes = 1 << 20);
}

static void keys(void **state) {
  (void)state;
  static char long_key[70000];
  memset(long_key, 'k', sizeof long_key - 1);
  REFUSED("name of bad length", set_integer(&p.meta[5], "", HD_META_U8, 1, 1));
  REFUSED("name of bad length", set_integer(&p.meta[5], long_key, HD_META_U8, 1, 1));
  REFUSED("text longer than the rest", p.meta[5].key_length = UINT64_MAX);
  REFUSED("bad character in a name", set_integer(&p.meta[5], "k\xc3\xa9y", HD_META_U8, 1, 1));
  REFUSED("bad character in a name", p.meta[5].key = "an\0nteger");
  REFUSED("duplicate metadata key (\"a.bool\")", set_integer(&p.meta[5], "a.bool", HD_META_U8, 1, 1));
  REFUSED("unknown value type", p.meta[5].type = 13);
  REFUSED("unknown value type", p.meta[5].type = (uint32_t)-1);
}

static void metadata_values(void **state) {
  (void)state;
  REFUSED("boolean that is neither 0 nor 1", set_integer(&p.meta[2], "a.bool", HD_META_BOOL, 2, 1));
  REFUSED("boolean that is neither 0 nor 1", set_array(&p.meta[3], HD_META_BOOL, 2); put_little(&p.meta[3].value, 0x0201, 2));
  REFUSED("text longer than the rest", set_integer(&p.meta[0], "a.text", HD_META_TEXT, 1 << 20, 8));
  REFUSED("text longer than the rest", set_integer(&p.meta[0], "a.text", HD_META_TEXT, UINT64_MAX - 7, 8));
  REFUSED("array longer than the rest", set_array(&p.meta[3], HD_META_F64, (UINT64_C(1) << 61) + 1));
  REFUSED("array longer than the rest", set_array(&p.meta[3], HD_META_TEXT, UINT64_MAX));
  REFUSED("array longer than the rest", set_array(&p.meta[3], HD_META_U8, 1 << 20));
  REFUSED("unknown element type", set_array(&p.meta[3], 13, 1));
  REFUSED("text longer than the rest", set_array(&p.meta[3], HD_META_TEXT, 1); put_u64(&p.meta[3].value, UINT64_MAX));
  ACCEPTED(set_array(&p.meta[3], HD_META_U16, 0));
  ACCEPTED(set_array(&p.meta[3], HD_META_TEXT, 0));
}

/* Arrays of one array each. */
static void put_nested(bytes *value, int depth) {
  for (int i = 1; i < depth; i++) {
    put_u32(value, HD_META_ARRAY);
    put_u64(value, 1);
  }
  put_u32(value, HD_META_U8);
  put_u64(value, 0);
}

static void nesting(void **state) {
  (void)state;
  REFUSED("nested too deep", set_meta(&p.meta[3], "nested", HD_META_ARRAY); put_nested(&p.meta[3].value, 10000));
  REFUSED("nested too deep", set_meta(&p.meta[3], "nested", HD_META_ARRAY); put_nested(&p.meta[3].value, 9));
  ACCEPTED(set_meta(&p.meta[3], "nested", HD_META_ARRAY); put_nested(&p.meta[3].value, 3));
}

static void alignment(void **state) {
  (void)state;
  REFUSED("general.alignment must be", set_integer(&p.meta[1], "general.alignment", HD_META_U32, 0, 4));
  REFUSED("general.alignment must be", set_integer(&p.meta[1], "general.alignment", HD_META_U32, 13, 4));
  REFUSED("general.alignment must be", set_integer(&p.meta[1], "general.alignment", HD_META_U32, UINT32_C(1) << 31, 4));
  REFUSED("general.alignment must be", set_integer(&p.meta[1], "general.alignment", HD_META_U64, 32, 8));
  REFUSED("general.alignment must be", set_integer(&p.meta[1], "general.alignment", HD_META_I32, (uint64_t)-32, 4));
  ACCEPTED(set_integer(&p.meta[1], "general.alignment", HD_META_U32, 16, 4); p.alignment = 16);
}

static void tensor_heads(void **state) {
  (void)state;
  static char long_name[70];
  memset(long_name, 'n', 65);
  REFUSED("name of bad length", set_name(&p.tensor[0], long_name));
  REFUSED("name of bad length", set_name(&p.tensor[0], ""));
  REFUSED("bad character in a name", p.tensor[2].name = "th\0ee");
  REFUSED("bad character in a name (tensor 2, byte", p.tensor[2].name = "th\xff"
                                                                        "ee");
  REFUSED("got \"th\\x1bee\"", p.tensor[2].name = "th\x1b"
                                                  "ee");
  ACCEPTED(set_name(&p.tensor[2], "th\xc3\xa9"));
  REFUSED("duplicate tensor name (\"three\")", set_name(&p.tensor[0], "three"));
  REFUSED("too many dimensions", p.tensor[0].rank = 5; p.tensor[0].dim[2] = p.tensor[0].dim[3] = p.tensor[0].dim[4] = 1);
  REFUSED("negative dimension", p.tensor[0].dim[1] = (uint64_t)-2);
  REFUSED("shape overflows", p.tensor[0].dim[0] = p.tensor[0].dim[1] = UINT64_C(1) << 32);
  REFUSED("byte size overflows", p.tensor[0].dim[0] = UINT64_C(1) << 61; p.tensor[0].dim[1] = 2);
  REFUSED("data beyond the end", p.tensor[0].dim[1] = (UINT64_C(1) << 42) + 1);
  REFUSED("unknown tensor type number", p.tensor[0].type = 4);
  REFUSED("unknown tensor type number", p.tensor[0].type = 5);
  REFUSED("unknown tensor type number", p.tensor[0].type = 36);
  REFUSED("unknown tensor type number", p.tensor[0].type = 999);
  REFUSED("unknown tensor type number", p.tensor[0].type = (uint32_t)-1);
  REFUSED("not a multiple of its type's block", p.tensor[1].dim[0] = 48);
  REFUSED("not a multiple of its type's block", p.tensor[1].rank = 0);
  ACCEPTED(p.tensor[3].dim[0] = 0);
  ACCEPTED(p.tensor[1].dim[0] = 0);
  ACCEPTED(p.tensor[3].rank = 0);
}

static void tensor_data(void **state) {
  (void)state;
  REFUSED("misaligned data", p.tensor[3].offset = 868);
  REFUSED("data beyond the end", p.tensor[3].offset = 896);
  REFUSED("data beyond the end", p.tensor[3].offset = INT64_MAX - 31);
  REFUSED("data beyond the file", p.tensor[3].offset = UINT64_MAX - 31);
  REFUSED("overlap", p.tensor[1].offset = 480);
  REFUSED("overlap", p.tensor[2].offset = 512);
  REFUSED("data beyond the end", p.data_bytes--);
  // The sum of all sizes overflows, though none does alone.
  REFUSED("data beyond the end", for (int i = 0; i < TENSORS; i++) p.tensor[i].dim[0] = UINT64_C(1) << 60;
          p.tensor[0].dim[1] = p.tensor[1].dim[1] = p.tensor[2].dim[1] = 1);
  ACCEPTED(p.data_bytes += 100);
}

static void truncated_anywhere(void **state) {
  (void)state;
  plan p = base();
  bytes content = {0};
  write_plan(&p, &content);
  const size_t whole = content.size;
  for (size_t size = 0; size < whole; size += 5) {
    content.size = size;
    check_bytes(&content, (demand){.status = HEED_E_FORMAT, .fragment = ""});
  }
  bytes_free(&content);
  for (int i = 0; i < METAS; i++) bytes_free(&p.meta[i].value);
}

/* Types that are known by name: they can be listed, and reading one says what it is. */
static void unsupported_types(void **state) {
  (void)state;
  static const struct {
    uint32_t number;
    const char *name;
  } types[] = {{23, "IQ4_XS"},  {34, "TQ1_0"}, {35, "TQ2_0"}, {16, "IQ2_XXS"}, {17, "IQ2_XS"},
               {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {29, "IQ1_M"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    plan p = base();
    p.tensor[3] = (plan_tensor){.rank = 1, .dim = {256}, .type = types[i].number, .offset = 864};
    set_name(&p.tensor[3], "four");
    check_plan(&p, HEED_E_UNSUPPORTED, types[i].name);
  }
  plan p = base();
  p.tensor[3].type = 39;
  check_plan(&p, HEED_E_UNSUPPORTED, "MXFP4");
  p = base();
  p.tensor[3].type = 40;
  check_plan(&p, HEED_E_UNSUPPORTED, "NVFP4");
}

static void shrunk_after_opening(void **state) {
  (void)state;
  plan p = base();
  bytes content = {0};
  char memory[512];
  hd_tensors *tensors;
  heed_context *context = test_context(NULL);
  write_plan(&p, &content);
  const char *path = write_file("shrinks.gguf", content.data, content.size);
  ok(context, hd_tensors_open(context, path, &tensors));
  assert_int_equal(truncate(path, (off_t)content.size - 4), 0);
  ok(context, hd_tensors_read(context, tensors, hd_tensors_find(tensors, "one"), memory));
  assert_int_equal(hd_tensors_read(context, tensors, hd_tensors_find(tensors, "four"), memory), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "shrank"));
  hd_tensors_close(tensors);
  heed_context_free(context);
  bytes_free(&content);
  for (int i = 0; i < METAS; i++) bytes_free(&p.meta[i].value);
}

/* A valid header of many thousand tensors over no data at all. */
static void many_empty_tensors(void **state) {
  (void)state;
  enum { COUNT = 20000 };
  bytes content = {0};
  put_text(&content, "GGUF");
  put_u32(&content, 3);
  put_u64(&content, COUNT);
  put_u64(&content, 0);
  for (int i = 0; i < COUNT; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d", i == 77 ? 78 : i);
    put_u64(&content, strlen(name));
    put_text(&content, name);
    put_u32(&content, 1);
    put_u64(&content, 0);
    put_u32(&content, 0);
    put_u64(&content, 0);
  }
  check_bytes(&content, (demand){.status = HEED_E_FORMAT, .fragment = "duplicate tensor name (\"78\")"});
  bytes_free(&content);
}

static void out_of_memory(void **state) {
  (void)state;
  plan p = base();
  bytes content = {0};
  write_plan(&p, &content);
  check_out_of_memory(open_and_read, write_file("memory.gguf", content.data, content.size));
  bytes_free(&content);
  for (int i = 0; i < METAS; i++) bytes_free(&p.meta[i].value);
}

static void mutations(void **state) {
  (void)state;
  plan p = base();
  bytes content = {0};
  write_plan(&p, &content);
  check_mutations(open_and_read, write_file("mutated.gguf", content.data, content.size), 500, 3000);
  bytes_free(&content);
  for (int i = 0; i < METAS; i++) bytes_free(&p.meta[i].value);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads),
      cmocka_unit_test(keys),
      cmocka_unit_test(metadata_values),
      cmocka_unit_test(nesting),
      cmocka_unit_test(alignment),
      cmocka_unit_test(tensor_heads),
      cmocka_unit_test(tensor_data),
      cmocka_unit_test(truncated_anywhere),
      cmocka_unit_test(unsupported_types),
      cmocka_unit_test(shrunk_after_opening),
      cmocka_unit_test(many_empty_tensors),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(mutations),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
