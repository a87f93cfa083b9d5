/* tokenizer_malformed: files that must be refused. Each is a valid file plus one edit, so the valid one loads and the edit is what fails; the sentence names file and place. */
#include "folder.h"
#include "text_test.h"

#include <time.h>
#include <unistd.h>

/* ---- files ---------------------------------------------------------------------------------------------------------------- */

/* The largest request for memory since it was last set to 0. */
static size_t largest;

static void *watching_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  if (bytes > largest) largest = bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void watching_release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

static heed_context *watching_context(void) {
  return test_context(&(heed_options){.size = sizeof(heed_options), .allocator = {NULL, watching_allocate, watching_release}});
}

/* No file here is larger than this. */
enum { LARGEST_FILE = 8192 };

/* Loading fails with this status, quickly and without large requests for memory, and the sentence is one line that begins with the file and holds the place. */
static void expect_refusal(heed_context *context, const char *path, heed_status status, const char *file, const char *place) {
  heed_tokenizer *tokenizer;
  struct timespec begin, end;
  largest = 0;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  heed_status got = heed_tokenizer_load(context, path, &tokenizer);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  const char *error = heed_error(context);
  char wanted[160];
  snprintf(wanted, sizeof wanted, "%s/%s: ", test_folder, file);
  if (got == HEED_OK) fail_msg("loads, but must not: %s", place);
  if (got != status || !strstr(error, place) || strncmp(error, wanted, strlen(wanted)) != 0 || strchr(error, '\n'))
    fail_msg("expected %s and \"%s...%s\", got %s: %s", heed_status_name(status), wanted, place, heed_status_name(got), error);
  assert_null(tokenizer);
  double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
  if (seconds > 0.05 * SANITIZER_FACTOR) fail_msg("takes %.3f s: %s", seconds, place);
  if (largest > LARGEST_FILE + (1 << 20)) fail_msg("asks for %zu bytes: %s", largest, place);
}

static void expect_load(heed_context *context, const char *path) {
  heed_tokenizer *tokenizer;
  ok(context, heed_tokenizer_load(context, path, &tokenizer));
  heed_tokenizer_free(tokenizer);
}

/* ---- tokenizer.json ------------------------------------------------------------------------------------------------------- */

static const char byte_level[] =
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<end>\", \"special\": true}],\n"
    " \"normalizer\": {\"type\": \"NFC\"},\n"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
    "   {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}\"}, \"behavior\": \"Isolated\", \"invert\": false},\n"
    "   {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}]},\n"
    " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": "
    "\"<end>\"}}],\n"
    "   \"special_tokens\": {\"<end>\": {\"ids\": [4]}}},\n"
    " \"decoder\": {\"type\": \"ByteLevel\"},\n"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"a\", \"continuing_subword_prefix\": \"\", \"byte_fallback\": "
    "false,\n"
    "   \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"abb\": 3}, \"merges\": [\"a b\", [\"ab\", \"b\"]]}}";

static const char sentencepiece[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}],\n"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"▁\"},\n"
    "   {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"▁\"}]},\n"
    " \"pre_tokenizer\": null,\n"
    " \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" \"},\n"
    "   {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},\n"
    " \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"byte_fallback\": true,\n"
    "   \"vocab\": {\"<unk>\": 0, \"<0x41>\": 1, \"<0x42>\": 2, \"▁\": 3, \"a\": 4, \"▁a\": 5}, \"merges\": [\"▁ a\"]}}";

static const char words[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"[UNK]\", \"special\": true}],\n"
    " \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"strip_accents\": null, \"lowercase\": true},\n"
    " \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},\n"
    " \"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"b\", 2], \"cls\": [\"a\", 1]},\n"
    " \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true},\n"
    " \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": "
    "100,\n"
    "   \"vocab\": {\"[UNK]\": 0, \"a\": 1, \"b\": 2, \"##b\": 3}}}";

typedef struct edit {
  const char *from, *to; /* the first `from` in the base becomes `to` */
  heed_status status;
  const char *place;
} edit;

static void write_edited(const char *base, const edit *edit) {
  static char text[LARGEST_FILE];
  const char *at = strstr(base, edit->from);
  if (!at) fail_msg("the base does not hold \"%s\"", edit->from);
  int length = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, edit->to, at + strlen(edit->from));
  assert_true(length > 0 && length < (int)sizeof text);
  write_file("tokenizer.json", text, (size_t)length);
}

