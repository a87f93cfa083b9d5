/* checkpoint.h: the state of a training run, kept so that at any moment a whole one lies on the disk.
 *
 * DIRECTORY/checkpoint-NNNNNN holds the parts of one checkpoint, files of arrays and of JSON, and a manifest.json with the size and CRC-32 of each. It is written aside
 * (DIRECTORY/.tmp-NNNNNN), every file synced, the manifest last, and renamed when it is whole. NNNNNN grows with every checkpoint, whatever the step, so that the newest is
 * known after a run has gone back. One process writes to a directory at a time. */
#ifndef HD_CHECKPOINT_H
#define HD_CHECKPOINT_H

#include "arrays.h"

enum { HD_CHECKPOINTS_KEPT = 2 };

/* One file: arrays (NAME.safetensors) or, where that is NULL, JSON. */
typedef struct hd_checkpoint_part {
  const char *name; /* no '/', not beginning with '.', unlike the others */
  const hd_arrays *arrays;
  const json_t *json;
} hd_checkpoint_part;

typedef struct hd_checkpoint_content {
  int64_t step;
  const hd_checkpoint_part *part;
  int64_t count;
} hd_checkpoint_content;

/* Writes one more checkpoint; the directory is made if need be, not what it lies in. Then the last HD_CHECKPOINTS_KEPT whole ones stay and others go. HEED_E_WRITE: where the
 * disk is full, with the number of bytes that are missing; what was there before is as good as ever. HEED_E_ARGUMENT, HEED_E_MEMORY and those of hd_safetensors_prepare.
 * system NULL: the machine's. */
heed_status hd_checkpoint_save(heed_context *context, const char *directory, const hd_checkpoint_content *content,
                               const hd_file_system *system);

typedef struct hd_checkpoint {
  heed_context *context;
  hd_arena arena;
  const char *path; /* of its own directory */
  int64_t number, step;
  const char *passed_over; /* newer ones that are damaged, each with the reason, as one line; "" if there is none */
} hd_checkpoint;

/* The newest checkpoint whose every byte is what the manifest says. *out NULL with HEED_OK: there is none at all, nor anything damaged. HEED_E_FORMAT: there are checkpoints and
 * each is damaged; the sentence names them. HEED_E_UNSUPPORTED: the newest whole one comes from a later version. HEED_E_FILE, HEED_E_MEMORY. */
heed_status hd_checkpoint_open(heed_context *context, const char *directory, hd_checkpoint **out);
void hd_checkpoint_close(hd_checkpoint *checkpoint);

/* Every checkpoint, newest first, each looked at in all its bytes: damage is NULL, or what is wrong with it. The first that `each` does not take ends it; HEED_E_FILE, HEED_E_MEMORY. */
typedef heed_status (*hd_checkpoint_each)(void *user, const hd_checkpoint *checkpoint, const char *damage);
heed_status hd_checkpoint_visit(heed_context *context, const char *directory, hd_checkpoint_each each, void *user);

/* hd_safetensors_fill and hd_json_load on one of its files; release the JSON with json_decref. */
heed_status hd_checkpoint_arrays(const hd_checkpoint *checkpoint, const char *name, const hd_array *array, int64_t count);
heed_status hd_checkpoint_json(const hd_checkpoint *checkpoint, const char *name, json_t **out);

#endif
