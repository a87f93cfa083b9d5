/* pattern_text.c: patterns as text: kinds with their numbers, `+` for union, `&` for intersection, which binds tighter, and parentheses. */
#include "pattern.h"

#include <stdio.h>

enum { MOST_PARTS = 64, MOST_NUMBERS = 1024, MOST_NESTING = 16, WORD = 32 };

/* A pattern that was read, and everything it points to. */
struct parsed {
  heed_pattern root;
  hd_arena arena;
};

struct reader {
  heed_context *context;
  hd_arena *arena;
  const char *text, *at;
};

/* Names of windows without a number. */
static const struct {
  const char *name;
  int64_t left, right;
} windows[] = {{"full", INT64_MAX, INT64_MAX}, {"causal", INT64_MAX, 0}};

#define REFUSE(reader, ...) return refuse(reader, __VA_ARGS__)
__attribute__((format(printf, 2, 3))) static heed_status refuse(const struct reader *r, const char *format, ...) {
  char sentence[256];
  va_list list;
  va_start(list, format);
  vsnprintf(sentence, sizeof sentence, format, list);
  va_end(list);
  return hd_fail(r->context, HEED_E_ARGUMENT, "pattern \"%.200s\": %s", r->text, sentence);
}

/* What stands up to the next sign. */
static size_t word_length(const char *at) { return strcspn(at, ":,+&()"); }

static bool same_word(const char *at, size_t length, const char *word) { return strlen(word) == length && memcmp(at, word, length) == 0; }

/* ---- numbers ----------------------------------------------------------------------------------------------------------------------- */

static heed_status read_number(struct reader *r, const char *kind, const char *field, int64_t *out) {
  const size_t length = word_length(r->at);
  char word[WORD], *end = word;
  *out = INT64_MAX;
  if (!same_word(r->at, length, "all")) {
    if (length > 0 && length < WORD) {
      memcpy(word, r->at, length);
      word[length] = 0;
      *out = strtoll(word, &end, 10);
    }
    if (length == 0 || length >= WORD || *end)
      REFUSE(r, "%s: %s: got \"%.*s\", expected a whole number", kind, field, (int)HD_MIN(length, WORD), r->at);
  }
  r->at += length;
  return HEED_OK;
}

/* One number, or several where the field is a list. */
static heed_status read_field(struct reader *r, const hd_pattern_kind *kind, const hd_pattern_field *field, heed_pattern *pattern) {
  int64_t number[MOST_NUMBERS], count = 0, *list;
  do {
    if (count == MOST_NUMBERS) REFUSE(r, "%s: %s: more than %d numbers", kind->name, field->name, MOST_NUMBERS);
    HD_TRY(read_number(r, kind->name, field->name, &number[count++]));
  } while (*r->at == ',' && r->at++);
  if (count == 1) {
    memcpy((char *)pattern + field->number, number, sizeof *number);
    return HEED_OK;
  }
  if (!field->list) REFUSE(r, "%s: %s: got %lld numbers, expected one", kind->name, field->name, (long long)count);
  HD_TRY(hd_arena_allocate(r->arena, r->context, "numbers of a pattern", count, sizeof *list, &list));
  memcpy(list, number, (size_t)count * sizeof *list);
  memcpy((char *)pattern + field->list, &list, sizeof list);
  memcpy((char *)pattern + field->count, &count, sizeof count);
  return HEED_OK;
}

/* "left[:right]" into buffer. */
static const char *form(const hd_pattern_kind *kind, char buffer[256]) {
  int used = 0, open = 0;
  buffer[0] = 0;
  for (int i = 0; i < HD_PATTERN_FIELDS && kind->field[i].name; i++) {
    open += i >= kind->needed;
    used += snprintf(buffer + used, (size_t)(256 - used), "%s:%s", i >= kind->needed ? "[" : "", kind->field[i].name);
  }
  for (; open; open--) used += snprintf(buffer + used, (size_t)(256 - used), "]");
  return buffer;
}

/* ---- kinds ------------------------------------------------------------------------------------------------------------------------- */

static heed_status unknown(const struct reader *r, size_t length) {
  char known[256] = "";
  size_t used = 0;
  for (heed_pattern_kind i = 0; i < HEED_PATTERN_UNION; i++) {
    const hd_pattern_kind *kind = hd_pattern_kind_of(&(heed_pattern){.kind = i});
    if (kind->needed >= 0) used += (size_t)snprintf(known + used, sizeof known - used, ", %s", kind->name);
  }
  REFUSE(r, "unknown kind \"%.*s\", known are full, causal%s", (int)HD_MIN(length, WORD), r->at, known);
}