static void expect_edits_refused(const char *base, const edit *edits, size_t count) {
  heed_context *context = watching_context();
  write_file("tokenizer.json", base, strlen(base));
  expect_load(context, test_folder);
  for (size_t i = 0; i < count; i++) {
    write_edited(base, &edits[i]);
    expect_refusal(context, test_folder, edits[i].status, "tokenizer.json", edits[i].place);
  }
  heed_context_free(context);
}

#define FORMAT      HEED_E_FORMAT
#define UNSUPPORTED HEED_E_UNSUPPORTED

static void ids_are_checked(void **state) {
  static const edit edits[] = {
      {"\"b\": 1", "\"b\": -1", FORMAT, "model.vocab.b: must be an integer from 0 to 4 (got -1)"},
      {"\"b\": 1", "\"b\": 2147483648", FORMAT, "model.vocab.b: must be an integer from 0 to 4 (got 2147483648)"},
      {"\"b\": 1", "\"b\": 99999999999999999999", FORMAT, ""},
      {"\"b\": 1", "\"b\": 1.5", FORMAT, "model.vocab.b: must be an integer"},
      {"\"b\": 1", "\"b\": 1e0", FORMAT, "model.vocab.b: must be an integer"},
      {"\"b\": 1", "\"b\": \"1\"", FORMAT, "model.vocab.b: must be an integer"},
      {"\"b\": 1", "\"b\": null", FORMAT, "model.vocab.b: must be an integer"},
      {"\"b\": 1", "\"b\": 2", FORMAT, "model.vocab: two tokens have id 2 (got \"b\" and \"ab\")"},
      {"\"b\": 1", "\"a\": 1", FORMAT, "duplicate"},
      {"\"b\": 1, ", "", FORMAT, "added_tokens.id: must be an integer from 0 to 3 (got 4)"},
      {"[{\"id\": 4, \"content\": \"<end>\", \"special\": true}]",
       "[{\"id\": 3, \"content\": \"abb\"}, {\"id\": 5, \"content\": \"<end>\"}]", FORMAT,
       "model.vocab: ids have a gap (no token 4, but a token 5)"},
      {"{\"a\": 0, \"b\": 1, \"ab\": 2, \"abb\": 3}", "{}", FORMAT, "added_tokens.id"},
      {"{\"a\": 0, \"b\": 1, \"ab\": 2, \"abb\": 3}", "[]", FORMAT, "model.vocab: must be an object"},
      {"{\"id\": 4, \"content\": \"<end>\"", "{\"id\": 1, \"content\": \"<end>\"", FORMAT,
       "added_tokens: id 1 belongs to another token (got \"<end>\" and \"b\")"},
      {"{\"id\": 4, \"content\": \"<end>\"", "{\"id\": 4, \"content\": \"b\"", FORMAT,
       "added_tokens: \"b\" has another id in model.vocab (got 4 and 1)"},
      {"{\"id\": 4, \"content\": \"<end>\"", "{\"id\": 1000000000, \"content\": \"<end>\"", FORMAT,
       "added_tokens.id: must be an integer from 0 to 4"},
      {"{\"id\": 4, \"content\": \"<end>\"", "{\"id\": -1, \"content\": \"<end>\"", FORMAT,
       "added_tokens.id: must be an integer from 0 to 4"},
      {"{\"id\": 4, \"content\": \"<end>\"", "{\"id\": 4, \"content\": 7", FORMAT, "added_tokens.content: must be a text"},
      {"\"added_tokens\": [{", "\"added_tokens\": [7, {", FORMAT, "added_tokens: element 0 is not an object"},
      {"\"special\": true", "\"special\": true, \"single_word\": true", UNSUPPORTED, "added_tokens: \"<end>\" is wanted as a single word"},
      {"\"unk_token\": \"a\"", "\"unk_token\": \"<unk>\"", FORMAT, "model.unk_token is not in the vocabulary (got \"<unk>\")"},
      {"\"ids\": [4]", "\"ids\": [5]", FORMAT, "ids: must be ids of the vocabulary"},
      {"\"ids\": [4]", "\"ids\": [-1]", FORMAT, "ids: must be ids of the vocabulary"},
      {"\"ids\": [4]", "\"ids\": [4, 4, 4, 4, 4]", FORMAT, "ids: too many tokens around a text"},
  };
  (void)state;
  expect_edits_refused(byte_level, edits, sizeof edits / sizeof *edits);
}

