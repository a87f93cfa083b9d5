/* checkpoint.c: writing, finding and thinning out checkpoints. Whatever step of a save is the last one that happens, the directory holds the checkpoints from before or those
 * and the new one: until the rename nothing but .tmp-NNNNNN changes, and old ones go only after it. */
#include "checkpoint.h"
#include "manifest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <zlib.h>

#define NAME   "checkpoint-"
#define ASIDE  ".tmp-"
#define DIGITS "%06lld"

enum { NAME_BYTES = 40 };

/* ---- directories ------------------------------------------------------------------------------------------------------------ */

/* The number of "checkpoint-NNNNNN", or −1. */
static int64_t number_of(const char *name) {
  const size_t prefix = sizeof NAME - 1, length = strlen(name);
  int64_t number = 0;
  if (strncmp(name, NAME, prefix) != 0 || length < prefix + 6 || length > prefix + 18) return -1;
  for (const char *c = name + prefix; *c; c++) {
    if (*c < '0' || *c > '9') return -1;
    number = 10 * number + (*c - '0');
  }
  return number;
}

typedef struct listing {
  int64_t *number; /* of the checkpoints, newest first */
  int64_t count, capacity;
} listing;

static int newest_first(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

/* Empty where there is no such directory. */
static heed_status list(heed_context *context, const char *directory, listing *out) {
  *out = (listing){0};
  heed_status status = HEED_OK;
  DIR *stream = opendir(directory);
  if (!stream && errno == ENOENT) return HEED_OK;
  HD_REQUIRE(stream, context, HEED_E_FILE, "%s: %s", directory, strerror(errno));
  for (const struct dirent *entry; status == HEED_OK && (entry = readdir(stream));) {
    const int64_t number = number_of(entry->d_name);
    if (number < 0) continue;
    status = hd_grow(context, "a list of checkpoints", &out->number, &out->capacity, out->count + 1, sizeof *out->number);
    if (status == HEED_OK) out->number[out->count++] = number;
  }
  closedir(stream);
  if (out->count) qsort(out->number, (size_t)out->count, sizeof *out->number, newest_first);
  return status;
}

static void list_free(heed_context *context, listing *list) { hd_release(context, list->number, list->capacity, sizeof *list->number); }

/* DIRECTORY/PREFIXNNNNNN. */
static heed_status numbered(heed_context *context, const char *directory, const char *prefix, int64_t number, char **path, int64_t *room) {
  char name[NAME_BYTES];
  snprintf(name, sizeof name, "%s" DIGITS, prefix, (long long)number);
  return hd_join_path(context, directory, name, path, room);
}

/* Removes a directory of files, the manifest first, so that what is left half way says so. That it cannot be removed harms nobody but the disk. */
static void remove_tree(heed_context *context, const hd_file_system *system, const char *path) {
  char *file;
  int64_t room;
  if (hd_join_path(context, path, HD_MANIFEST, &file, &room) != HEED_OK) return;
  system->remove(system->user, file);
  hd_release(context, file, room, 1);
  DIR *stream = opendir(path);
  if (!stream) return;
  for (const struct dirent *entry; (entry = readdir(stream));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (hd_join_path(context, path, entry->d_name, &file, &room) != HEED_OK) break;
    system->remove(system->user, file);
    hd_release(context, file, room, 1);
  }
  closedir(stream);
  system->remove(system->user, path);
}

/* What runs that were killed have left. */
static void remove_leftovers(heed_context *context, const hd_file_system *system, const char *directory) {
  DIR *stream = opendir(directory);
  if (!stream) return;
  for (const struct dirent *entry; (entry = readdir(stream));) {
    char *path;
    int64_t room;
    if (strncmp(entry->d_name, ASIDE, sizeof ASIDE - 1) != 0 || hd_join_path(context, directory, entry->d_name, &path, &room) != HEED_OK)
      continue;
    remove_tree(context, system, path);
    hd_release(context, path, room, 1);
  }
  closedir(stream);
}

/* ---- saving ----------------------------------------------------------------------------------------------------------------- */

/* One part, ready to be written. */
typedef struct prepared {
  hd_safetensors arrays;
  char *text; /* of JSON */
  int64_t bytes;
} prepared;

typedef struct saving {
  heed_context *context;
  const hd_file_system *system;
  const char *directory;
  const hd_checkpoint_content *content;
  prepared *parts; /* [content->count] */
  int64_t left;    /* bytes of parts that are not yet written */
  hd_manifest manifest;
} saving;

/* A file under way and the checksum of what has gone into it. */
typedef struct sink {
  hd_writer writer;
  uLong crc;
} sink;

static heed_status put(void *user, const void *data, int64_t bytes) {
  sink *to = user;
  HD_TRY(hd_writer_write(&to->writer, data, bytes));
  // zlib counts in 32 bits.
  for (int64_t done = 0, piece; done < bytes; done += piece) {
    piece = HD_MIN(bytes - done, 1 << 30);
    to->crc = crc32(to->crc, (const Bytef *)data + done, (uInt)piece);
  }
  return HEED_OK;
}

static heed_status prepare_part(saving *s, int64_t i) {
  const hd_checkpoint_part *part = &s->content->part[i];
  prepared *ready = &s->parts[i];
  const bool named =
      part->name && part->name[0] && part->name[0] != '.' && !strchr(part->name, '/') && strcmp(part->name, HD_MANIFEST) != 0;
  HD_REQUIRE(named && (part->arrays || part->json), s->context, HEED_E_ARGUMENT,
             "a part of a checkpoint has no name or no content (part %lld)", (long long)i);
  for (int64_t other = 0; other < i; other++)
    HD_REQUIRE(strcmp(s->content->part[other].name, part->name) != 0, s->context, HEED_E_ARGUMENT,
               "two parts of a checkpoint have one name (got \"%s\")", part->name);
  if (part->arrays) HD_TRY(hd_safetensors_prepare(s->context, part->name, part->arrays, &ready->arrays));
  else HD_TRY(hd_json_dump(s->context, part->json, HD_JSON_INDENTED, &ready->text, &ready->bytes));
  s->left += part->arrays ? ready->arrays.bytes : ready->bytes;
  return HEED_OK;
}

static heed_status put_part(const prepared *part, sink *to) {
  return part->text ? put(to, part->text, part->bytes) : hd_safetensors_put(&part->arrays, put, to);
}

static heed_status write_file(saving *s, const char *aside, const char *name, const prepared *part, uint32_t *crc) {
  char *path;
  int64_t room;
  sink to = {.crc = 0};
  HD_TRY(hd_join_path(s->context, aside, name, &path, &room));
  heed_status status = hd_writer_begin_on(s->context, s->system, path, &to.writer);
  if (status == HEED_OK) {
    to.writer.planned = s->left;
    status = put_part(part, &to);
    if (status == HEED_OK) status = hd_writer_commit(&to.writer);
    else hd_writer_abandon(&to.writer);
  }
  *crc = (uint32_t)to.crc;
  s->left -= to.writer.written;
  hd_release(s->context, path, room, 1);
  return status;
}

static heed_status write_manifest(saving *s, const char *aside) {
  prepared text = {0};
  uint32_t unused;
  HD_TRY(hd_manifest_text(s->context, &s->manifest, &text.text, &text.bytes));
  heed_status status = write_file(s, aside, HD_MANIFEST, &text, &unused);
  hd_release(s->context, text.text, text.bytes, 1);
  return status;
}

static heed_status failed(const saving *s, const char *path) { return hd_fail(s->context, HEED_E_WRITE, "%s: %s", path, strerror(errno)); }

static heed_status write_aside(saving *s, const char *aside) {
  if (s->system->make_directory(s->system->user, aside) != 0) return failed(s, aside);
  for (int64_t i = 0; i < s->content->count; i++) {
    const hd_checkpoint_part *part = &s->content->part[i];
    uint32_t crc;
    HD_TRY(write_file(s, aside, part->name, &s->parts[i], &crc));
    HD_TRY(hd_manifest_add(s->context, &s->manifest, part->name, part->arrays ? s->parts[i].arrays.bytes : s->parts[i].bytes, crc));
  }
  HD_TRY(write_manifest(s, aside));
  return s->system->sync_directory(s->system->user, aside) == 0 ? HEED_OK : failed(s, aside);
}

/* From aside to its name. */
static heed_status write_numbered(saving *s, int64_t number) {
  char *aside = NULL, *path = NULL;
  int64_t aside_room = 0, room = 0;
  heed_status status;
  HD_TRY_DONE(numbered(s->context, s->directory, ASIDE, number, &aside, &aside_room));
  HD_TRY_DONE(numbered(s->context, s->directory, NAME, number, &path, &room));
  status = write_aside(s, aside);
  if (status == HEED_OK && s->system->rename(s->system->user, aside, path) != 0) status = failed(s, path);
  if (status != HEED_OK) remove_tree(s->context, s->system, aside);
  else if (s->system->sync_directory(s->system->user, s->directory) != 0) status = failed(s, s->directory);
done:
  hd_release(s->context, aside, aside_room, 1);
  hd_release(s->context, path, room, 1);
  return status;
}

/* Beside the new one, the newest of the others that has all its files in their sizes stays; reading all their bytes again would take as long as writing. One of a later
 * format stays as well. */
static void thin_out(const saving *s, const listing *before) {
  int kept = 1;
  for (int64_t i = 0; i < before->count; i++) {
    char *path;
    int64_t room, step;
    if (numbered(s->context, s->directory, NAME, before->number[i], &path, &room) != HEED_OK) return;
    heed_status status = kept < HD_CHECKPOINTS_KEPT ? hd_manifest_check(s->context, path, false, &step) : HEED_E_FORMAT;
    if (status == HEED_E_FORMAT || status == HEED_E_FILE) remove_tree(s->context, s->system, path);
    else kept++;
    hd_release(s->context, path, room, 1);
  }
}

/* The entry of a new directory must stay as well. */
static heed_status make_directory(const saving *s) {
  if (hd_is_directory(s->directory)) return HEED_OK;
  if (s->system->make_directory(s->system->user, s->directory) != 0) return failed(s, s->directory);
  char *parent;
  int64_t room;
  HD_TRY(hd_join_path(s->context, s->directory, "..", &parent, &room));
  heed_status status = s->system->sync_directory(s->system->user, parent) == 0 ? HEED_OK : failed(s, parent);
  hd_release(s->context, parent, room, 1);
  return status;
}

static heed_status save(saving *s) {
  listing before = {0};
  heed_status status;
  for (int64_t i = 0; i < s->content->count; i++) HD_TRY(prepare_part(s, i));
  HD_TRY(make_directory(s));
  remove_leftovers(s->context, s->system, s->directory);
  HD_TRY_DONE(list(s->context, s->directory, &before));
  HD_TRY_DONE(write_numbered(s, before.count ? before.number[0] + 1 : 1));
  thin_out(s, &before);
done:
  list_free(s->context, &before);
  return status;
}

heed_status hd_checkpoint_save(heed_context *context, const char *directory, const hd_checkpoint_content *content,
                               const hd_file_system *system) {
  saving s = {.context = context, .system = system ? system : &hd_machine, .directory = directory, .content = content};
  HD_REQUIRE(content->step >= 0, context, HEED_E_ARGUMENT, "%s: no step for a checkpoint (got %lld)", directory, (long long)content->step);
  HD_TRY(hd_manifest_new(context, content->step, &s.manifest));
  heed_status status = hd_allocate(context, "the parts of a checkpoint", content->count, sizeof *s.parts, &s.parts);
  if (status == HEED_OK) {
    memset(s.parts, 0, (size_t)content->count * sizeof *s.parts);
    status = save(&s);
    for (int64_t i = 0; i < content->count; i++) {
      if (s.parts[i].arrays.context) hd_safetensors_release(&s.parts[i].arrays);
      hd_release(context, s.parts[i].text, s.parts[i].bytes, 1);
    }
  }
  hd_release(context, s.parts, content->count, sizeof *s.parts);
  hd_manifest_free(&s.manifest);
  return status;
}

/* ---- finding ---------------------------------------------------------------------------------------------------------------- */

/* Adds "; " and the sentence that the context holds. */
static heed_status pass_over(hd_checkpoint *checkpoint) {
  const char *before = checkpoint->passed_over, *reason = checkpoint->context->error;
  char *joined;
  const size_t length = strlen(before) + strlen(reason) + 2;
  HD_TRY(hd_arena_allocate(&checkpoint->arena, checkpoint->context, "a sentence", (int64_t)length + 1, 1, &joined));
  snprintf(joined, length + 1, "%s%s%s", before, *before ? "; " : "", reason);
  checkpoint->passed_over = joined;
  return HEED_OK;
}

/* The first whole one of the list. HEED_E_FORMAT where there is none. */
static heed_status choose(hd_checkpoint *checkpoint, const char *directory, const listing *all) {
  heed_context *context = checkpoint->context;
  for (int64_t i = 0; i < all->count; i++) {
    char *path;
    int64_t room;
    HD_TRY(numbered(context, directory, NAME, all->number[i], &path, &room));
    heed_status status = hd_manifest_check(context, path, true, &checkpoint->step);
    const bool damaged = status == HEED_E_FORMAT || status == HEED_E_FILE;
    if (damaged) {
      status = pass_over(checkpoint);
    } else if (status == HEED_OK) {
      checkpoint->number = all->number[i];
      status = hd_arena_text(&checkpoint->arena, context, path, strlen(path), (char **)&checkpoint->path);
    }
    hd_release(context, path, room, 1);
    if (status != HEED_OK || !damaged) return status;
  }
  return hd_fail(context, HEED_E_FORMAT, "%s: none of its %lld checkpoints can be used: %s", directory, (long long)all->count,
                 checkpoint->passed_over);
}

heed_status hd_checkpoint_open(heed_context *context, const char *directory, hd_checkpoint **out) {
  listing all = {0};
  hd_checkpoint *checkpoint = NULL;
  heed_status status;
  *out = NULL;
  HD_TRY_DONE(list(context, directory, &all));
  if (all.count == 0) goto done;
  HD_TRY_DONE(hd_allocate(context, "a checkpoint", 1, sizeof *checkpoint, &checkpoint));
  *checkpoint = (hd_checkpoint){.context = context, .passed_over = ""};
  hd_arena_init(&checkpoint->arena, context);
  HD_TRY_DONE(choose(checkpoint, directory, &all));
  *out = checkpoint;
done:
  if (status != HEED_OK) hd_checkpoint_close(checkpoint);
  list_free(context, &all);
  return status;
}

static heed_status visit(heed_context *context, const char *directory, int64_t number, hd_checkpoint_each each, void *user) {
  hd_checkpoint checkpoint = {.context = context, .number = number, .passed_over = ""};
  char *path, damage[1024];
  int64_t room;
  HD_TRY(numbered(context, directory, NAME, number, &path, &room));
  checkpoint.path = path;
  heed_status status = hd_manifest_check(context, path, true, &checkpoint.step);
  snprintf(damage, sizeof damage, "%s", heed_error(context));
  if (status == HEED_OK) status = each(user, &checkpoint, NULL);
  else if (status != HEED_E_MEMORY) status = each(user, &checkpoint, damage);
  hd_release(context, path, room, 1);
  return status;
}

heed_status hd_checkpoint_visit(heed_context *context, const char *directory, hd_checkpoint_each each, void *user) {
  listing all;
  heed_status status = list(context, directory, &all);
  for (int64_t i = 0; i < all.count && status == HEED_OK; i++) status = visit(context, directory, all.number[i], each, user);
  list_free(context, &all);
  return status;
}

void hd_checkpoint_close(hd_checkpoint *checkpoint) {
  if (!checkpoint) return;
  hd_arena_free(&checkpoint->arena);
  hd_release(checkpoint->context, checkpoint, 1, sizeof *checkpoint);
}

heed_status hd_checkpoint_arrays(const hd_checkpoint *checkpoint, const char *name, const hd_array *array, int64_t count) {
  char *path;
  int64_t room;
  HD_TRY(hd_join_path(checkpoint->context, checkpoint->path, name, &path, &room));
  heed_status status = hd_safetensors_fill(checkpoint->context, path, array, count);
  hd_release(checkpoint->context, path, room, 1);
  return status;
}

heed_status hd_checkpoint_json(const hd_checkpoint *checkpoint, const char *name, json_t **out) {
  char *path;
  int64_t room;
  HD_TRY(hd_join_path(checkpoint->context, checkpoint->path, name, &path, &room));
  heed_status status = hd_json_load(checkpoint->context, path, (hd_json_rules){.limit = HD_JSON_CONFIG_BYTES}, out);
  hd_release(checkpoint->context, path, room, 1);
  return status;
}
