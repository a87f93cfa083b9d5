/* inspect.c: `heed inspect`: what is in a model or array file, without loading its weights. */
#include "arrays.h"
#include "json.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  const char *file;
} values;

/* Items are kept until the whole file has proved sound, so that a malformed one prints nothing but its error. */
typedef struct listing {
  int64_t count, capacity;
  heed_file_item *items; /* name and value are copies */
} listing;

static heed_text copy_text(heed_text text) {
  char *data = allocate("a name", (int64_t)text.length + 1, 1);
  if (text.length) memcpy(data, text.data, text.length);
  return (heed_text){data, text.length};
}

static bool collect(void *user, const heed_file_item *item) {
  listing *l = user;
  l->items = grown("entries", l->items, &l->capacity, l->count + 1, sizeof *l->items);
  heed_file_item *copy = &l->items[l->count++];
  *copy = *item;
  copy->name = copy_text(item->name);
  copy->value = copy_text(item->value);
  return !interrupted();
}

static void listing_free(listing *l) {
  for (int64_t i = 0; i < l->count; i++) {
    free((char *)l->items[i].name.data);
    free((char *)l->items[i].value.data);
  }
  free(l->items);
}

static void print_json(const char *path, const char *format, const listing *l, const training_listing *run) {
  json j = {0};
  json_open(&j, NULL, '{');
  json_text(&j, "file", path);
  json_text(&j, "format", format);
  for (int tensors = 0; tensors <= 1; tensors++) {
    json_open(&j, tensors ? "tensors" : "metadata", '[');
    for (int64_t i = 0; i < l->count; i++) {
      const heed_file_item *item = &l->items[i];
      if (item->is_tensor != tensors) continue;
      json_open(&j, NULL, '{');
      json_bytes(&j, "name", item->name);
      json_text(&j, "type", item->type);
      if (tensors) {
        json_open(&j, "shape", '[');
        for (int d = 0; d < item->ndim; d++) json_whole(&j, NULL, item->dim[d]);
        json_close(&j);
        json_whole(&j, "bytes", item->bytes);
      } else {
        json_bytes(&j, "value", item->value);
      }
      json_close(&j);
    }
    json_close(&j);
  }
  if (run) training_json(&j, run);
  json_close(&j);
}

/* One line of a table, control characters shown. */
static void print_item(const heed_file_item *item, int name_width) {
  enum { VALUE_WIDTH = 120 };
  char name[VISIBLE_MAX], value[VISIBLE_MAX], shape[SHAPE_MAX];
  heed_text cut = {item->value.data, item->value.length < VALUE_WIDTH ? item->value.length : VALUE_WIDTH};
  while (cut.length > 0 && cut.length < item->value.length && ((unsigned char)item->value.data[cut.length] & 0xc0) == 0x80) cut.length--;
  int columns = visible_token(item->name, name, sizeof name);
  out("  %s%*s  %-7s  ", name, columns < name_width ? name_width - columns : 0, "", item->type);
  if (item->is_tensor) {
    out("%-16s %12lld\n", shape_text(item->ndim, item->dim, shape), (long long)item->bytes);
  } else {
    visible_token(cut, value, sizeof value);
    out("%s%s\n", value, cut.length < item->value.length ? "…" : "");
  }
}

static void print_table(const char *path, const char *format, const listing *l, const training_listing *run) {
  int width[2] = {0}; // of the names of metadata and of tensors
  int64_t count[2] = {0}, bytes = 0;
  char name[VISIBLE_MAX];
  for (int64_t i = 0; i < l->count; i++) {
    const heed_file_item *item = &l->items[i];
    int columns = visible_token(item->name, name, sizeof name);
    if (columns > width[item->is_tensor]) width[item->is_tensor] = columns;
    count[item->is_tensor]++;
    if (item->is_tensor) bytes += item->bytes;
  }
  out("%s · %s · %lld tensors, %.1f MB\n", path, format, (long long)count[1], (double)bytes / 1e6);
  if (run) training_table(run);
  for (int tensors = 0; tensors <= 1; tensors++) {
    if (count[tensors]) out("\n%s\n", tensors ? "tensors (shape outermost first, bytes)" : "metadata");
    for (int64_t i = 0; i < l->count; i++)
      if (l->items[i].is_tensor == tensors) print_item(&l->items[i], width[tensors]);
  }
}

static int run(const void *pointer) {
  const values *v = pointer;
  heed_context *context = NULL;
  listing found = {0};
  training_listing run = {0};
  const char *format = "";
  int code;
  TRY(context_open(&v->common, &context));
  const bool trains = training_is(v->file);
  if (trains) TRY(training_look(context, v->file, &run));
  // The model of a run may be damaged, or not yet there, and its checkpoints whole.
  code = check(context, heed_file_inspect(context, v->file, &format, collect, &found));
  if (code != EXIT_OK && !(trains && code == EXIT_BAD_FILE)) goto done;
  if (code != EXIT_OK) format = "a training run without its model";
  if (interrupted()) code = EXIT_INTERRUPTED;
  else (v->common.json ? print_json : print_table)(v->file, format, &found, trains ? &run : NULL);
  if (code == EXIT_OK && run.damaged) code = EXIT_BAD_FILE;
done:
  training_free(&run);
  listing_free(&found);
  heed_context_free(context);
  return code;
}

static const option options[] = {
    OPTION("FILE", 0, TEXT, NULL, file, "a GGUF, safetensors, npy or npz file, a Hugging Face directory, or that of a training run",
           .required = true),
    {0},
};

const command command_inspect = {
    .name = "inspect",
    .summary = "list what is in a model or array file",
    .about = "Lists the metadata and tensors of a file without loading its weights. Of a training run also its checkpoints, each read "
             "whole and compared with its checksums, how far it has come, and the command that goes on with it; what is damaged is named, "
             "and the exit code is 3.",
    .examples = "  heed inspect model.gguf\n"
                "  heed inspect model.safetensors --json | jq '.tensors[].name'\n",
    .options = options,
    .takes = TAKES_JSON,
    .values_size = sizeof(values),
    .run = run,
};
