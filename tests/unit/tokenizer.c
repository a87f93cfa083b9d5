/* tokenizer: whole tokenizers against what the reference implementations answer: SmolLM2 from its GGUF, stories260k from GGUF and Hugging Face directory. */
#include "text_test.h"

#include <jansson.h>

#define SMOLLM2 HEED_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GGUF    HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf"
#define HF      HEED_TEST_DATA "/models/stories260k-hf"

static json_t *expected(const char *path) {
  json_error_t error;
  json_t *document = json_load_file(path, JSON_ALLOW_NUL, &error);
  if (!document) fail_msg("%s: %s", path, error.text);
  return document;
}

static void smollm2_gives_the_expected_ids(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer;
  ok(context, heed_tokenizer_load(context, SMOLLM2, &tokenizer));
  json_t *cases = expected(HEED_TEST_DATA "/expected/smollm2/tokenizer.json"), *one;
  size_t i;
  assert_int_equal(json_array_size(cases), 16);
  json_array_foreach(cases, i, one) {
    json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
    expect_ids_json(context, tokenizer, (heed_text){json_string_value(text), json_string_length(text)},
                    &(heed_encode_options){.size = sizeof(heed_encode_options), .parse_special = true}, ids);
  }
  json_decref(cases);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(smollm2_gives_the_expected_ids),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
