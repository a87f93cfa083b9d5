/* label.c: tokens as people see them: every byte visible, nothing that could move a cursor or turn a line around, cut to a display width. */
#include "record.h"

#include <stdio.h>
#include <utf8proc.h>

/* A byte becomes at most <E2> or a three-byte picture, a character of two or more bytes at most <U+10FFFF>; one ◌ may stand in front. */
enum { GROWTH = 5, EXTRA = 8 };

typedef struct writer {
  char *text;
  int bytes;
} writer;

static void put(writer *w, const char *text) {
  size_t length = strlen(text);
  memcpy(w->text + w->bytes, text, length + 1);
  w->bytes += (int)length;
}

static void put_code(writer *w, int32_t code) { w->bytes += (int)utf8proc_encode_char(code, (utf8proc_uint8_t *)w->text + w->bytes); }

static void put_name(writer *w, int32_t code) {
  char name[16];
  snprintf(name, sizeof name, "<U+%04X>", (unsigned)code);
  put(w, name);
}

static bool is_joiner(int32_t code) { return code == 0x200C || code == 0x200D; }

/* One character, never in a form that a terminal, an SVG reader or a browser would act on. `inside` says that something stands before it to combine with. */
static void put_visible(writer *w, int32_t code, bool inside) {
  utf8proc_category_t category = utf8proc_category(code);
  if (code == ' ') put(w, "␠");
  else if (code == '\n') put(w, "⏎");
  else if (code == '\t') put(w, "⇥");
  else if (code < 0x20) put_code(w, 0x2400 + code);
  else if (code == 0x7F) put(w, "␡");
  else if (is_joiner(code) && inside) put_code(w, code);
  else if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME) {
    if (!inside) put(w, "◌");
    put_code(w, code);
  } else if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CN ||
             category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_ZS ||
             category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP)
    put_name(w, code);
  else put_code(w, code);
}

static heed_status make_label(heed_context *context, hd_arena *arena, heed_text text, bool plain, hd_label *out) {
  writer w = {0};
  int64_t room = (int64_t)text.length * GROWTH + EXTRA;
  HD_TRY(hd_arena_allocate(arena, context, "the label of a token", room, 1, &w.text));
  const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text.data, *end = p + text.length;
  if (!plain && text.length > 1 && *p == ' ' && p[1] > ' ' && p[1] != 0x7F) p++;
  bool inside = false;
  while (p < end) {
    utf8proc_int32_t code;
    utf8proc_ssize_t bytes = utf8proc_iterate(p, end - p, &code);
    if (bytes <= 0) {
      char name[8];
      snprintf(name, sizeof name, "<%02X>", *p++);
      put(&w, name);
      inside = false;
      continue;
    }
    p += bytes;
    if (plain && code == ' ') put(&w, " ");
    else put_visible(&w, code, inside);
    inside = code > ' ';
  }
  if (!plain && !w.bytes) put(&w, "∅");
  *out = (hd_label){.text = w.text, .bytes = w.bytes};
  for (int at = 0; at < w.bytes;) {
    utf8proc_int32_t code;
    at += (int)utf8proc_iterate((const utf8proc_uint8_t *)w.text + at, w.bytes - at, &code);
    out->columns += utf8proc_charwidth(code);
  }
  return HEED_OK;
}

heed_status hd_labels(heed_context *context, hd_arena *arena, const heed_text *tokens, int64_t count, hd_label **out) {
  HD_TRY(hd_arena_allocate(arena, context, "the labels of tokens", count, sizeof **out, out));
  for (int64_t i = 0; i < count; i++) HD_TRY(make_label(context, arena, tokens[i], false, &(*out)[i]));
  return HEED_OK;
}

heed_status hd_label_of(heed_context *context, hd_arena *arena, heed_text text, hd_label *out) {
  return make_label(context, arena, text, true, out);
}

hd_label hd_label_cut(const hd_label *label, int columns, char buffer[HD_LABEL_BYTES]) {
  static const char ellipsis[] = "…";
  enum { ELLIPSIS_BYTES = sizeof ellipsis - 1 };
  if (label->columns <= columns && label->bytes < HD_LABEL_BYTES) {
    memcpy(buffer, label->text, (size_t)label->bytes);
    return (hd_label){buffer, label->bytes, label->columns};
  }
  if (columns <= 0) return (hd_label){buffer, 0, 0};
  // The last place where the text may be cut and the ellipsis still fits.
  int at = 0, width = 0, cut_bytes = 0, cut_columns = 0;
  utf8proc_int32_t previous = 0, state = 0;
  while (at < label->bytes) {
    utf8proc_int32_t code;
    int bytes = (int)utf8proc_iterate((const utf8proc_uint8_t *)label->text + at, label->bytes - at, &code);
    if (at == 0 || utf8proc_grapheme_break_stateful(previous, code, &state)) cut_bytes = at, cut_columns = width;
    if (width + utf8proc_charwidth(code) > columns - 1 || at + bytes + ELLIPSIS_BYTES > HD_LABEL_BYTES) break;
    width += utf8proc_charwidth(code);
    at += bytes;
    previous = code;
  }
  memcpy(buffer, label->text, (size_t)cut_bytes);
  memcpy(buffer + cut_bytes, ellipsis, ELLIPSIS_BYTES);
  return (hd_label){buffer, cut_bytes + ELLIPSIS_BYTES, cut_columns + 1};
}