static heed_status read_kind(struct reader *r, heed_pattern *out) {
  const size_t length = word_length(r->at);
  const hd_pattern_kind *kind = hd_pattern_named(r->at, length);
  char fields[256];
  int given = 0;
  *out = (heed_pattern){.size = sizeof *out};
  for (int64_t i = 0; i < HD_COUNT(windows); i++)
    if (same_word(r->at, length, windows[i].name)) {
      r->at += length;
      out->left = windows[i].left;
      out->right = windows[i].right;
      return HEED_OK;
    }
  if (!kind || kind->needed < 0) return unknown(r, length);
  r->at += length;
  out->kind = hd_pattern_number(kind);
  while (*r->at == ':') {
    const hd_pattern_field *field = given < HD_PATTERN_FIELDS ? &kind->field[given] : NULL;
    if (!field || !field->name) REFUSE(r, "%s: expected %s%s", kind->name, kind->name, form(kind, fields));
    r->at++;
    const size_t word = word_length(r->at);
    if (!field->flag) {
      HD_TRY(read_field(r, kind, field, out));
    } else {
      if (!same_word(r->at, word, field->name)) REFUSE(r, "%s: expected %s%s", kind->name, kind->name, form(kind, fields));
      r->at += word;
      *((bool *)((char *)out + field->flag)) = true;
    }
    given++;
  }
  if (given < kind->needed) REFUSE(r, "%s: expected %s%s", kind->name, kind->name, form(kind, fields));
  if (kind->complete) kind->complete(out, given);
  const hd_problem problem = {.context = r->context, .batch = 1, .heads = out->dilations ? out->count : 1};
  return kind->check ? kind->check(&problem, out) : HEED_OK;
}

/* ---- unions and intersections ------------------------------------------------------------------------------------------------------ */

static heed_status read_parts(struct reader *r, heed_pattern_kind kind, int depth, heed_pattern *out);

static heed_status read_part(struct reader *r, heed_pattern_kind within, int depth, heed_pattern *out) {
  if (within == HEED_PATTERN_UNION) return read_parts(r, HEED_PATTERN_INTERSECTION, depth, out);
  if (*r->at != '(') return read_kind(r, out);
  if (depth == MOST_NESTING) REFUSE(r, "parentheses are nested more than %d deep", MOST_NESTING);
  r->at++;
  HD_TRY(read_parts(r, HEED_PATTERN_UNION, depth + 1, out));
  if (*r->at != ')') REFUSE(r, "a parenthesis is not closed");
  r->at++;
  return HEED_OK;
}

/* Parts with the sign of a kind between them; a single one stands for itself. */
static heed_status read_parts(struct reader *r, heed_pattern_kind kind, int depth, heed_pattern *out) {
  const char sign = kind == HEED_PATTERN_UNION ? '+' : '&';
  const heed_pattern *part[MOST_PARTS], **list;
  int64_t count = 0;
  do {
    heed_pattern *one;
    if (count == MOST_PARTS) REFUSE(r, "more than %d parts", MOST_PARTS);
    HD_TRY(hd_arena_allocate(r->arena, r->context, "a part of a pattern", 1, sizeof *one, &one));
    HD_TRY(read_part(r, kind, depth, one));
    part[count++] = one;
  } while (*r->at == sign && r->at++);
  if (count == 1) {
    *out = *part[0];
    return HEED_OK;
  }
  HD_TRY(hd_arena_allocate(r->arena, r->context, "parts of a pattern", count, sizeof *list, &list));
  memcpy(list, part, (size_t)count * sizeof *list);
  *out = (heed_pattern){.size = sizeof *out, .kind = kind, .parts = count, .part = list};
  return HEED_OK;
}

heed_status hd_pattern_read(heed_context *context, hd_arena *arena, const char *text, heed_pattern *out) {
  struct reader r = {context, arena, text, text};
  HD_TRY(read_parts(&r, HEED_PATTERN_UNION, 0, out));
  return *r.at ? refuse(&r, "\"%.32s\" is left over", r.at) : HEED_OK;
}

heed_status heed_pattern_parse(heed_context *context, const char *text, heed_pattern **out) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(text && out, context, HEED_E_ARGUMENT, "heed_pattern_parse: null");
  *out = NULL;
  struct parsed *parsed = hd_sized_allocate(&context->allocator, sizeof *parsed);
  HD_REQUIRE(parsed, context, HEED_E_MEMORY, "no memory for a pattern");
  *parsed = (struct parsed){0};
  hd_arena_init(&parsed->arena, context);
  parsed->arena.block = 4096;
  heed_status status = hd_pattern_read(context, &parsed->arena, text, &parsed->root);
  if (status == HEED_OK) *out = &parsed->root;
  else heed_pattern_free(&parsed->root);
  return status;
}

void heed_pattern_free(heed_pattern *pattern) {
  if (!pattern) return;
  struct parsed *parsed = (struct parsed *)pattern; // whose first member it is
  const heed_allocator allocator = parsed->arena.allocator;
  hd_arena_free(&parsed->arena);
  hd_sized_release(&allocator, parsed);
}
