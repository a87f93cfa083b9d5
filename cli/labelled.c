/* labelled.c: files of labelled texts, and their rows of token ids. */
#include "labelled.h"

#include "input.h"

#include <stdlib.h>
#include <string.h>

/* ---- files ------------------------------------------------------------------------------------------------------------------------- */

typedef struct reading {
  labelled_file *file;
  heed_head head;
  int64_t line, unit_room, begin_room;
} reading;

static void end_example(reading *r) {
  labelled_file *f = r->file;
  if (f->unit_count == f->begin[f->count]) return;
  f->begin = grown("labelled texts", f->begin, &r->begin_room, f->count + 2, sizeof *f->begin);
  f->begin[++f->count] = f->unit_count;
}

static int wrong(const reading *r, const char *what) {
  return error_of(EXIT_BAD_FILE, "%s: line %lld: %s (a line is %s)", r->file->path, (long long)r->line, what,
                  r->head == HEED_HEAD_CLASS ? "LABEL, tab, text" : "TOKEN, tab, LABEL; an empty one ends a sentence");
}

static int read_line(reading *r, heed_text line) {
  const bool is_class = r->head == HEED_HEAD_CLASS;
  if (line.length > 0 && line.data[line.length - 1] == '\r') line.length--;
  if (line.length == 0) {
    end_example(r);
    return EXIT_OK;
  }
  const char *tab = memchr(line.data, '\t', line.length);
  if (!tab) return wrong(r, "there is no tab");
  const heed_text first = {line.data, (size_t)(tab - line.data)}, second = {tab + 1, line.length - first.length - 1};
  const unit u = {.text = is_class ? second : first, .label = is_class ? first : second, .line = r->line};
  if (u.label.length == 0) return wrong(r, "there is no label");
  if (u.text.length == 0) return wrong(r, is_class ? "there is no text" : "there is no token");
  if (memchr(u.label.data, '\t', u.label.length)) return wrong(r, "there is a second tab");
  labelled_file *f = r->file;
  f->units = grown("labelled texts", f->units, &r->unit_room, f->unit_count + 1, sizeof *f->units);
  f->units[f->unit_count++] = u;
  if (is_class) end_example(r);
  return EXIT_OK;
}

int labelled_read(const char *path, heed_head head, labelled_file *out) {
  reading r = {.file = out, .head = head};
  size_t length = 0;
  *out = (labelled_file){.path = path};
  out->begin = grown("labelled texts", NULL, &r.begin_room, 1, sizeof *out->begin);
  out->begin[0] = 0;
  int code = read_whole_file(path, &out->bytes, &length);
  if (code == EXIT_OK && length == 0) code = error_of(EXIT_BAD_FILE, "%s: the file is empty", path);
  for (size_t at = 0; at < length && code == EXIT_OK;) {
    const char *line = out->bytes + at, *end = memchr(line, '\n', length - at);
    const size_t bytes = end ? (size_t)(end - line) : length - at;
    r.line++;
    code = read_line(&r, (heed_text){line, bytes});
    at += bytes + 1;
  }
  end_example(&r);
  if (code == EXIT_OK && out->count == 0) code = error_of(EXIT_BAD_FILE, "%s: there is no labelled text in it", path);
  return code;
}

void labelled_free(labelled_file *file) {
  free(file->bytes);
  free(file->units);
  free(file->begin);
  *file = (labelled_file){0};
}

heed_text labelled_text(const labelled_file *file) {
  size_t length = 0;
  for (int64_t i = 0; i < file->unit_count; i++) length += file->units[i].text.length + 1;
  char *text = allocate("a text", (int64_t)length, 1), *at = text;
  for (int64_t e = 0; e < file->count; e++)
    for (int64_t i = file->begin[e]; i < file->begin[e + 1]; i++) {
      memcpy(at, file->units[i].text.data, file->units[i].text.length);
      at += file->units[i].text.length;
      *at++ = i + 1 < file->begin[e + 1] ? ' ' : '\n';
    }
  return (heed_text){text, length};
}

/* ---- labels ------------------------------------------------------------------------------------------------------------------------- */

static int compare_texts(heed_text a, heed_text b) {
  int order = memcmp(a.data, b.data, a.length < b.length ? a.length : b.length);
  return order ? order : a.length < b.length ? -1 : a.length > b.length;
}

static int compare_labels(const void *a, const void *b) { return compare_texts(((const unit *)a)->label, ((const unit *)b)->label); }

static char *copy_of(heed_text text) {
  char *copy = allocate("a label", (int64_t)text.length + 1, 1);
  memcpy(copy, text.data, text.length);
  return copy;
}

