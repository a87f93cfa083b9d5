/* Models with an encoder and a decoder whose answers are known: logits, the attention of encoder, decoder and between them, greedy text; the source of a session, and what it refuses. */
#include "../pair_families.h"

#include "../folder.h"

static heed_context *context;

/* Holds every record against the expected array of its stage and layer. */
typedef struct comparison {
  const family *e;
  int64_t row, records[3];
} comparison;

static heed_status compare(void *user, const heed_layer_record *r) {
  static const char *const names[] = {"decoder_attention", "encoder_attention", "cross_attention"};
  comparison *c = user;
  char name[64];
  assert_int_equal(r->layer, c->records[r->stage]++);
  assert_int_equal(r->causal, r->stage == HEED_STAGE_SELF);
  snprintf(name, sizeof name, "%s.%d", names[r->stage], (int)r->layer);
  heed_view want = test_array(context, c->e->file, name);
  assert_int_equal(r->n_heads, want.dim[1]);
  for (int64_t h = 0; h < r->n_heads; h++)
    for (int64_t q = 0; q < r->queries; q++) {
      const float *row = (const float *)want.data + ((c->row * want.dim[1] + h) * want.dim[2] + q) * want.dim[3];
      double off = largest_difference(r->weights + (h * r->queries + q) * r->keys, row, r->keys);
      if (!(off <= 1e-5)) fail_msg("%s: %s of row %d off by %g", c->e->path, name, (int)c->row, off);
      for (int64_t k = r->keys; k < want.dim[3]; k++) assert_true(row[k] == 0);
    }
  heed_array_free(context, &want);
  return HEED_OK;
}

static void test_expected(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    family e;
    family_begin(context, &e, families[f]);
    const int64_t n = e.target.dim[1];
    for (int64_t row = 0; row < e.source.dim[0]; row++) {
      float got[32 * VOCABULARY];
      heed_session *session = test_session(context, e.model, 4);
      comparison c = {.e = &e, .row = row};
      heed_watch watch = {.size = sizeof watch, .record = compare, .user = &c};
      ok(context, heed_session_source(session, source_ids(&e, row), source_length(&e, row), &watch));
      assert_int_equal(heed_session_source_length(session), source_length(&e, row));
      ok(context, heed_session_run(session, target_ids(&e, row), n, got, n, &watch));
      assert_int_equal(c.records[HEED_STAGE_ENCODER], e.info.encoder_layers);
      assert_int_equal(c.records[HEED_STAGE_SELF], e.info.layers);
      assert_int_equal(c.records[HEED_STAGE_CROSS], e.info.layers);
      double off = largest_difference(got, (float *)e.logits.data + row * n * VOCABULARY, n * VOCABULARY);
      if (!(off <= 5e-5)) fail_msg("%s row %d: logits off by %g", e.path, (int)row, off);
      heed_session_free(session);
    }
    family_end(context, &e);
  }
}

/* Greedy from the start token; the last possible token is the one that the configuration forces. */
static void test_greedy(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    family e;
    family_begin(context, &e, families[f]);
    heed_view all = test_array(context, e.file, "greedy");
    const int32_t *want = all.data;
    const int64_t n = all.dim[0] - 1 - (f > 0); // of BART and Marian the last one is forced
    heed_session *session = test_session(context, e.model, 0);
    static heard h;
    memset(&h, 0, sizeof h);
    ok(context, heed_session_source(session, source_ids(&e, 0), e.source.dim[1], NULL));
    assert_int_equal(e.info.start, want[0]);
    heed_generate_options options = {.size = sizeof options, .count = n, .emit = hear, .user = &h};
    ok(context, heed_generate(session, &e.info.start, 1, &options, NULL));
    assert_int_equal(h.count, n);
    assert_memory_equal(h.ids, want + 1, (size_t)n * sizeof *want);
    heed_session_free(session);
    heed_array_free(context, &all);
    family_end(context, &e);
  }
}

