/* pair_file.c: files of sentence pairs. */
#include "pair_file.h"

#include "input.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

/* ---- files ------------------------------------------------------------------------------------------------------------------------- */

/* Lines of a text one after another. */
typedef struct lines {
  const char *path;
  heed_text rest;
  int64_t number; /* of the line that came last */
} lines;

static bool next_line(lines *l, heed_text *line) {
  if (l->rest.length == 0) return false;
  const char *end = memchr(l->rest.data, '\n', l->rest.length);
  const size_t length = end ? (size_t)(end - l->rest.data) : l->rest.length, used = length + (end != NULL);
  *line = (heed_text){l->rest.data, length};
  if (length > 0 && line->data[length - 1] == '\r') line->length--;
  l->rest = (heed_text){l->rest.data + used, l->rest.length - used};
  l->number++;
  return true;
}

static int wrong(const lines *l, const char *what) {
  return error_of(EXIT_BAD_FILE, "%s: line %lld: %s", l->path, (long long)l->number, what);
}

bool side_is_blank(heed_text text) {
  for (size_t i = 0; i < text.length; i++)
    if (text.data[i] != ' ') return false;
  return true;
}

static int check_line(const lines *l, heed_text line) {
  for (size_t at = 0, length; at < line.length; at += length) {
    length = utf8_length(line.data + at, line.length - at);
    if (length == 0) return error_of(EXIT_BAD_FILE, "%s: line %lld: is not UTF-8 (byte %zu)", l->path, (long long)l->number, at + 1);
    if (!line.data[at]) return wrong(l, "has a NUL, which no text has");
  }
  return EXIT_OK;
}

static int split_line(const lines *l, heed_text line, sentence_pair *out) {
  const char *tab = line.length ? memchr(line.data, '\t', line.length) : NULL;
  if (!tab) return wrong(l, "there is no tab (a line is SOURCE, tab, TARGET)");
  out->source = (heed_text){line.data, (size_t)(tab - line.data)};
  out->target = (heed_text){tab + 1, line.length - out->source.length - 1};
  if (memchr(out->target.data, '\t', out->target.length)) return wrong(l, "there is a second tab (a line is SOURCE, tab, TARGET)");
  if (side_is_blank(out->source)) return wrong(l, "the source is empty");
  if (side_is_blank(out->target)) return wrong(l, "the target is empty");
  return EXIT_OK;
}

static int no_translation(const lines *of, const lines *in) {
  return error_of(EXIT_BAD_FILE, "%s: line %lld: there is no such line in %s, which has %lld", of->path, (long long)of->number, in->path,
                  (long long)in->number);
}

/* A line of each of two files. */
static int read_both(lines *sources, lines *targets, heed_text source, sentence_pair *out) {
  int code;
  if (!next_line(targets, &out->target)) return no_translation(sources, targets);
  out->source = source;
  TRY(check_line(targets, out->target));
  if (side_is_blank(out->source)) return wrong(sources, "is empty");
  if (side_is_blank(out->target)) return wrong(targets, "is empty");
done:
  return code;
}

static int read_pairs(pair_file *f, lines *sources, lines *targets) {
  int64_t room = 0;
  heed_text line;
  int code = EXIT_OK;
  while (next_line(sources, &line)) {
    f->pairs = grown("pairs", f->pairs, &room, f->count + 1, sizeof *f->pairs);
    TRY(check_line(sources, line));
    TRY(f->target_path ? read_both(sources, targets, line, &f->pairs[f->count]) : split_line(sources, line, &f->pairs[f->count]));
    f->count++;
  }
  if (next_line(targets, &line)) TRY(no_translation(targets, sources));
done:
  return code;
}

int pair_file_read(const char *path, const char *target_path, pair_file *out) {
  size_t length = 0, target_length = 0;
  int code;
  *out = (pair_file){.path = path, .target_path = target_path};
  TRY(read_whole_file(path, &out->bytes, &length));
  if (length == 0) TRY(error_of(EXIT_BAD_FILE, "%s: the file is empty", path));
  if (target_path) TRY(read_whole_file(target_path, &out->target_bytes, &target_length));
  lines sources = {path, {out->bytes, length}, 0}, targets = {target_path, {out->target_bytes, target_length}, 0};
  TRY(read_pairs(out, &sources, &targets));
done:
  return code;
}

void pair_file_free(pair_file *file) {
  free(file->bytes);
  free(file->target_bytes);
  free(file->pairs);
  *file = (pair_file){0};
}