static void merges_are_checked(void **state) {
  static const edit edits[] = {
      {"\"a b\"", "\"a c\"", FORMAT, "model.merges: merge 0 of a token that is not in the vocabulary (got \"c\")"},
      {"\"a b\"", "\"c a\"", FORMAT, "model.merges: merge 0 of a token that is not in the vocabulary (got \"c\")"},
      {"\"a b\"", "\"b a\"", FORMAT, "model.merges: merge 0 gives a token that is not in the vocabulary (got \"b\" and \"a\")"},
      {"\"a b\"", "\"a\"", FORMAT, "model.merges: merge 0 must be two tokens with a space between them (got \"a\")"},
      {"\"a b\"", "\"a b b\"", FORMAT, "model.merges: merge 0 must be two tokens with a space between them (got \"a b b\")"},
      {"\"a b\"", "\"\"", FORMAT, "model.merges: merge 0 must be two tokens"},
      {"\"a b\"", "\" b\"", FORMAT, "model.merges: merge 0 must be two tokens"},
      {"\"a b\"", "\"a \"", FORMAT, "model.merges: merge 0 must be two tokens"},
      {"[\"ab\", \"b\"]", "[\"ab\"]", FORMAT, "model.merges: merge 1 must be two tokens (got 1 parts)"},
      {"[\"ab\", \"b\"]", "[\"ab\", \"b\", \"b\"]", FORMAT, "model.merges: merge 1 must be two tokens (got 3 parts)"},
      {"[\"ab\", \"b\"]", "[\"ab\", 1]", FORMAT, "model.merges: merge 1 must be two tokens"},
      {"[\"ab\", \"b\"]", "[\"\", \"ab\"]", FORMAT, "model.merges: merge 1 of a token that is not in the vocabulary (got \"\")"},
      {"[\"ab\", \"b\"]", "7", FORMAT, "model.merges: merge 1 must be two tokens"},
      {"[\"a b\", [\"ab\", \"b\"]]", "{}", FORMAT, "model.merges: must be an array"},
  };
  (void)state;
  expect_edits_refused(byte_level, edits, sizeof edits / sizeof *edits);
}

static void words_are_checked(void **state) {
  static const edit edits[] = {
      {"\"##\", \"max", "\"@@\", \"max", HEED_E_UNSUPPORTED,
       "model.continuing_subword_prefix: heed does not know this (got \"@@\", known: ##)"},
      {": 100", ": 50", HEED_E_UNSUPPORTED, "model.max_input_chars_per_word"},
      {"\"unk_token\": \"[UNK]\"", "\"unk_token\": \"x\"", HEED_E_FORMAT, "model.unk_token is not in the vocabulary"},
      {"BertNormalizer", "NFC", HEED_E_UNSUPPORTED, "heed knows WordPiece only with BertNormalizer and BertPreTokenizer"},
      {"{\"type\": \"BertPreTokenizer\"}", "null", HEED_E_UNSUPPORTED,
       "heed knows WordPiece only with BertNormalizer and BertPreTokenizer"},
      {"\"a\", 1]}", "\"a\", 9]}", HEED_E_FORMAT, "cls: must be a token and its id"},
      {"\"sep\": [\"b\", 2]", "\"sep\": [2]", HEED_E_FORMAT, "sep: must be a token and its id"},
      {"\"lowercase\": true", "\"lowercase\": 1", HEED_E_FORMAT, "normalizer.lowercase"},
  };
  (void)state;
  expect_edits_refused(words, edits, sizeof edits / sizeof *edits);
}

