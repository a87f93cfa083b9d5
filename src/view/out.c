/* out.c: buffered text on its way to a sink; numbers and strings in the forms that JSON, CSV and XML want. */
#include "record.h"

#include <math.h>
#include <stdio.h>
#include <utf8proc.h>

void hd_out_begin(hd_out *out, heed_context *context, const heed_sink *sink) {
  out->context = context;
  out->sink = sink;
  out->used = 0;
  out->status = sink && sink->write ? HEED_OK : hd_fail(context, HEED_E_ARGUMENT, "sink: null, or it has no write function");
}

static void flush(hd_out *out) {
  if (out->status == HEED_OK && out->used && !out->sink->write(out->sink->user, out->buffer, (size_t)out->used))
    out->status = hd_fail(out->context, HEED_E_WRITE, "the output could not be written");
  out->used = 0;
}

void hd_out_bytes(hd_out *out, const void *data, int64_t bytes) {
  const char *from = data;
  while (bytes > 0) {
    if (out->used == (int)sizeof out->buffer) flush(out);
    int take = (int)HD_MIN(bytes, (int64_t)sizeof out->buffer - out->used);
    memcpy(out->buffer + out->used, from, (size_t)take);
    out->used += take;
    from += take;
    bytes -= take;
  }
}

heed_status hd_out_end(hd_out *out) {
  flush(out);
  return out->status;
}

void hd_out_text(hd_out *out, const char *text) { hd_out_bytes(out, text, (int64_t)strlen(text)); }
void hd_out_label(hd_out *out, const hd_label *label) { hd_out_bytes(out, label->text, label->bytes); }

void hd_out_spaces(hd_out *out, int count) {
  for (int i = 0; i < count; i++) hd_out_bytes(out, " ", 1);
}

void hd_out_print(hd_out *out, const char *format, ...) {
  char text[512]; // callers print numbers and fixed words; texts of unknown length go through hd_out_text and its like
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  hd_out_bytes(out, text, HD_MIN(HD_MAX(length, 0), (int)sizeof text - 1));
}

void hd_plain_number(char *text) {
  char *to = text;
  bool pointed = false;
  for (const char *at = text; *at; at++) {
    bool own = (*at >= '0' && *at <= '9') || *at == '-' || *at == '+' || *at == 'e';
    if (own) *to++ = *at;
    else if (!pointed) *to++ = '.', pointed = true;
  }
  *to = 0;
}

void hd_out_number(hd_out *out, float value, const char *other) {
  if (!isfinite(value)) {
    hd_out_text(out, other ? other : "null");
    return;
  }
  char text[32];
  snprintf(text, sizeof text, "%.8g", (double)value);
  if (strtof(text, NULL) != value) snprintf(text, sizeof text, "%.9g", (double)value);
  hd_plain_number(text);
  hd_out_text(out, text);
}

void hd_out_json_string(hd_out *out, heed_text text) {
  const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text.data, *end = p + text.length;
  hd_out_text(out, "\"");
  while (p < end) {
    utf8proc_int32_t code;
    utf8proc_ssize_t bytes = utf8proc_iterate(p, end - p, &code);
    if (bytes <= 0) hd_out_print(out, "\\u003c%02X>", *p++);
    // U+2028 and U+2029 end a line in older readers of script text.
    else if (code < 0x20 || code == 0x7F || code == '<' || code == 0x2028 || code == 0x2029) hd_out_print(out, "\\u%04x", (unsigned)code);
    else if (code == '"' || code == '\\') hd_out_print(out, "\\%c", (char)code);
    else hd_out_bytes(out, p, bytes);
    p += HD_MAX(bytes, 0);
  }
  hd_out_text(out, "\"");
}

void hd_out_escaped(hd_out *out, const char *text, int bytes) {
  for (int i = 0; i < bytes; i++) switch (text[i]) {
    case '&': hd_out_text(out, "&amp;"); break;
    case '<': hd_out_text(out, "&lt;"); break;
    case '>': hd_out_text(out, "&gt;"); break;
    case '"': hd_out_text(out, "&quot;"); break;
    default: hd_out_bytes(out, &text[i], 1);
    }
}

void hd_out_coordinate(hd_out *out, double value) {
  int64_t hundredths = (int64_t)(value * 100 + (value < 0 ? -0.5 : 0.5));
  if (hundredths % 100 == 0) hd_out_print(out, "%lld", (long long)(hundredths / 100));
  else
    hd_out_print(out, "%s%lld.%02lld", hundredths < 0 ? "-" : "", (long long)llabs(hundredths / 100), (long long)llabs(hundredths % 100));
}

void hd_out_attribute(hd_out *out, const char *name, double value) {
  hd_out_print(out, " %s=\"", name);
  hd_out_coordinate(out, value);
  hd_out_text(out, "\"");
}

void hd_out_color(hd_out *out, hd_rgb c) { hd_out_print(out, "#%02x%02x%02x", c.r, c.g, c.b); }