void label_list_of(const labelled_file *file, label_list *out) {
  unit *sorted = allocate("labels", file->unit_count, sizeof *sorted);
  *out = (label_list){.names = allocate("labels", file->unit_count, sizeof *out->names)};
  memcpy(sorted, file->units, (size_t)file->unit_count * sizeof *sorted);
  qsort(sorted, (size_t)file->unit_count, sizeof *sorted, compare_labels);
  for (int64_t i = 0; i < file->unit_count; i++)
    if (i == 0 || compare_labels(&sorted[i - 1], &sorted[i]) != 0) out->names[out->count++] = copy_of(sorted[i].label);
  free(sorted);
}

void label_list_of_model(const heed_model *model, int64_t count, label_list *out) {
  *out = (label_list){.names = allocate("labels", count, sizeof *out->names), .count = count};
  for (int64_t i = 0; i < count; i++) out->names[i] = copy_of((heed_text){heed_model_label(model, i), strlen(heed_model_label(model, i))});
}

void label_list_free(label_list *list) {
  for (int64_t i = 0; i < list->count; i++) free(list->names[i]);
  free(list->names);
  *list = (label_list){0};
}

/* A model of others may have its labels in any order. */
int64_t label_find(const label_list *list, heed_text name) {
  for (int64_t i = 0; i < list->count; i++)
    if (strlen(list->names[i]) == name.length && memcmp(list->names[i], name.data, name.length) == 0) return i;
  return -1;
}

bool label_list_has(const label_list *list, const label_list *some) {
  for (int64_t i = 0; i < some->count; i++)
    if (label_find(list, (heed_text){some->names[i], strlen(some->names[i])}) < 0) return false;
  return true;
}

/* ---- rows --------------------------------------------------------------------------------------------------------------------------- */

static void add_token(label_rows *r, int32_t id, int32_t mark) {
  int64_t room = r->room;
  r->ids = grown("labelled texts", r->ids, &room, r->length + 1, sizeof *r->ids);
  r->marks = grown("labelled texts", r->marks, &r->room, r->length + 1, sizeof *r->marks);
  r->ids[r->length] = id;
  r->marks[r->length++] = mark;
}

int label_rows_open(heed_context *context, const heed_tokenizer *tokenizer, const char *path, heed_head head, int64_t limit,
                    label_rows *out) {
  *out =
      (label_rows){.context = context, .tokenizer = tokenizer, .path = path, .head = head, .limit = limit, .info.size = sizeof out->info};
  out->begin = grown("labelled texts", NULL, &out->begin_room, 1, sizeof *out->begin);
  out->begin[0] = 0;
  int code = check(context, heed_tokenizer_describe(tokenizer, &out->info));
  const int64_t around = out->info.before_count + out->info.after_count;
  if (code == EXIT_OK && limit <= around)
    code = usage_error("--context: too short for a text (got %lld, allowed from %lld on)", (long long)limit, (long long)around + 1);
  return code;
}

void label_rows_free(label_rows *r) {
  free(r->ids);
  free(r->marks);
  free(r->begin);
  *r = (label_rows){0};
}

static void begin_row(label_rows *r) {
  for (int i = 0; i < r->info.before_count; i++) add_token(r, r->info.before[i], -1);
}

static void end_row(label_rows *r) {
  for (int i = 0; i < r->info.after_count; i++) add_token(r, r->info.after[i], -1);
  r->begin = grown("labelled texts", r->begin, &r->begin_room, r->count + 2, sizeof *r->begin);
  r->begin[++r->count] = r->length;
  const int64_t length = r->length - r->begin[r->count - 1];
  if (length > r->longest) r->longest = length;
}

/* Tokens that still fit into the row, given what must follow. */
static int64_t space_left(const label_rows *r) { return r->limit - r->info.after_count - (r->length - r->begin[r->count]); }

static bool is_blank(heed_text text) {
  for (size_t i = 0; i < text.length; i++)
    if (text.data[i] != ' ') return false;
  return true;
}

/* A word behind another has a space in front, as in a text; the mark goes to the first token that is more than that. */
static void add_word(label_rows *r, const int32_t *ids, int64_t count, int32_t mark) {
  const int64_t space = space_left(r);
  for (int64_t i = 0; i < count && i < space; i++) {
    const bool bears = mark >= 0 && !is_blank(heed_token_text(r->tokenizer, ids[i]));
    add_token(r, ids[i], bears ? mark : -1);
    if (bears) mark = -1;
  }
}