static void unknown_steps_are_named(void **state) {
  static const edit edits[] = {
      {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", UNSUPPORTED,
       "model.type: heed does not know this kind of tokenizer (got \"Unigram\", known: BPE, WordPiece)"},
      {"\"type\": \"BPE\"", "\"type\": \"WordPiece\"", UNSUPPORTED, "model.continuing_subword_prefix"},
      {"\"type\": \"NFC\"", "\"type\": \"Lowercase\"", UNSUPPORTED,
       "normalizer.type: heed does not know this (got \"Lowercase\", known: Sequence, NFC"},
      {"\"type\": \"NFC\"", "\"type\": 3", FORMAT, "normalizer.type: must be a text"},
      {"\"normalizer\": {\"type\": \"NFC\"}", "\"normalizer\": []", FORMAT, "normalizer: must be an object"},
      {"\"type\": \"Split\"", "\"type\": \"UnicodeScripts\"", UNSUPPORTED,
       "pre_tokenizer.type: heed does not know this (got \"UnicodeScripts\""},
      {"\"behavior\": \"Isolated\"", "\"behavior\": \"MergedWithNext\"", UNSUPPORTED, "pre_tokenizer.behavior"},
      {"\"Regex\"", "\"String\"", UNSUPPORTED, "pre_tokenizer.pattern"},
      {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true", UNSUPPORTED,
       "pre_tokenizer.add_prefix_space"},
      {"\"add_prefix_space\": false, ", "", FORMAT, "pre_tokenizer.add_prefix_space: must be true or false"},
      {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}", "{\"type\": \"Digits\"}", UNSUPPORTED,
       "spelled in a way"},
      {"\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": {\"type\": \"WordPiece\"}", UNSUPPORTED,
       "decoder.type: heed does not know this (got \"WordPiece\""},
      {"\"type\": \"TemplateProcessing\"", "\"type\": \"RobertaProcessing\"", UNSUPPORTED, "post_processor.type"},
      {"{\"Sequence\": {\"id\": \"A\"}}, ", "", FORMAT, "post_processor.single: must hold the text once"},
      {"{\"Sequence\": {\"id\": \"A\"}}, ", "{\"Sequence\": {\"id\": \"A\"}}, {\"Sequence\": {\"id\": \"A\"}}, ", FORMAT,
       "must hold the text once"},
      {"{\"id\": \"<end>\"}}", "{\"id\": \"<eos>\"}}", FORMAT, "<eos>"},
      {"\"dropout\": null", "\"dropout\": 0.1", UNSUPPORTED, "model.dropout"},
      {"\"continuing_subword_prefix\": \"\"", "\"continuing_subword_prefix\": \"##\"", UNSUPPORTED, "model.continuing_subword_prefix"},
      {"\"continuing_subword_prefix\": \"\"", "\"end_of_word_suffix\": \"</w>\"", UNSUPPORTED, "model.end_of_word_suffix"},
      {"\"byte_fallback\": false", "\"byte_fallback\": 0", FORMAT, "model.byte_fallback: must be true or false"},
      {"\"model\": {", "\"other\": {", FORMAT, "model: must be an object (got nothing)"},
      {"\"\\\\p{N}\"", "\"(\"", UNSUPPORTED, "the pre-tokenizer's pattern is not understood: missing closing parenthesis"},
      {"\"\\\\p{N}\"", "\"\\\\p{Nonsense}\"", UNSUPPORTED, "the pre-tokenizer's pattern is not understood"},
      {"\"\\\\p{N}\"", "\"(a+)+b\"", UNSUPPORTED, "the pre-tokenizer's pattern takes too many steps"},
      {"\"\\\\p{N}\"", "\"[a-z&&[^x]]\"", UNSUPPORTED, "the pre-tokenizer's pattern uses what heed does not know"},
  };
  (void)state;
  expect_edits_refused(byte_level, edits, sizeof edits / sizeof *edits);
}

static void sentencepiece_files_are_checked(void **state) {
  static const edit edits[] = {
      {"<0x42>", "<0xZZ>", FORMAT, "model.vocab: byte token 2 is not one of <0x00> to <0xFF> (got \"<0xZZ>\")"},
      {"<0x42>", "<0x-1>", FORMAT, "model.vocab: byte token 2 is not one of <0x00> to <0xFF> (got \"<0x-1>\")"},
      {"<0x42>", "<0x4 >", FORMAT, "model.vocab: byte token 2 is not one of"},
      {"\"<0x41>\": 1, \"<0x42>\"", "\"<0x4a>\": 1, \"<0x4A>\"", FORMAT, "model.vocab: byte 0x4A has two tokens (1 and 2)"},
      {"\"▁ a\"", "\"▁ ▁\"", FORMAT, "model.merges: merge 0 gives a token that is not in the vocabulary"},
      {"\"prepend\": \"▁\"", "\"prepend\": \"_\"", UNSUPPORTED, "normalizer.prepend"},
      {"{\"String\": \" \"}", "{\"String\": \"x\"}", UNSUPPORTED, "normalizer.pattern"},
      {"{\"String\": \" \"}", "\" \"", FORMAT, "normalizer.pattern: must be an object"},
      {"{\"String\": \"▁\"}", "{\"String\": \"_\"}", UNSUPPORTED, "decoder.pattern"},
      {"\"start\": 1", "\"start\": 2", FORMAT, "decoder.start: must be an integer from 0 to 1"},
      {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"▁\"}", UNSUPPORTED,
       "pre_tokenizer: heed knows Metaspace only alone"},
      {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}", UNSUPPORTED,
       "spelled in a way"},
      {"<0x42>", "\\ud800", FORMAT, ""},
      {"<0x42>", "\xC0\x80", FORMAT, ""},
      {"<0x42>", "\xED\xA0\x80", FORMAT, ""},
      {"<0x42>", "\\u0000", FORMAT, ""},
  };
  (void)state;
  expect_edits_refused(sentencepiece, edits, sizeof edits / sizeof *edits);
}

