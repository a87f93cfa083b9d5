/* json: the one door for JSON: what it refuses, what its getters say, and what parsing may cost. */
#include "malformed.h"

#include "../../src/io/json.h"

static const hd_json_rules small = {.limit = 16 << 20};

/* ---- the door --------------------------------------------------------------------------------------------------------------- */

static heed_status load_and_drop(heed_context *context, const char *path) {
  json_t *value;
  heed_status status = hd_json_load(context, path, small, &value);
  json_decref(value);
  return status;
}

static void check_text(const void *text, size_t size, heed_status status, const char *fragment) {
  check_file(load_and_drop, write_file("case.json", text, size), (demand){.status = status, .fragment = fragment});
}

static void refused(const char *text, const char *fragment) { check_text(text, strlen(text), HEED_E_FORMAT, fragment); }
static void accepted(const char *text) { check_text(text, strlen(text), HEED_OK, NULL); }

static void texts(void **state) {
  (void)state;
  accepted("{\"a\":[1,2.5e3,\"x\",null,true]}");
  accepted(" \n{ } \n");
  refused("", "not valid JSON");
  refused("{", "not valid JSON (line 1,");
  refused("{} {}", "not valid JSON");
  refused("[]", "must be an object");
  refused("\"x\"", "not valid JSON");
  refused("{\"a\":1,\"a\":2}", "duplicate object key");
  refused("{\"a\":{\"b\":1,\"b\":1}}", "duplicate object key");
  refused("{\"a\":NaN}", "not valid JSON");
  refused("{\"a\":Infinity}", "not valid JSON");
  refused("{\"a\":-Infinity}", "not valid JSON");
  refused("{\"a\":1e400}", "overflow");
  refused("{\"a\":99999999999999999999}", "too big integer");
  refused("{\"a\":01}", "not valid JSON");
  refused("{\"a\":.5}", "not valid JSON");
  refused("{\"a\":\"\\ud800\"}", "not valid JSON");
  refused("{\"a\":\"\\udc00x\"}", "not valid JSON");
  refused("{\"a\":\"\\u0000\"}", "not valid JSON");
  refused("{\"a\":\"\x80\"}", "not valid JSON");
  refused("{\"a\":\"\xc0\x80\"}", "not valid JSON");
  refused("{\"a\":\"\xed\xa0\x80\"}", "not valid JSON");
  refused("{\"a\":\"\x1b[31m\"}", "not valid JSON");
  refused("{'a':1}", "not valid JSON");
}

static void encodings(void **state) {
  (void)state;
  refused("\xef\xbb\xbf{}", "starts with a byte-order mark");
  check_text("\xff\xfe{\0}\0", 6, HEED_E_FORMAT, "is UTF-16");
  check_text("\xfe\xff\0{\0}", 6, HEED_E_FORMAT, "is UTF-16");
  check_text("{\0}\0", 4, HEED_E_FORMAT, "is UTF-16");
  check_text("\0{\0}", 4, HEED_E_FORMAT, "is UTF-16");
  check_text("{\"a\":\"\0\"}", 9, HEED_E_FORMAT, "not valid JSON");
}

static void depth_and_size(void **state) {
  (void)state;
  const size_t size = 10 << 20;
  char *deep = malloc(size);
  memset(deep, '[', size);
  check_text(deep, 10000, HEED_E_FORMAT, "nested too deep (allowed 64 levels)");
  check_text(deep, size, HEED_E_FORMAT, "nested too deep");
  // 200 MB of it, of which only the size is looked at.
  const char *path = write_file("case.json", deep, 1000);
  assert_int_equal(truncate(path, 200000000), 0);
  check_file(load_and_drop, path, (demand){.status = HEED_E_FORMAT, .fragment = "too large (got 200000000 bytes"});
  free(deep);
  check_file(load_and_drop, in_folder("absent.json"), (demand){.status = HEED_E_FILE, .fragment = "No such file"});
}

/* Numbers beyond 64 bits are accepted where they are expected, as reals. */
static void big_integers(void **state) {
  (void)state;
  static const char text[] = "{\"model_max_length\":1000000000000000019884624838656,\"pad\":true}";
  heed_context *context = test_context(NULL);
  json_t *value;
  double number;
  bool pad;
  const char *path = write_file("big.json", text, sizeof text - 1);
  assert_int_equal(hd_json_load(context, path, small, &value), HEED_E_FORMAT);
  assert_null(value);
  ok(context, hd_json_load(context, path, (hd_json_rules){.limit = 1 << 20, .big_integers = true}, &value));
  const hd_json_place top = {context, path, "", value};
  ok(context, hd_json_number(&top, "model_max_length", 1, 1e40, &number));
  assert_true(number == 1000000000000000019884624838656.0);
  ok(context, hd_json_bool(&top, "pad", &pad));
  json_decref(value);
  heed_context_free(context);
}

