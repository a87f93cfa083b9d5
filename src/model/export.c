/* export.c: a model as a Hugging Face directory. Which arrays and what configuration there are is for those to say who made it; here they are written, with the tokenizers beside them. */
#include "export.h"
#include "learner.h"

#include "../io/json.h"

#include <errno.h>
#include <stdio.h>

void hd_export_put(hd_export *e, const char *name, heed_view view, void (*bring)(heed_context *, const void *, float *)) {
  char *copy = NULL;
  if (e->status == HEED_OK) e->status = hd_arena_text(&e->arena, e->context, name, strlen(name), &copy);
  if (e->status == HEED_OK) e->status = hd_grow(e->context, "names of tensors", &e->array, &e->room, e->count + 1, sizeof *e->array);
  if (e->status == HEED_OK) e->array[e->count++] = (hd_array){.name = copy, .view = view, .bring = bring};
}

heed_status hd_export_directory(heed_context *context, const char *directory) {
  if (hd_is_directory(directory) || hd_machine.make_directory(NULL, directory) == 0) return HEED_OK;
  return hd_fail(context, HEED_E_WRITE, "%s: %s", directory, strerror(errno));
}

static heed_status write_weights(hd_export *e, const char *path) {
  json_t *metadata = json_pack("{ss}", "format", "pt"); // transformers refuses a file that does not say so
  HD_REQUIRE(metadata, e->context, HEED_E_MEMORY, "out of memory (the weights' metadata)");
  heed_status status = hd_safetensors_save(e->context, path, &(hd_arrays){e->array, e->count, metadata});
  json_decref(metadata);
  return status;
}

static bool put_id(json_t *config, const char *key, int32_t id) {
  return json_object_set_new(config, key, id >= 0 ? json_integer(id) : json_null()) == 0;
}

/* Without them transformers would take the ids of the family's own tokenizer for the tokens that begin and end a text. */
static bool put_ends(json_t *config, const hd_export_ends *ends) {
  return (!ends->has_start || put_id(config, "decoder_start_token_id", ends->start)) && put_id(config, "bos_token_id", ends->bos) &&
         put_id(config, "eos_token_id", ends->eos) && put_id(config, "pad_token_id", ends->pad);
}

static heed_status write_config(hd_export *e, const hd_export_ends *ends, const char *path) {
  HD_REQUIRE(e->config && put_ends(e->config, ends), e->context, HEED_E_MEMORY, "out of memory (the configuration)");
  return hd_json_save(e->context, path, e->config);
}

heed_status hd_export_save(hd_export *e, const hd_export_ends *ends, const heed_tokenizer *tokenizer, const heed_tokenizer *target,
                           const char *directory) {
  static const char *const names[] = {"model.safetensors", "config.json", "target"};
  heed_context *context = e->context;
  char *path[HD_COUNT(names)] = {NULL};
  int64_t room[HD_COUNT(names)];
  heed_status status = e->status;
  for (int i = 0; i < HD_COUNT(names) && status == HEED_OK; i++) status = hd_join_path(context, directory, names[i], &path[i], &room[i]);
  // Tokenizers first: there are some that cannot be written, and then nothing is.
  if (status == HEED_OK && tokenizer) status = heed_tokenizer_save(context, tokenizer, directory);
  if (status == HEED_OK && target) status = hd_export_directory(context, path[2]);
  if (status == HEED_OK && target) status = heed_tokenizer_save(context, target, path[2]);
  if (status == HEED_OK) status = write_weights(e, path[0]);
  if (status == HEED_OK) status = write_config(e, ends, path[1]);
  // The files themselves are durable; their names are in the directory.
  if (status == HEED_OK && hd_machine.sync_directory(NULL, directory) != 0)
    status = hd_fail(context, HEED_E_WRITE, "%s: %s", directory, strerror(errno));
  for (int i = 0; i < HD_COUNT(names); i++)
    if (path[i]) hd_release(context, path[i], room[i], 1);
  return status;
}

void hd_export_free(hd_export *e) {
  json_decref(e->config);
  hd_release(e->context, e->array, e->room, sizeof *e->array);
  hd_arena_free(&e->arena);
}

static heed_status ends_of(const heed_learner *learner, const heed_tokenizer *tokenizer, hd_export_ends *out) {
  heed_tokenizer_info info = {.size = sizeof info, .bos = -1, .eos = -1, .pad = -1};
  if (tokenizer) HD_TRY(heed_tokenizer_describe(tokenizer, &info));
  *out = (hd_export_ends){.has_start = learner->source > 0,
                          .start = learner->has_ends ? learner->start : info.bos,
                          .bos = info.bos,
                          .eos = learner->has_ends ? learner->end : info.eos,
                          .pad = info.pad};
  return HEED_OK;
}

heed_status heed_learner_save(const heed_learner *learner, const heed_tokenizer *tokenizer, const char *directory) {
  if (!learner) return HEED_E_ARGUMENT;
  heed_context *context = learner->context;
  HD_REQUIRE(directory, context, HEED_E_ARGUMENT, "heed_learner_save: directory is null");
  hd_export e = {.context = context};
  hd_export_ends ends;
  hd_arena_init(&e.arena, context);
  heed_status status = ends_of(learner, tokenizer, &ends);
  if (status == HEED_OK) status = learner->body->describe(learner, &e);
  if (status == HEED_OK) status = hd_export_save(&e, &ends, tokenizer, NULL, directory);
  hd_export_free(&e);
  return status;
}