static void documents_are_checked(void **state) {
  (void)state;
  heed_context *context = watching_context();
  static const char *const documents[] = {"", "{", "[]", "7", "\xEF\xBB\xBF{}", "\xFF\xFE{\0}\0", "{\"model\": 1e400}", "{\"model\": NaN}"};
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
    write_file("tokenizer.json", documents[i], strlen(documents[i]));
    expect_refusal(context, test_folder, FORMAT, "tokenizer.json", "");
  }
  unlink(in_folder("tokenizer.json"));
  heed_tokenizer *tokenizer;
  assert_int_equal(heed_tokenizer_load(context, test_folder, &tokenizer), HEED_E_FILE);
  assert_non_null(strstr(heed_error(context), "there is no tokenizer here"));
  assert_int_equal(heed_tokenizer_load(context, in_folder("nothing.gguf"), &tokenizer), HEED_E_FILE);
  heed_context_free(context);
}

/* ---- tokenizer_config.json ------------------------------------------------------------------------------------------------ */

static void configs_are_checked(void **state) {
  static const struct {
    const char *text;
    heed_status status;
    const char *place;
  } cases[] = {
      {"{\"model_max_length\": 1000000000000000019884624838656, \"bos_token\": {\"content\": \"a\"}, \"eos_token\": \"<end>\", "
       "\"unk_token\": null}",
       HEED_OK, NULL},
      {"{\"bos_token\": \"<s>\"}", FORMAT, "bos_token is not in the vocabulary"},
      {"{\"unk_token\": {\"content\": \"<s>\"}}", FORMAT, "unk_token is not in the vocabulary"},
      {"{\"eos_token\": 2}", FORMAT, "eos_token: must be a text"},
      {"{\"eos_token\": {}}", FORMAT, "eos_token.content: must be a text"},
      {"{\"add_bos_token\": 1}", FORMAT, "add_bos_token: must be true or false"},
      {"{\"model_max_length\": }", FORMAT, ""},
  };
  (void)state;
  heed_context *context = watching_context();
  write_file("tokenizer.json", byte_level, sizeof byte_level - 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file("tokenizer_config.json", cases[i].text, strlen(cases[i].text));
    if (cases[i].status == HEED_OK) expect_load(context, test_folder);
    else expect_refusal(context, test_folder, cases[i].status, "tokenizer_config.json", cases[i].place);
  }
  unlink(in_folder("tokenizer_config.json"));
  heed_context_free(context);
}

/* ---- GGUF ----------------------------------------------------------------------------------------------------------------- */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, ARRAY = 9 }; /* GGUF's numbers of types */

typedef struct gguf {
  unsigned char data[LARGEST_FILE];
  size_t length;
} gguf;

static void put(gguf *file, const void *data, size_t length) {
  assert_true(file->length + length <= sizeof file->data);
  memcpy(file->data + file->length, data, length);
  file->length += length;
}
static void put_u32(gguf *file, uint32_t value) { put(file, &value, 4); }
static void put_u64(gguf *file, uint64_t value) { put(file, &value, 8); }
static void put_text(gguf *file, const char *text) {
  put_u64(file, strlen(text));
  put(file, text, strlen(text));
}
static void put_key(gguf *file, const char *key, uint32_t type) {
  put_text(file, key);
  put_u32(file, type);
}

