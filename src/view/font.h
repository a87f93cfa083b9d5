/* font.h: a small bitmap font for the labels of PNG pictures. */
#ifndef HD_FONT_H
#define HD_FONT_H

#include "../base/base.h"

enum { HD_FONT_HEIGHT = 11, HD_FONT_ADVANCE = 6 }; /* pixels: two rows for accents, seven above the base line, two below it */

/* Pixels from the left edge of a character to that of the next, the gap included. Characters that the font lacks are wider: a box that holds their code point. */
int hd_font_advance(int32_t code);
/* Whether the pixel is ink; x in [0, advance), y in [0, HD_FONT_HEIGHT). */
bool hd_font_ink(int32_t code, int x, int y);

#endif