/* At once, in chunks, token by token: the same bits; and a second source in the same session, without and with a watch. */
static void test_bits(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    family e;
    family_begin(context, &e, families[f]);
    const int64_t n = e.target.dim[1];
    float once[32 * VOCABULARY], again[32 * VOCABULARY];
    heed_session *session = test_session(context, e.model, 0), *cut = test_session(context, e.model, 4);
    comparison c = {.e = &e, .row = 1};
    heed_watch watch = {.size = sizeof watch, .record = compare, .user = &c};
    ok(context, heed_session_source(session, source_ids(&e, 1), source_length(&e, 1), NULL));
    ok(context, heed_session_run(session, target_ids(&e, 1), n, once, n, NULL));
    ok(context, heed_session_source(cut, source_ids(&e, 0), source_length(&e, 0), NULL));
    ok(context, heed_session_run(cut, target_ids(&e, 0), n, again, n, NULL));
    assert_memory_not_equal(once, again, (size_t)(n * VOCABULARY) * sizeof *once);
    ok(context, heed_session_source(cut, source_ids(&e, 1), source_length(&e, 1), &watch));
    assert_int_equal(heed_session_length(cut), 0);
    ok(context, heed_session_run(cut, target_ids(&e, 1), n, again, n, NULL));
    assert_memory_equal(once, again, (size_t)(n * VOCABULARY) * sizeof *once);
    ok(context, heed_session_truncate(cut, 2));
    for (int64_t i = 2; i < n; i++) ok(context, heed_session_run(cut, target_ids(&e, 1) + i, 1, again + i * VOCABULARY, 1, NULL));
    assert_memory_equal(once, again, (size_t)(n * VOCABULARY) * sizeof *once);
    heed_session_free(session);
    heed_session_free(cut);
    family_end(context, &e);
  }
}

static void test_describe(void **state) {
  (void)state;
  family e;
  family_begin(context, &e, "bart");
  assert_string_equal(e.info.family, "bart");
  assert_int_equal(e.info.layers, 3);
  assert_int_equal(e.info.encoder_layers, 2);
  assert_int_equal(e.info.encoder_heads, 4);
  assert_int_equal(e.info.encoder_vocabulary, VOCABULARY);
  assert_int_equal(e.info.encoder_context, 64);
  assert_int_equal(e.info.start, 2);
  assert_false(e.info.bidirectional);
  const int64_t square = 48 * 48 + 48, wide = 2 * 48 * 80 + 48 + 80, norm = 2 * 48;
  const int64_t encoder = 66 * 48 + norm + 2 * (4 * square + wide + 2 * norm),
                decoder = 66 * 48 + norm + 3 * (8 * square + wide + 3 * norm);
  assert_int_equal(e.info.parameters, 96 * 48 + 96 + encoder + decoder);
  family_end(context, &e);
  heed_model *other = test_model(context, SORT);
  assert_int_equal(test_info(other).encoder_layers, 0);
  assert_int_equal(test_info(other).start, -1);
  heed_model_free(other);
}

/* softmax(q·k) of the copies must be the weights, in each stage: that ties queries and keys to what was computed. An edit that changes nothing mixes the same values. */
static heed_status check_copies(void *user, heed_layer_record *r) {
  enum { D = 12 };
  *(double *)user = fmax(*(double *)user, 0);
  for (int64_t row = 0; row < r->n_heads * r->queries; row++) {
    const float *q = r->q + row * D, *weights = r->weights + row * r->keys;
    double score[64], sum = 0;
    const int64_t visible = r->causal ? r->first + row % r->queries + 1 : r->keys;
    for (int64_t j = 0; j < visible; j++) {
      const float *k = r->k + (row / r->queries * r->keys + j) * D;
      score[j] = 0;
      for (int c = 0; c < D; c++) score[j] += (double)q[c] * (double)k[c];
      sum += score[j] = exp(score[j] / sqrt((double)D));
    }
    for (int64_t j = 0; j < visible; j++) *(double *)user = fmax(*(double *)user, fabs(score[j] / sum - (double)weights[j]));
  }
  return HEED_OK;
}

static void test_copies_and_edits(void **state) {
  (void)state;
  for (int f = 1; f < FAMILIES; f++) { // T5 adds numbers to its scores
    family e;
    family_begin(context, &e, families[f]);
    float plain[32 * VOCABULARY], edited[32 * VOCABULARY];
    const int64_t n = e.target.dim[1];
    double worst = -1;
    heed_session *session = test_session(context, e.model, 0);
    heed_watch watch = {.size = sizeof watch, .edit = check_copies, .want_qkv = true, .user = &worst};
    ok(context, heed_session_source(session, source_ids(&e, 0), e.source.dim[1], NULL));
    ok(context, heed_session_run(session, target_ids(&e, 0), n, plain, n, NULL));
    ok(context, heed_session_source(session, source_ids(&e, 0), e.source.dim[1], &watch));
    ok(context, heed_session_run(session, target_ids(&e, 0), n, edited, n, &watch));
    assert_true(worst >= 0 && worst <= 1e-6);
    assert_true(largest_difference(plain, edited, n * VOCABULARY) <= 1e-5);
    heed_session_free(session);
    family_end(context, &e);
  }
}

