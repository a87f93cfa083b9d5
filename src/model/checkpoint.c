/* checkpoint.c: a learner, its optimiser and where the run is, as the parts of a checkpoint (io/checkpoint.h sees to it that they are whole). */
#include "learner.h"

#include "../io/checkpoint.h"
#include "../kern/matrix.h"
#include "../tensor/tensor.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <zlib.h>

/* The arrays of a run by name; parameters that learn first, then moments: "layers.0.qkv.weight.1". Those that are frozen are where they came from; of them a checksum is kept. */
typedef struct listing {
  hd_arena arena;
  hd_array *array;
  int64_t parameters, count;
  char *directory;
} listing;

static void listing_close(listing *l) { hd_arena_free(&l->arena); }

static heed_status listing_open(heed_context *context, const char *directory, const heed_parameters *set, const heed_optimiser *optimiser,
                                listing *l) {
  int moments = heed_optimiser_moments(optimiser);
  const int64_t all = heed_parameters_count(set);
  *l = (listing){0};
  hd_arena_init(&l->arena, context);
  size_t room = strlen(directory) + sizeof "/checkpoints";
  HD_TRY(hd_arena_allocate(&l->arena, context, "a path", (int64_t)room, 1, &l->directory));
  snprintf(l->directory, room, "%s/checkpoints", directory);
  HD_TRY(hd_arena_allocate(&l->arena, context, "a checkpoint", all * (1 + moments), sizeof *l->array, &l->array));
  for (int which = -1; which < moments; which++) {
    for (int64_t i = 0; i < all; i++) {
      const heed_tensor *t = heed_parameters_at(set, i);
      const char *name = heed_tensor_name(t);
      heed_view view = which < 0 ? heed_tensor_value(t) : heed_optimiser_state(optimiser, i, which);
      size_t length = strlen(name) + 24;
      char *copy;
      if (t->frozen) continue;
      HD_TRY(hd_arena_allocate(&l->arena, context, "a checkpoint", (int64_t)length, 1, &copy));
      if (which < 0) snprintf(copy, length, "%s", name);
      else snprintf(copy, length, "%s.%d", name, which);
      l->array[l->count++] = (hd_array){.name = copy, .view = view};
    }
    if (which < 0) l->parameters = l->count;
  }
  return HEED_OK;
}

/* CRC-32 of all that is frozen; 0 where nothing is. */
static uint32_t frozen_crc(const heed_parameters *set) {
  uLong crc = 0;
  for (int64_t i = 0; i < heed_parameters_count(set); i++) {
    const heed_tensor *t = heed_parameters_at(set, i);
    if (!t->frozen) continue;
    if (!t->stored) crc = crc32_z(crc, (const Bytef *)hd_value(t), (z_size_t)hd_count(t) * sizeof(float));
    for (int p = 0; p < t->stored_parts; p++) crc = crc32_z(crc, t->stored[p].packed, (z_size_t)t->stored[p].bytes);
  }
  return (uint32_t)crc;
}

static const char parameters_name[] = "parameters.safetensors", moments_name[] = "moments.safetensors", state_name[] = "state.json";

/* ---- saving -------------------------------------------------------------------------------------------------------------------- */

static json_t *state_json(const heed_train_state *state, const heed_learner *learner, const heed_optimiser *optimiser,
                          const char *settings) {
  return json_pack("{sI sf sI sI sb sb sf sf sI sI ss}", "step", (json_int_t)state->step, "best_loss", state->best_loss, "best_step",
                   (json_int_t)state->best_step, "worse", (json_int_t)state->worse, "owes_report", (int)state->owes_report, "skipped",
                   (int)state->skipped, "loss", state->loss, "gradient_norm", state->gradient_norm, "optimiser_steps",
                   (json_int_t)heed_optimiser_steps(optimiser), "frozen_crc32", (json_int_t)frozen_crc(learner->parameters), "settings",
                   settings);
}