static int encode(label_rows *r, heed_text text, int64_t line, int32_t **ids, int64_t *count) {
  heed_status status = heed_encode(r->context, r->tokenizer, text, NULL, ids, count);
  if (status != HEED_E_FORMAT) return check(r->context, status);
  return error_of(EXIT_BAD_FILE, "%s: line %lld: %s", r->path, (long long)line, heed_error(r->context));
}

static int encode_word(label_rows *r, const unit *u, bool spaced, int32_t **ids, int64_t *count) {
  char *text = allocate("a word", (int64_t)u->text.length + 1, 1);
  memcpy(text + spaced, u->text.data, u->text.length);
  if (spaced) text[0] = ' ';
  int code = encode(r, (heed_text){text, u->text.length + spaced}, u->line, ids, count);
  free(text);
  return code;
}

static int add_sentence(label_rows *r, const unit *units, int64_t count, const int32_t *marks) {
  const int64_t whole = r->limit - r->info.before_count - r->info.after_count;
  bool cut = false;
  begin_row(r);
  for (int64_t i = 0; i < count; i++) {
    int32_t *ids;
    int64_t n;
    int code = encode_word(r, &units[i], i > 0, &ids, &n);
    if (code != EXIT_OK) return code;
    if (n > space_left(r) && space_left(r) < whole) {
      end_row(r);
      begin_row(r);
      cut = true;
    }
    cut |= n > whole;
    add_word(r, ids, n, marks[i]);
    heed_ids_free(r->context, ids, n);
  }
  end_row(r);
  r->cut += cut;
  return EXIT_OK;
}

static int add_text(label_rows *r, const unit *u, int32_t mark) {
  int32_t *ids;
  int64_t n;
  int code = encode(r, u->text, u->line, &ids, &n);
  if (code != EXIT_OK) return code;
  begin_row(r);
  const int64_t space = space_left(r);
  for (int64_t i = 0; i < n && i < space; i++) add_token(r, ids[i], -1);
  r->cut += n > space;
  heed_ids_free(r->context, ids, n);
  if (r->length == r->begin[r->count]) // no token for anything in it
    return error_of(EXIT_BAD_FILE, "%s: line %lld: the tokenizer has no token for anything in it", r->path, (long long)u->line);
  end_row(r);
  r->marks[r->begin[r->count - 1]] = mark;
  return EXIT_OK;
}

int label_rows_add(label_rows *r, const unit *units, int64_t count, const int32_t *marks) {
  return r->head == HEED_HEAD_CLASS ? add_text(r, units, marks[0]) : add_sentence(r, units, count, marks);
}

/* "a, b, c", shortened. */
static void list_labels(const label_list *labels, char text[256]) {
  size_t used = 0;
  text[0] = 0;
  for (int64_t i = 0; i < labels->count && used < 200; i++)
    used += (size_t)snprintf(text + used, 256 - used, "%s%.40s", i ? ", " : "", i < 12 && used < 150 ? labels->names[i] : "…");
}

static int unknown_label(const labelled_file *file, const unit *u, const label_list *labels) {
  char known[256];
  list_labels(labels, known);
  return error_of(EXIT_BAD_FILE, "%s: line %lld: training has not seen this label (got \"%.*s\", known: %s)", file->path,
                  (long long)u->line, (int)(u->label.length < 60 ? u->label.length : 60), u->label.data, known);
}

int label_rows_of_file(label_rows *r, const labelled_file *file, const label_list *labels, label_choice choice) {
  int64_t most = 0;
  int code = EXIT_OK;
  for (int64_t e = 0; e < file->count; e++)
    if (file->begin[e + 1] - file->begin[e] > most) most = file->begin[e + 1] - file->begin[e];
  int32_t *marks = allocate("labels", most, sizeof *marks);
  for (int64_t e = 0; e < file->count && code == EXIT_OK; e++) {
    const unit *units = file->units + file->begin[e];
    const int64_t count = file->begin[e + 1] - file->begin[e];
    if (choice.every && (e % choice.every == choice.rest) == choice.others) continue;
    for (int64_t i = 0; i < count && code == EXIT_OK; i++) {
      marks[i] = (int32_t)label_find(labels, units[i].label);
      if (marks[i] < 0) code = unknown_label(file, &units[i], labels);
    }
    if (code == EXIT_OK) code = label_rows_add(r, units, count, marks);
  }
  free(marks);
  return code;
}

heed_labelled_data label_rows_data(const label_rows *r) { return (heed_labelled_data){r->ids, r->marks, r->begin, r->count}; }