/* ---- getters ---------------------------------------------------------------------------------------------------------------- */

static void says(heed_context *context, heed_status status, const char *message) {
  assert_int_equal(status, HEED_E_FORMAT);
  assert_string_equal(heed_error(context), message);
}

static void getters(void **state) {
  (void)state;
  static const char text[] = "{\"i\":7,\"r\":1.5,\"e\":1e3,\"t\":\"abc\",\"b\":true,\"n\":null,\"o\":{\"x\":-1},\"a\":[1,2]}";
  heed_context *context = test_context(NULL);
  json_t *value = json_loads(text, 0, NULL);
  const hd_json_place top = {context, "f.json", "", value};
  hd_json_place inner;
  int64_t i;
  double r;
  bool b;
  heed_text t;
  const json_t *a;
  ok(context, hd_json_integer(&top, "i", 7, 7, &i));
  assert_int_equal(i, 7);
  ok(context, hd_json_number(&top, "i", 0, 10, &r));
  assert_true(r == 7);
  ok(context, hd_json_number(&top, "e", 0, 1000, &r));
  assert_true(r == 1000);
  ok(context, hd_json_text(&top, "t", &t));
  assert_int_equal(t.length, 3);
  ok(context, hd_json_bool(&top, "b", &b));
  assert_true(b);
  ok(context, hd_json_array(&top, "a", &a));
  ok(context, hd_json_object(&top, "o", &inner));
  ok(context, hd_json_integer(&inner, "x", -1, 0, &i));
  says(context, hd_json_integer(&inner, "x", 0, 9, &i), "f.json: o.x: must be an integer from 0 to 9 (got -1)");
  says(context, hd_json_integer(&top, "i", 8, 9, &i), "f.json: i: must be an integer from 8 to 9 (got 7)");
  says(context, hd_json_integer(&top, "e", 0, 9999, &i), "f.json: e: must be an integer from 0 to 9999 (got 1000)");
  says(context, hd_json_integer(&top, "z", 0, 9, &i), "f.json: z: must be an integer from 0 to 9 (got nothing)");
  says(context, hd_json_number(&top, "r", 0, 1, &r), "f.json: r: must be a number from 0 to 1 (got 1.5)");
  says(context, hd_json_number(&top, "t", 0, 1, &r), "f.json: t: must be a number from 0 to 1 (got \"abc\")");
  says(context, hd_json_bool(&top, "i", &b), "f.json: i: must be true or false (got 7)");
  says(context, hd_json_text(&top, "a", &t), "f.json: a: must be a text (got an array of 2)");
  says(context, hd_json_object(&top, "n", &inner), "f.json: n: must be an object (got null)");
  says(context, hd_json_array(&top, "o", &a), "f.json: o: must be an array (got an object)");
  ok(context, hd_json_integer_or(&top, "n", 3, 0, 1, &i));
  assert_int_equal(i, 3);
  ok(context, hd_json_number_or(&top, "z", 0.25, 0, 1, &r));
  assert_true(r == 0.25);
  ok(context, hd_json_bool_or(&top, "z", true, &b));
  ok(context, hd_json_text_or(&top, "n", "def", &t));
  assert_string_equal(t.data, "def");
  assert_int_equal(hd_json_integer_or(&top, "t", 3, 0, 1, &i), HEED_E_FORMAT);
  assert_true(hd_json_has(&top, "i") && !hd_json_has(&top, "n") && !hd_json_has(&top, "z"));
  json_decref(value);
  heed_context_free(context);
}

static void quoting(void **state) {
  (void)state;
  char buffer[HD_QUOTE_LENGTH], all[400];
  assert_string_equal(hd_quote((heed_text){"a\n\x1b\xff\xc3\xa9", 6}, buffer), "a\\x0a\\x1b\\xff\xc3\xa9");
  assert_string_equal(hd_quote((heed_text){"\xe2\x80\xae", 3}, buffer), "\\xe2\\x80\\xae"); // right-to-left override
  assert_string_equal(hd_quote((heed_text){"\xf0\x9f", 2}, buffer), "\\xf0\\x9f");
  memset(all, 1, sizeof all);
  assert_int_equal(strlen(hd_quote((heed_text){all, sizeof all}, buffer)), 60 * 4 + 3);
}