/* What the file holds; the valid one is the base of every case. */
typedef struct contents {
  const char *model, *pre, *architecture;
  const char *tokens[8], *merges[4];
  int token_count, merge_count, score_count, type_count;
  uint32_t score_type, kind_type, kinds[8];
  float scores[8];
  const char *id_key;
  uint32_t id;
  bool adds_bos;
} contents;

static const contents spm_base = {.model = "llama",
                                  .architecture = "llama",
                                  .tokens = {"<unk>", "<s>", "</s>", "<0x41>", "▁", "a", "▁a"},
                                  .token_count = 7,
                                  .scores = {0, 0, 0, 0, -1, -2, -3},
                                  .score_count = 7,
                                  .score_type = F32,
                                  .kinds = {2, 3, 3, 6, 1, 1, 1},
                                  .type_count = 7,
                                  .kind_type = I32,
                                  .id_key = "tokenizer.ggml.bos_token_id",
                                  .id = 1,
                                  .adds_bos = true};
static const contents bpe_base = {.model = "gpt2",
                                  .pre = "smollm",
                                  .architecture = "llama",
                                  .tokens = {"<s>", "a", "b", "ab"},
                                  .token_count = 4,
                                  .score_count = -1,
                                  .kinds = {3, 1, 1, 1},
                                  .type_count = 4,
                                  .kind_type = I32,
                                  .merges = {"a b"},
                                  .merge_count = 1,
                                  .id_key = "tokenizer.ggml.bos_token_id",
                                  .id = 0,
                                  .adds_bos = true};

static void put_array(gguf *file, const char *key, uint32_t type, int count) {
  put_key(file, key, ARRAY);
  put_u32(file, type);
  put_u64(file, (uint64_t)count);
}

static void put_number(gguf *file, uint32_t type, double value) {
  float real = (float)value;
  if (type == F32) put(file, &real, 4);
  else put_u32(file, (uint32_t)(int64_t)value);
}

static void write_gguf(const contents *c) {
  static gguf file;
  uint64_t keys = 3 + (c->model != NULL) + (c->pre != NULL) + (c->score_count >= 0) + (c->type_count >= 0) + (c->merge_count > 0) +
                  (c->id_key != NULL); // 3: architecture, tokens, add_bos_token
  file.length = 0;
  put(&file, "GGUF", 4);
  put_u32(&file, 3);
  put_u64(&file, 0);
  put_u64(&file, keys);
  put_key(&file, "general.architecture", TEXT);
  put_text(&file, c->architecture);
  if (c->model) put_key(&file, "tokenizer.ggml.model", TEXT), put_text(&file, c->model);
  if (c->pre) put_key(&file, "tokenizer.ggml.pre", TEXT), put_text(&file, c->pre);
  put_array(&file, "tokenizer.ggml.tokens", TEXT, c->token_count);
  for (int i = 0; i < c->token_count; i++) put_text(&file, c->tokens[i]);
  if (c->score_count >= 0) put_array(&file, "tokenizer.ggml.scores", c->score_type, c->score_count);
  for (int i = 0; i < c->score_count; i++) put_number(&file, c->score_type, c->scores[i]);
  if (c->type_count >= 0) put_array(&file, "tokenizer.ggml.token_type", c->kind_type, c->type_count);
  for (int i = 0; i < c->type_count; i++) put_number(&file, c->kind_type, c->kinds[i]);
  if (c->merge_count > 0) put_array(&file, "tokenizer.ggml.merges", TEXT, c->merge_count);
  for (int i = 0; i < c->merge_count; i++) put_text(&file, c->merges[i]);
  put_key(&file, "tokenizer.ggml.add_bos_token", BOOL);
  put(&file, &c->adds_bos, 1);
  if (c->id_key) put_key(&file, c->id_key, U32), put_u32(&file, c->id);
  write_file("model.gguf", file.data, file.length);
}

static void refuse(heed_context *context, const contents *c, heed_status status, const char *place) {
  write_gguf(c);
  expect_refusal(context, in_folder("model.gguf"), status, "model.gguf", place);
}

