/* utf8.c: the one decoder of UTF-8: validation, characters, and what to do with bytes that are none all follow from it. */
#include "utf8.h"

int hd_utf8_next(const char *data, size_t length, uint32_t *code) {
  const unsigned char *bytes = (const unsigned char *)data;
  if (length == 0) return 0;
  unsigned lead = bytes[0];
  if (lead < 0x80) {
    *code = lead;
    return 1;
  }
  int size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (size == 0) return -1;
  // The second byte's range is what excludes overlong forms (E0, F0), surrogates (ED) and code points beyond the last (F4).
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t value = lead & (0x7Fu >> size);
  for (int i = 1; i < size; i++, low = 0x80, high = 0xBF) {
    if ((size_t)i == length) return 0;
    if (bytes[i] < low || bytes[i] > high) return -i;
    value = value << 6 | (bytes[i] & 0x3F);
  }
  *code = value;
  return size;
}

int hd_utf8_put(uint32_t code, char out[4]) {
  const int size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = size - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
  out[0] = (char)(size == 1 ? code : (0xF00u >> size & 0xFF) | code);
  return size;
}

size_t hd_utf8_valid(const char *data, size_t length) {
  size_t at = 0;
  uint32_t code;
  while (at < length) {
    int size = hd_utf8_next(data + at, length - at, &code);
    if (size <= 0) break;
    at += (size_t)size;
  }
  return at;
}

bool hd_is_white_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