/* Another file beside the weights of a fixture; the model of the folder. */
static heed_model *model_with_config(const char *folder, const char *family, const char *config) {
  char path[512], command[1200];
  snprintf(command, sizeof command, "cp " TEST_EXPECTED "families/%s/model.safetensors %s/", family, folder);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof path, "%s/config.json", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(config, file);
  fclose(file);
  return test_model(context, folder);
}

/* One key of a fixture's configuration changed: what does not fit the weights, or what heed does not know, is refused with the key or the tensor. */
static void test_malformed(void **state) {
  (void)state;
  static const struct {
    const char *family, *key, *value;
    heed_status status;
    const char *fragment;
  } cases[] = {
      {"bart", "decoder_start_token_id", "96", HEED_E_FORMAT, "decoder_start_token_id"},
      {"bart", "decoder_start_token_id", "\"<s>\"", HEED_E_FORMAT, "decoder_start_token_id"},
      {"bart", "forced_eos_token_id", "-1", HEED_E_FORMAT, "forced_eos_token_id"},
      {"bart", "encoder_layers", "1", HEED_E_FORMAT, "tensors of a layer beyond the last (got layer 1"},
      {"bart", "encoder_layers", "3", HEED_E_FORMAT, "model.encoder.layers.2."},
      {"bart", "decoder_layers", "1000000", HEED_E_FORMAT, "decoder_layers"},
      {"bart", "decoder_layers", "9999", HEED_E_FORMAT, "more layers than tensors"},
      {"bart", "decoder_attention_heads", "5", HEED_E_FORMAT, "heads must divide the width (got 5 and 48)"},
      {"bart", "encoder_ffn_dim", "81", HEED_E_FORMAT, "model.encoder.layers.0.fc1.weight"},
      {"bart", "max_position_embeddings", "65", HEED_E_FORMAT, "embed_positions.weight"},
      {"bart", "vocab_size", "95", HEED_E_FORMAT, "model.shared.weight"},
      {"bart", "normalize_before", "true", HEED_E_UNSUPPORTED, "normalize_before, got true"},
      {"bart", "static_position_embeddings", "true", HEED_E_UNSUPPORTED, "static_position_embeddings, got true"},
      {"bart", "activation_function", "\"mish\"", HEED_E_UNSUPPORTED, "got mish"},
      {"bart", "bad_words_ids", "3", HEED_E_FORMAT, "bad_words_ids"},
      {"marian", "share_encoder_decoder_embeddings", "false", HEED_E_FORMAT, "model.decoder.embed_tokens.weight"},
      {"marian", "decoder_vocab_size", "97", HEED_E_FORMAT, "one embedding for vocabularies of 96 and 97"},
      {"marian", "static_position_embeddings", "false", HEED_E_UNSUPPORTED, "static_position_embeddings, got false"},
      {"marian", "tie_word_embeddings", "false", HEED_E_FORMAT, "lm_head.weight"},
      {"t5", "feed_forward_proj", "\"gated-mish\"", HEED_E_UNSUPPORTED, "got gated-mish"},
      {"t5", "feed_forward_proj", "\"relu\"", HEED_E_FORMAT, "DenseReluDense.wi.weight"},
      {"t5", "relative_attention_num_buckets", "7", HEED_E_FORMAT, "even number of buckets"},
      {"t5", "relative_attention_num_buckets", "10", HEED_E_FORMAT, "relative_attention_bias.weight"},
      {"t5", "relative_attention_max_distance", "2", HEED_E_FORMAT, "a distance beyond the near ones"},
      {"t5", "d_kv", "13", HEED_E_FORMAT, "SelfAttention.q.weight"},
      {"t5", "num_decoder_layers", "2", HEED_E_FORMAT, "tensors of a layer beyond the last (got layer 2"},
  };
  char folder[FOLDER_PATH], command[1200], path[512];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    heed_model *model;
    begin_folder(folder);
    snprintf(command, sizeof command, "cp " TEST_EXPECTED "families/%s/model.safetensors %s/", cases[i].family, folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, TEST_EXPECTED "families/%s/config.json", cases[i].family);
    json_t *config = test_json(path), *value = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
    assert_int_equal(json_object_set_new(config, cases[i].key, value), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    const heed_status status = heed_model_load(context, folder, &model);
    if (status != cases[i].status || !strstr(heed_error(context), cases[i].fragment))
      fail_msg("%s, %s = %s: %s \"%s\" does not say \"%s\"", cases[i].family, cases[i].key, cases[i].value, heed_status_name(status),
               heed_error(context), cases[i].fragment);
    assert_null(model);
    end_folder(folder);
  }
}