/* A copy of the base with one field changed, refused. */
#define REFUSE(base, change, status, place)                                                                                                \
  do {                                                                                                                                     \
    contents c = base;                                                                                                                     \
    c.change;                                                                                                                              \
    refuse(context, &c, status, place);                                                                                                    \
  } while (0)

static void gguf_sentencepiece_is_checked(void **state) {
  (void)state;
  heed_context *context = watching_context();
  write_gguf(&spm_base);
  expect_load(context, in_folder("model.gguf"));
  REFUSE(spm_base, score_type = I32, FORMAT, "tokenizer.ggml.scores");
  REFUSE(spm_base, score_count = 6, FORMAT, "tokenizer.ggml.scores does not have one element a token (got 6, allowed 7)");
  REFUSE(spm_base, score_count = 0, FORMAT, "tokenizer.ggml.scores");
  REFUSE(spm_base, score_count = -1, FORMAT, "tokenizer.ggml.scores is missing");
  REFUSE(spm_base, scores[5] = __builtin_nanf(""), FORMAT, "token 5 has a score that is not a number");
  REFUSE(spm_base, kind_type = F32, FORMAT, "tokenizer.ggml.token_type");
  REFUSE(spm_base, type_count = 8, FORMAT, "tokenizer.ggml.token_type does not have one element a token (got 8, allowed 7)");
  REFUSE(spm_base, kinds[5] = 7, FORMAT, "token 5 has no such type (got 7, allowed 1 to 6)");
  REFUSE(spm_base, kinds[5] = 0, FORMAT, "token 5 has no such type (got 0, allowed 1 to 6)");
  REFUSE(spm_base, tokens[3] = "<0xZZ>", FORMAT, "tokenizer.ggml.tokens: byte token 3 is not one of <0x00> to <0xFF> (got \"<0xZZ>\")");
  REFUSE(spm_base, tokens[3] = "<0x-1>", FORMAT, "tokenizer.ggml.tokens: byte token 3 is not one of <0x00> to <0xFF> (got \"<0x-1>\")");
  REFUSE(spm_base, tokens[3] = "A", FORMAT, "tokenizer.ggml.tokens: byte token 3 is not one of");
  REFUSE(spm_base, tokens[5] = "\xC0\x80", FORMAT, "tokenizer.ggml.tokens: token 5 is not UTF-8 (byte 0, got 0xC0)");
  REFUSE(spm_base, tokens[5] = "a\xED\xA0\x80", FORMAT, "tokenizer.ggml.tokens: token 5 is not UTF-8 (byte 1, got 0xED)");
  REFUSE(spm_base, id = 7, FORMAT, "tokenizer.ggml.bos_token_id");
  REFUSE(spm_base, id = 0xFFFFFFFFu, FORMAT, "tokenizer.ggml.bos_token_id");
  REFUSE(spm_base, token_count = 0, FORMAT, "model.gguf");
  REFUSE(spm_base, model = "t5", UNSUPPORTED,
         "tokenizer.ggml.model: heed does not know this kind of tokenizer (got \"t5\", known: gpt2, llama)");
  REFUSE(spm_base, model = "bert", UNSUPPORTED, "\"bert\"");
  REFUSE(spm_base, model = NULL, FORMAT, "tokenizer.ggml.model");
  heed_context_free(context);
}

static void gguf_byte_level_is_checked(void **state) {
  (void)state;
  heed_context *context = watching_context();
  write_gguf(&bpe_base);
  expect_load(context, in_folder("model.gguf"));
  REFUSE(bpe_base, merges[0] = "a c", FORMAT, "tokenizer.ggml.merges: merge 0 of a token that is not in the vocabulary (got \"c\")");
  REFUSE(bpe_base, merges[0] = "b a", FORMAT, "tokenizer.ggml.merges: merge 0 gives a token that is not in the vocabulary");
  REFUSE(bpe_base, merges[0] = "ab", FORMAT, "tokenizer.ggml.merges: merge 0 must be two tokens");
  REFUSE(bpe_base, merges[0] = "a b b", FORMAT, "tokenizer.ggml.merges: merge 0 must be two tokens");
  REFUSE(bpe_base, merge_count = 0, FORMAT, "tokenizer.ggml.merges");
  REFUSE(bpe_base, pre = "viking", UNSUPPORTED,
         "tokenizer.ggml.pre: heed does not know this pre-tokenizer (got \"viking\", known: gpt2, smollm");
  REFUSE(bpe_base, pre = NULL, UNSUPPORTED, "tokenizer.ggml.pre");
  REFUSE(bpe_base, id_key = NULL, FORMAT, "add_bos_token is true, but the file names no such token");
  contents old = bpe_base; // GPT-2's own files had no name for it
  old.pre = NULL;
  old.architecture = "gpt2";
  write_gguf(&old);
  expect_load(context, in_folder("model.gguf"));
  heed_context_free(context);
}

