/* utf8.h: one character at a time, by table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef HD_UTF8_H
#define HD_UTF8_H

#include "../base/base.h"

/* The character at data: its length in bytes (1 to 4) with *code set; 0 if all `length` bytes begin a character that needs more of them; −n if the first n bytes can never
 * be one, whatever follows (the "maximal subpart" that one U+FFFD replaces). */
int hd_utf8_next(const char *data, size_t length, uint32_t *code);

/* The character in UTF-8 and its length; code is a Unicode scalar value. */
int hd_utf8_put(uint32_t code, char out[4]);

/* The offset of the first byte that is not UTF-8, or length. */
size_t hd_utf8_valid(const char *data, size_t length);

/* Whether the character has Unicode's White_Space property. */
bool hd_is_white_space(uint32_t code);

#define HD_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

#endif