heed_status heed_checkpoint_save(heed_context *context, const char *directory, const heed_learner *learner, const heed_optimiser *optimiser,
                                 const heed_train_state *state, const char *settings) {
  listing l;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(directory && learner && optimiser && state && settings, context, HEED_E_ARGUMENT, "heed_checkpoint_save: null");
  HD_REQUIRE(isfinite(state->best_loss) && isfinite(state->loss) && isfinite(state->gradient_norm), context, HEED_E_ARGUMENT,
             "heed_checkpoint_save: a number of the state is not finite");
  heed_status status = listing_open(context, directory, learner->parameters, optimiser, &l);
  json_t *json = state_json(state, learner, optimiser, settings);
  if (status == HEED_OK && !json) status = hd_fail(context, HEED_E_MEMORY, "out of memory (the state of a run)");
  const hd_arrays parameters = {l.array, l.parameters, NULL}, moments = {l.array + l.parameters, l.count - l.parameters, NULL};
  const hd_checkpoint_part parts[] = {{parameters_name, &parameters, NULL}, {moments_name, &moments, NULL}, {state_name, NULL, json}};
  const hd_checkpoint_content content = {state->step, parts, HD_COUNT(parts)};
  if (status == HEED_OK) status = hd_checkpoint_save(context, l.directory, &content, NULL);
  json_decref(json);
  listing_close(&l);
  return status;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

/* One line of text at *at, which moves on. */
static heed_text next_line(const char **at) {
  size_t length = strcspn(*at, "\n");
  heed_text line = {*at, length};
  *at += length + ((*at)[length] == '\n');
  return line;
}

/* Settings are compared line by line, so that the sentence can name what differs. */
static heed_status compare_settings(heed_context *context, const char *path, const char *kept, const char *asked) {
  while (*kept || *asked) {
    heed_text a = next_line(&kept), b = next_line(&asked);
    if (a.length == b.length && memcmp(a.data, b.data, a.length) == 0) continue;
    const char *space = memchr(b.data, ' ', b.length);
    int name = space ? (int)(space - b.data) : 0;
    bool same_name = name > 0 && a.length > (size_t)name && memcmp(a.data, b.data, (size_t)name + 1) == 0;
    HD_REQUIRE(same_name, context, HEED_E_ARGUMENT, "%s: the run was begun with other settings (%.*s there, %.*s asked for)", path,
               (int)a.length, a.data, (int)b.length, b.data);
    return hd_fail(context, HEED_E_ARGUMENT, "%s: the run was begun with another setting (%.*s: %.*s there, %.*s asked for)", path, name,
                   b.data, (int)a.length - name - 1, a.data + name + 1, (int)b.length - name - 1, b.data + name + 1);
  }
  return HEED_OK;
}

static heed_status read_where(const hd_json_place *place, heed_train_state *state) {
  *state = (heed_train_state){.size = sizeof *state};
  HD_TRY(hd_json_integer(place, "step", 0, INT64_MAX, &state->step));
  HD_TRY(hd_json_integer(place, "best_step", 0, INT64_MAX, &state->best_step));
  HD_TRY(hd_json_integer(place, "worse", 0, INT64_MAX, &state->worse));
  HD_TRY(hd_json_number(place, "best_loss", -1e300, 1e300, &state->best_loss));
  HD_TRY(hd_json_bool(place, "owes_report", &state->owes_report));
  HD_TRY(hd_json_bool(place, "skipped", &state->skipped));
  HD_TRY(hd_json_number(place, "loss", -1e300, 1e300, &state->loss));
  return hd_json_number(place, "gradient_norm", 0, 1e300, &state->gradient_norm);
}

static heed_status read_state(const hd_checkpoint *checkpoint, const json_t *json, const heed_learner *learner, const char *settings,
                              heed_train_state *state, int64_t *optimiser_steps) {
  heed_context *context = checkpoint->context;
  const hd_json_place place = {context, checkpoint->path, "", json};
  heed_text kept;
  char *copy;
  HD_TRY(hd_json_text(&place, "settings", &kept));
  HD_TRY(hd_arena_text((hd_arena *)&checkpoint->arena, context, kept.data, kept.length, &copy));
  HD_TRY(compare_settings(context, checkpoint->path, copy, settings));
  const int64_t here = frozen_crc(learner->parameters);
  int64_t there;
  HD_TRY(hd_json_integer_or(&place, "frozen_crc32", 0, 0, UINT32_MAX, &there));
  HD_REQUIRE(there == here, context, HEED_E_ARGUMENT,
             "%s: the run was begun with other frozen parameters (checksum %08llx there, %08llx here)", checkpoint->path,
             (unsigned long long)there, (unsigned long long)here);
  HD_TRY(read_where(&place, state));
  return hd_json_integer(&place, "optimiser_steps", 0, INT64_MAX, optimiser_steps);
}

static heed_status read_checkpoint(const hd_checkpoint *checkpoint, const listing *l, const heed_learner *learner,
                                   heed_optimiser *optimiser, heed_train_state *state, const char *settings) {
  json_t *json = NULL;
  heed_train_state read;
  int64_t steps = 0;
  HD_TRY(hd_checkpoint_json(checkpoint, state_name, &json));
  heed_status status = read_state(checkpoint, json, learner, settings, &read, &steps);
  json_decref(json);
  HD_TRY(status);
  HD_TRY(hd_checkpoint_arrays(checkpoint, parameters_name, l->array, l->parameters));
  HD_TRY(hd_checkpoint_arrays(checkpoint, moments_name, l->array + l->parameters, l->count - l->parameters));
  heed_optimiser_set_steps(optimiser, steps);
  *state = read;
  return HEED_OK;
}

heed_status heed_checkpoint_load(heed_context *context, const char *directory, heed_learner *learner, heed_optimiser *optimiser,
                                 heed_train_state *state, const char *settings, heed_damage_fn damage, void *user, bool *found) {
  listing l;
  hd_checkpoint *checkpoint = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(directory && learner && optimiser && state && settings && found, context, HEED_E_ARGUMENT, "heed_checkpoint_load: null");
  *found = false;
  heed_status status = listing_open(context, directory, learner->parameters, optimiser, &l);
  if (status == HEED_OK) status = hd_checkpoint_open(context, l.directory, &checkpoint);
  if (status == HEED_OK && checkpoint) {
    if (damage && *checkpoint->passed_over) damage(user, checkpoint->passed_over);
    status = read_checkpoint(checkpoint, &l, learner, optimiser, state, settings);
    *found = status == HEED_OK;
  }
  hd_checkpoint_close(checkpoint);
  listing_close(&l);
  return status;
}

/* ---- looking ------------------------------------------------------------------------------------------------------------------- */

typedef struct look {
  heed_checkpoint_fn each;
  void *user;
} look;

static heed_status look_at(void *user, const hd_checkpoint *checkpoint, const char *damage) {
  const look *l = user;
  heed_checkpoint_info info = {.size = sizeof info, .path = checkpoint->path, .step = checkpoint->step, .damage = damage};
  json_t *json = NULL;
  if (!damage && (hd_checkpoint_json(checkpoint, state_name, &json) != HEED_OK ||
                  read_where(&(hd_json_place){checkpoint->context, checkpoint->path, "", json}, &info.state) != HEED_OK))
    info.damage = heed_error(checkpoint->context);
  json_decref(json);
  l->each(l->user, &info);
  return HEED_OK;
}

heed_status heed_checkpoint_inspect(heed_context *context, const char *directory, heed_checkpoint_fn each, void *user) {
  char *path;
  int64_t room;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(directory && each, context, HEED_E_ARGUMENT, "heed_checkpoint_inspect: null");
  HD_TRY(hd_join_path(context, directory, "checkpoints", &path, &room));
  heed_status status = hd_checkpoint_visit(context, path, look_at, &(look){each, user});
  hd_release(context, path, room, 1);
  return status;
}

/* A run that was killed during its first save has the directory and nothing in it. */
bool heed_checkpoint_exists(const char *directory) {
  char path[4096];
  bool found = false;
  DIR *stream = directory && snprintf(path, sizeof path, "%s/checkpoints", directory) < (int)sizeof path ? opendir(path) : NULL;
  if (!stream) return false;
  for (const struct dirent *entry; !found && (entry = readdir(stream));) found = strncmp(entry->d_name, "checkpoint-", 11) == 0;
  closedir(stream);
  return found;
}