/* ---- vocab.txt ------------------------------------------------------------------------------------------------------------ */

#define WORDS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"

static void vocabularies_alone_are_checked(void **state) {
  static const struct {
    const char *text, *place;
  } cases[] = {
      {"", "no vocabulary of BERT's kind: [UNK], [CLS] or [SEP] is missing"},
      {"\n\n", "no vocabulary of BERT's kind"},
      {"[PAD]\n[UNK]\n[CLS]\na\n", "no vocabulary of BERT's kind"},
      {WORDS "a\nb\n##a\nb\n", "lines 6 and 8 hold the same token (got \"b\")"},
      {WORDS "a\n##a\n##a", "lines 6 and 7 hold the same token (got \"##a\")"},
      {WORDS "[CLS]\n", "lines 3 and 5 hold the same token (got \"[CLS]\")"},
      {WORDS "a\nb\xFF\n", "tokens: token 5 is not UTF-8 (byte 1, got 0xFF)"},
      {"\x1F\x8B\x08\n" WORDS, "tokens: token 0 is not UTF-8 (byte 1, got 0x8B)"},
      {WORDS "\xED\xA0\x80\n", "tokens: token 4 is not UTF-8 (byte 0, got 0xED)"},
  };
  (void)state;
  heed_context *context = watching_context();
  write_file("vocab.txt", WORDS "a\n", sizeof WORDS "a\n" - 1);
  expect_load(context, in_folder("vocab.txt"));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file("vocab.txt", cases[i].text, strlen(cases[i].text));
    expect_refusal(context, in_folder("vocab.txt"), FORMAT, "vocab.txt", cases[i].place);
  }
  heed_context_free(context);
}

/* One line of 10 MB: no vocabulary by itself, and as a token among others nothing that anybody waits for. */
static void a_line_without_an_end(void **state) {
  enum { LENGTH = 10000000 };
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer;
  char *text = malloc(LENGTH + sizeof WORDS);
  int32_t *ids;
  int64_t count;
  memcpy(text, WORDS, sizeof WORDS - 1);
  memset(text + sizeof WORDS - 1, 'a', LENGTH);
  write_file("vocab.txt", text + sizeof WORDS - 1, LENGTH);
  assert_int_equal(heed_tokenizer_load(context, in_folder("vocab.txt"), &tokenizer), FORMAT);
  assert_non_null(strstr(heed_error(context), "vocab.txt: no vocabulary of BERT's kind"));
  assert_true(strlen(heed_error(context)) < 200);
  write_file("vocab.txt", text, sizeof WORDS - 1 + LENGTH);
  ok(context, heed_tokenizer_load(context, in_folder("vocab.txt"), &tokenizer));
  ok(context, heed_encode(context, tokenizer, (heed_text){text + sizeof WORDS - 1, LENGTH}, NULL, &ids, &count));
  assert_int_equal(count, 1);
  assert_int_equal(ids[0], 1); // longer than any word
  heed_ids_free(context, ids, count);
  heed_tokenizer_free(tokenizer);
  free(text);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_are_checked),
      cmocka_unit_test(merges_are_checked),
      cmocka_unit_test(words_are_checked),
      cmocka_unit_test(unknown_steps_are_named),
      cmocka_unit_test(sentencepiece_files_are_checked),
      cmocka_unit_test(documents_are_checked),
      cmocka_unit_test(configs_are_checked),
      cmocka_unit_test(gguf_sentencepiece_is_checked),
      cmocka_unit_test(gguf_byte_level_is_checked),
      cmocka_unit_test(vocabularies_alone_are_checked),
      cmocka_unit_test(a_line_without_an_end),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