/* T5 before version 5 of transformers says by tie_word_embeddings alone that the head, which is the embedding, reads the stream divided by √width. */
static void test_t5_scaled(void **state) {
  (void)state;
  char folder[FOLDER_PATH];
  family e;
  float got[32 * VOCABULARY];
  begin_folder(folder);
  family_begin(context, &e, "t5");
  const int64_t n = e.target.dim[1];
  heed_model *model = model_with_config(
      folder, "t5",
      "{\"model_type\": \"t5\", \"d_model\": 48, \"num_heads\": 4, \"d_kv\": 12, \"d_ff\": 80, \"vocab_size\": 96, \"num_layers\": 3,"
      "\"feed_forward_proj\": \"gated-gelu\", \"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 16,"
      "\"decoder_start_token_id\": 0}");
  heed_session *session = test_session(context, model, 0);
  ok(context, heed_session_source(session, source_ids(&e, 0), e.source.dim[1], NULL));
  ok(context, heed_session_run(session, target_ids(&e, 0), n, got, n, NULL));
  for (int64_t i = 0; i < n * VOCABULARY; i++) got[i] *= sqrtf(48);
  assert_true(largest_difference(got, e.logits.data, n * VOCABULARY) <= 5e-5);
  heed_session_free(session);
  heed_model_free(model);
  family_end(context, &e);
  end_folder(folder);
}

/* What a session refuses leaves it as it was. */
static void test_refusals(void **state) {
  (void)state;
  family e;
  family_begin(context, &e, "bart");
  float logits[VOCABULARY];
  int32_t ids[65] = {5, 6, 7};
  heed_session *session = test_session(context, e.model, 0);
  assert_int_equal(heed_session_run(session, ids, 3, logits, 1, NULL), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "needs a source"));
  assert_int_equal(heed_session_source(session, ids, 0, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_source(session, NULL, 1, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_source(session, ids, 65, NULL), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "allowed 64"));
  ids[1] = VOCABULARY;
  assert_int_equal(heed_session_source(session, ids, 3, NULL), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "place 1"));
  ids[1] = 6;
  ok(context, heed_session_source(session, ids, 64, NULL));
  const int64_t second = 2;
  double worst = 0;
  heed_watch watch = {.size = sizeof watch, .edit = check_copies, .want_qkv = true, .user = &worst, .layers = &second, .n_layers = 1};
  assert_int_equal(heed_session_source(session, ids, 3, &watch), HEED_E_ARGUMENT); // the encoder has two layers
  assert_int_equal(heed_session_source_length(session), 64);
  ok(context, heed_session_run(session, ids, 3, logits, 1, &watch)); // the decoder three
  assert_int_equal(heed_session_source(NULL, ids, 3, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_source_length(NULL), 0);
  heed_session_free(session);
  family_end(context, &e);

  heed_model *plain = test_model(context, SORT);
  session = test_session(context, plain, 0);
  assert_int_equal(heed_session_source(session, ids, 1, NULL), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "without an encoder"));
  heed_session_free(session);
  heed_model_free(plain);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_expected),  cmocka_unit_test(test_greedy),    cmocka_unit_test(test_bits),
      cmocka_unit_test(test_describe),  cmocka_unit_test(test_refusals),  cmocka_unit_test(test_copies_and_edits),
      cmocka_unit_test(test_malformed), cmocka_unit_test(test_t5_scaled),
  };
  context = test_context(NULL);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failures;
}