/* ---- what parsing costs -------------------------------------------------------------------------------------------------------- */

static struct {
  size_t live, peak;
  int64_t calls, fail_at;
} cost;

static void *counted_malloc(size_t size) {
  if (++cost.calls == cost.fail_at) return NULL;
  size_t *memory = malloc(size + 16);
  *memory = size;
  // With malloc's own overhead: 8 bytes, then multiples of 16.
  cost.live += (size + 8 + 15) / 16 * 16;
  if (cost.live > cost.peak) cost.peak = cost.live;
  return (char *)memory + 16;
}

static void counted_free(void *memory) {
  if (!memory) return;
  size_t *start = (size_t *)((char *)memory - 16);
  cost.live -= (*start + 8 + 15) / 16 * 16;
  free(start);
}

/* A text of many equal pieces either is refused for its cost or costs at most 32 times its size. */
static void check_cost(const char *open, const char *piece, const char *close, bool may_be_refused) {
  heed_context *context = test_context(NULL);
  bytes text = {0};
  json_t *value;
  put_text(&text, open);
  for (int i = 0; i < 30000; i++) {
    char numbered[64];
    snprintf(numbered, sizeof numbered, piece, i);
    put_text(&text, i ? "," : "");
    put_text(&text, numbered);
  }
  put_text(&text, close);
  const char *path = write_file("cost.json", text.data, text.size);
  memset(&cost, 0, sizeof cost);
  heed_status status = hd_json_load(context, path, small, &value);
  if (status != HEED_OK) {
    assert_true(may_be_refused);
    assert_non_null(strstr(heed_error(context), "too many values for its size"));
  }
  if (cost.peak > 32 * text.size + (1 << 20)) fail_msg("%zu bytes for %zu of %s", cost.peak, text.size, piece);
  json_decref(value);
  assert_int_equal(cost.live, 0);
  bytes_free(&text);
  heed_context_free(context);
}

static void costs(void **state) {
  (void)state;
  json_set_alloc_funcs(counted_malloc, counted_free);
  check_cost("{\"a\":[", "{}", "]}", true);
  check_cost("{\"a\":[", "[]", "]}", true);
  check_cost("{\"a\":[", "0", "]}", true);
  check_cost("{\"a\":[", "\"\"", "]}", true);
  check_cost("{\"a\":[", "{\"\":{}}", "]}", true);
  check_cost("{\"a\":[", "[[[[]]]]", "]}", true);
  // What tokenizers and headers hold is accepted.
  check_cost("{\"vocab\":{", "\"%d\":7", "}}", false);
  check_cost("{\"merges\":[", "[\"\xc4\xa0\",\"%d\"]", "]}", false);
  check_cost("{\"merges\":[", "\"\xc4\xa0 t%d\"", "]}", false);
  check_cost("{", "\"%d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "}", false);
  json_set_alloc_funcs(malloc, free);
}

/* jansson's own requests fail too, one by one. Its scanner calls a text it has no memory for malformed, and 2.14 may even drop a byte of
 * a long one unnoticed (lex_save ignores the failure), so all that can be demanded is that nothing leaks. */
static void out_of_memory_inside(void **state) {
  (void)state;
  static const char text[] = "{\"a\":[1,2.5,\"x\",{\"b\":[]}],\"c\":\"a text that is longer than sixteen bytes\"}";
  heed_context *context = test_context(NULL);
  const char *path = write_file("memory.json", text, sizeof text - 1);
  json_t *value;
  heed_status status = HEED_E_MEMORY;
  json_set_alloc_funcs(counted_malloc, counted_free);
  for (int64_t n = 1; n < 200; n++) {
    memset(&cost, 0, sizeof cost);
    cost.fail_at = n;
    status = hd_json_load(context, path, small, &value);
    if (status != HEED_OK && status != HEED_E_MEMORY && status != HEED_E_FORMAT) fail_msg("request %d: %s", (int)n, heed_error(context));
    json_decref(value);
    assert_int_equal(cost.live, 0);
  }
  assert_int_equal(status, HEED_OK); // by then it asks for less
  json_set_alloc_funcs(malloc, free);
  heed_context_free(context);
}

static void out_of_memory(void **state) {
  (void)state;
  check_out_of_memory(load_and_drop, write_file("memory.json", "{\"a\":1}", 7));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts),          cmocka_unit_test(encodings),
      cmocka_unit_test(depth_and_size), cmocka_unit_test(big_integers),
      cmocka_unit_test(getters),        cmocka_unit_test(quoting),
      cmocka_unit_test(costs),          cmocka_unit_test(out_of_memory_inside),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
