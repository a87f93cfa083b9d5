/* export.c: what was learned as a Hugging Face directory. Which arrays and what configuration there are is the body's to say; here they are written, with the tokenizer beside them. */
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

static heed_status path_in(hd_export *e, const char *directory, const char *name, char **out) {
  size_t room = strlen(directory) + strlen(name) + 2;
  HD_TRY(hd_arena_allocate(&e->arena, e->context, "a path", (int64_t)room, 1, out));
  snprintf(*out, room, "%s/%s", directory, name);
  return HEED_OK;
}

heed_status hd_export_weights(hd_export *e, const char *directory) {
  heed_context *context = e->context;
  char *path;
  json_t *metadata = json_pack("{ss}", "format", "pt"); // transformers refuses a file that does not say so
  HD_REQUIRE(metadata, context, HEED_E_MEMORY, "out of memory (the weights' metadata)");
  heed_status status = path_in(e, directory, "model.safetensors", &path);
  if (status == HEED_OK) status = hd_safetensors_save(context, path, &(hd_arrays){e->array, e->count, metadata});
  json_decref(metadata);
  return status;
}

static json_t *id_or_null(int32_t id) { return id >= 0 ? json_integer(id) : json_null(); }

/* Without them transformers would take the ids of the family's own tokenizer for the tokens that begin and end a text. */
static int put_ends(json_t *config, const heed_learner *learner, const heed_tokenizer *tokenizer) {
  heed_tokenizer_info info = {.size = sizeof info, .bos = -1, .eos = -1, .pad = -1};
  if (tokenizer && heed_tokenizer_describe(tokenizer, &info) != HEED_OK) return -1;
  const int32_t start = learner->has_ends ? learner->start : info.bos;
  if (learner->has_ends) info.eos = learner->end;
  if (learner->source > 0 && json_object_set_new(config, "decoder_start_token_id", id_or_null(start)) != 0) return -1;
  return json_object_set_new(config, "bos_token_id", id_or_null(info.bos)) |
         json_object_set_new(config, "eos_token_id", id_or_null(info.eos)) |
         json_object_set_new(config, "pad_token_id", id_or_null(info.pad));
}

static heed_status write_config(hd_export *e, const heed_learner *learner, const heed_tokenizer *tokenizer, const char *directory) {
  char *path;
  HD_TRY(path_in(e, directory, "config.json", &path));
  HD_REQUIRE(e->config && put_ends(e->config, learner, tokenizer) == 0, e->context, HEED_E_MEMORY, "out of memory (the configuration)");
  return hd_json_save(e->context, path, e->config);
}

heed_status heed_learner_save(const heed_learner *learner, const heed_tokenizer *tokenizer, const char *directory) {
  if (!learner) return HEED_E_ARGUMENT;
  heed_context *context = learner->context;
  HD_REQUIRE(directory, context, HEED_E_ARGUMENT, "heed_learner_save: directory is null");
  hd_export e = {.context = context};
  hd_arena_init(&e.arena, context);
  heed_status status = learner->body->describe(learner, &e);
  if (status == HEED_OK) status = hd_export_weights(&e, directory);
  if (status == HEED_OK) status = write_config(&e, learner, tokenizer, directory);
  if (status == HEED_OK && tokenizer) status = heed_tokenizer_save(context, tokenizer, directory);
  // The files themselves are durable; their names are in the directory.
  if (status == HEED_OK && hd_machine.sync_directory(NULL, directory) != 0)
    status = hd_fail(context, HEED_E_WRITE, "%s: %s", directory, strerror(errno));
  json_decref(e.config);
  hd_release(context, e.array, e.room, sizeof *e.array);
  hd_arena_free(&e.arena);
  return status;
}
