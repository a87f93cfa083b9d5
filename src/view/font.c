/* font.c: the glyphs, drawn as text so that a person can see and mend them. Printable ASCII and Latin-1, the signs that labels use, and a box with the code
 * point for everything else. Latin-1's accented letters are a letter and a mark. */
#include "font.h"

#include <utf8proc.h>

enum { ROWS = 9, COLUMNS = 5, ACCENT_ROWS = 2 };

/* Characters, and their glyphs side by side, each five columns wide with one of air after it. */
typedef struct band {
  const char *characters;
  const char *rows[ROWS];
} band;

// clang-format off
static const band bands[] = {
    {" !\"#$%&'()*+,-./0123",
     {"        #    # #   # #    #   ##     #      #      #   #                                      #  ###    #    ###   ### ",
      "        #    # #   # #   #### ##  #   # #   #     #     #     #     #                         # #   #  ##   #   # #   #",
      "        #         ##### # #      #  # #    #     #       #   # #    #                        #  #  ##   #       #     #",
      "        #          # #   ###    #    #           #       #  ###   #####       #####         #   # # #   #      #    ## ",
      "        #         #####   # #  #    # # #        #       #   # #    #                      #    ##  #   #     #       #",
      "                   # #  ####  #  ## #  #          #     #     #     #    ##          ##   #     #   #   #    #    #   #",
      "        #          # #    #      ##  ## #          #   #                 ##          ##   #      ###   ###  #####  ### ",
      "                                                                          #                                            ",
      "                                                                         #                                             "}},
    {"456789:;<=>?@ABCDEFG",
     {"   #  #####  ###  #####  ###   ###                                 ###   ###   ###  ####   ###  ####  ##### #####  ### ",
      "  ##  #     #         # #   # #   #  ##    ##     #          #    #   # #   # #   # #   # #   # #   # #     #     #   #",
      " # #  ####  #        #  #   # #   #  ##    ##    #    #####   #       # #  ## #   # #   # #     #   # #     #     #    ",
      "#  #      # ####    #    ###   ####             #              #     #  # # # ##### ####  #     #   # ####  ####  # ###",
      "#####     # #   #   #   #   #     #              #    #####   #     #   # ### #   # #   # #     #   # #     #     #   #",
      "   #  #   # #   #  #    #   #     #  ##    ##     #          #          #     #   # #   # #   # #   # #     #     #   #",
      "   #   ###   ###   #     ###   ###   ##    ##                       #    ###  #   # ####   ###  ####  ##### #      ####",
      "                                            #                                                                          ",
      "                                           #                                                                           "}},
    {"HIJKLMNOPQRSTUVWXYZ[",
     {"#   #  ###     ## #   # #     #   # #   #  ###  ####   ###  ####   #### ##### #   # #   # #   # #   # #   # #####  ### ",
      "#   #   #      #  #  #  #     ## ## ##  # #   # #   # #   # #   # #       #   #   # #   # #   # #   # #   #     #  #   ",
      "#   #   #      #  # #   #     # # # # # # #   # #   # #   # #   # #       #   #   # #   # #   #  # #   # #     #   #   ",
      "#####   #      #  ##    #     # # # #  ## #   # ####  #   # ####   ###    #   #   # #   # # # #   #     #     #    #   ",
      "#   #   #      #  # #   #     #   # #   # #   # #     # # # # #       #   #   #   # #   # # # #  # #    #    #     #   ",
      "#   #   #      #  #  #  #     #   # #   # #   # #     #  #  #  #      #   #   #   #  # #  ## ## #   #   #   #      #   ",
      "#   #  ###  ###   #   # ##### #   # #   #  ###  #      ## # #   # ####    #    ###    #   #   # #   #   #   #####  ### ",
      "                                                                                                                       ",
      "                                                                                                                       "}},
    {"\\]^_`abcdefghijklmno",
     {"       ###    #          #          #               #         ##        #       #      #  #      ##                    ",
      "#        #   # #          #         #               #        #  #       #                 #       #                    ",
      " #       #  #   #              ###  ####   ###   ####  ###  ###    #### # ##   ##     ##  #  #    #   ## #  # ##   ### ",
      "  #      #                        # #   # #   # #   # #   #  #    #   # ##  #   #      #  # #     #   # # # ##  # #   #",
      "   #     #                     #### #   # #     #   # #####  #    #   # #   #   #      #  ##      #   # # # #   # #   #",
      "    #    #                    #   # #   # #   # #   # #      #     #### #   #   #      #  # #     #   # # # #   # #   #",
      "       ###                     #### ####   ###   ####  ###   #        # #   #  ###     #  #  #   ###  # # # #   #  ### ",
      "                  #####                                            ###                 #                               ",
      "                                                                                    ###                                "}},
    {"pqrstuvwxyz{|}~¡¢£¤¥",
     {"                         #                                          ##    #   ##            #     #     ##        #   #",
      "                         #                                         #      #     #    #           ####  #  # #   #  # # ",
      "# ##   ## # # ##   #### ####  #   # #   # #   # #   # #   # #####  #      #     #   # # #   #   # #    #     ###  #####",
      "##  # #  ## ##  # #      #    #   # #   # #   #  # #  #   #    #  #       #      #     #    #   # #   ###    # #    #  ",
      "#   # #   # #      ###   #    #   # #   # # # #   #   #   #   #    #      #     #           #   # #    #     ###  #####",
      "##  # #  ## #         #  #  # #  ##  # #  # # #  # #   ####  #     #      #     #           #    ####  #    #   #   #  ",
      "# ##   ## # #     ####    ##   ## #   #    # #  #   #     # #####   ##    #   ##            #     #   #####         #  ",
      "#         #                                            ###                                                             ",
      "#         #                                                                                                            "}},
    {"¦§¨©ª«¬\u00AD®¯°±²³´µ¶·¸¹",
     {"  #    ####  # #   ###   ###                     ###  #####  ##     #    ##    ###     #         ####               #  ",
      "  #   #           #   # #  #                    #   #       #  #    #      #    #     #         ### #              ##  ",
      "  #    ###        # ###  ####   # #             ### #        ##   #####   #      #        #  #  ### #               #  ",
      "      #   #       # #          # #  #####  ###  ### #               #    ###   ##         #  #   ## #   ##         ### ",
      "  #    ###        # ### ##### # #       #       # # #               #                     #  #    # #   ##             ",
      "  #       #       #   #        # #              #   #                                     #  #    # #                  ",
      "  #   ####         ###          # #              ###              #####                   ### #   # #                  ",
      "                                                                                          #                   #        ",
      "                                                                                          #                  ##        "}},
    {"º»¼½¾¿ÆÐ×ØÞßæð÷øþı…→",
     {" ##         #  #  #  #  ## #    #    ####  ###         #### #      ##          # #              #                      ",
      "#  #        # #   # #    ##         # #    #  #       #  ## ####  #  #          #     #         #                      ",
      " ##   # #    #     # ## ##      #   # #    #  # #   # # # # #   # #  #  ## #   # #         #### # ##   ##           #  ",
      "       # #  # # # #   #  # #   #    ##### ### #  # #  # # # #   # # ##    # #  #### ##### #  ## ##  #   #            # ",
      "####    # #   ###    #  # ### #     # #    #  #   #   # # # ####  #   #  #### #   #       # # # #   #   #         #####",
      "       # #      #   ###     # #   # # #    #  #  # #  ##  # #     #   # # #   #   #   #   ##  # ##  #   #            # ",
      "      # #                      ###  # ###  ###  #   # ####  #     # ##   # ##  ###        ####  # ##   ###  # # #   #  ",
      "                                                                                                #                      ",
      "                                                                                                #                      "}},
    {"⇥∅⏎␠◌√",
     {"          #     #                ##",
      "       ###      #                # ",
      "  # # #  ##   # #        # #     # ",
      "   ## # # #  #  #       #   # #  # ",
      "##### ##  # #####              # # ",
      "   ##  ###   #    #   # #   #   ## ",
      "  # # #       #   #####  # #     # ",
      "                                   ",
      "                                   "}},
};

/* Marks of two rows, drawn over the letter; the cedilla hangs below it. */
enum { GRAVE, ACUTE, CIRCUMFLEX, TILDE, DIAERESIS, RING, CEDILLA };
static const char *const marks[][ACCENT_ROWS] = {
    {" #   ", "  #  "}, {"   # ", "  #  "}, {"  #  ", " # # "}, {" ## #", "# ## "}, {" # # ", "     "}, {" ### ", " ### "}, {"  #  ", " ##  "},
};

/* The letter and mark of U+00C0..U+00FF; 0 where the glyph is drawn whole. */
static const struct { char letter; uint8_t mark; } compositions[64] = {
    {'A', GRAVE}, {'A', ACUTE}, {'A', CIRCUMFLEX}, {'A', TILDE}, {'A', DIAERESIS}, {'A', RING}, {0, 0}, {'C', CEDILLA},
    {'E', GRAVE}, {'E', ACUTE}, {'E', CIRCUMFLEX}, {'E', DIAERESIS}, {'I', GRAVE}, {'I', ACUTE}, {'I', CIRCUMFLEX}, {'I', DIAERESIS},
    {0, 0}, {'N', TILDE}, {'O', GRAVE}, {'O', ACUTE}, {'O', CIRCUMFLEX}, {'O', TILDE}, {'O', DIAERESIS}, {0, 0},
    {0, 0}, {'U', GRAVE}, {'U', ACUTE}, {'U', CIRCUMFLEX}, {'U', DIAERESIS}, {'Y', ACUTE}, {0, 0}, {0, 0},
    {'a', GRAVE}, {'a', ACUTE}, {'a', CIRCUMFLEX}, {'a', TILDE}, {'a', DIAERESIS}, {'a', RING}, {0, 0}, {'c', CEDILLA},
    {'e', GRAVE}, {'e', ACUTE}, {'e', CIRCUMFLEX}, {'e', DIAERESIS}, {'i', GRAVE}, {'i', ACUTE}, {'i', CIRCUMFLEX}, {'i', DIAERESIS},
    {0, 0}, {'n', TILDE}, {'o', GRAVE}, {'o', ACUTE}, {'o', CIRCUMFLEX}, {'o', TILDE}, {'o', DIAERESIS}, {0, 0},
    {0, 0}, {'u', GRAVE}, {'u', ACUTE}, {'u', CIRCUMFLEX}, {'u', DIAERESIS}, {'y', ACUTE}, {0, 0}, {'y', DIAERESIS},
};

/* Hexadecimal digits of three columns and five rows, for the boxes. */
static const char *const digits[5] = {
    "### ##  ### ### # # ### ### ### ### ### ### ##  ### ##  ### ### ",
    "# #  #    #   # # # #   #     # # # # # # # # # #   # # #   #   ",
    "# #  #  ### ### ### ### ###   # ### ### ### ##  #   # # ### ### ",
    "# #  #  #     #   #   # # #   # # #   # # # # # #   # # #   #   ",
    "### ### ### ###   # ### ###   # ### ### # # ##  ### ##  ### #   ",
};
// clang-format on

enum { DOTLESS_I = 0x131 };

static bool find_glyph(int32_t code, const band **out, int *column) {
  for (int b = 0; b < HD_COUNT(bands); b++) {
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)bands[b].characters;
    for (int k = 0; *p; k++) {
      utf8proc_int32_t here;
      p += utf8proc_iterate(p, -1, &here);
      if (here != code) continue;
      *out = &bands[b];
      *column = k * (COLUMNS + 1);
      return true;
    }
  }
  return false;
}

static bool drawn_ink(int32_t code, int x, int y) {
  const band *b;
  int column;
  if (x >= COLUMNS || y < ACCENT_ROWS || !find_glyph(code, &b, &column)) return false;
  return b->rows[y - ACCENT_ROWS][column + x] == '#';
}

static bool composed(int32_t code) { return code >= 0xC0 && code <= 0xFF && compositions[code - 0xC0].letter; }

static bool composed_ink(int32_t code, int x, int y) {
  int32_t letter = compositions[code - 0xC0].letter;
  int mark = compositions[code - 0xC0].mark;
  // A mark stands just above its letter, whose height is five rows or seven.
  int top = mark == CEDILLA ? HD_FONT_HEIGHT - ACCENT_ROWS : letter >= 'a' ? 1 : 0;
  if (x < COLUMNS && y >= top && y < top + ACCENT_ROWS && marks[mark][y - top][x] == '#') return true;
  return drawn_ink(letter == 'i' ? DOTLESS_I : letter, x, y);
}

static int box_digits(int32_t code) { return code > 0xFFFFF ? 6 : code > 0xFFFF ? 5 : 4; }

/* A frame nine rows high around digits with one pixel of air. */
static bool box_ink(int32_t code, int x, int y) {
  int count = box_digits(code), right = 4 * count + 2;
  y -= 1;
  if (x > right || y < 0 || y > 8) return false;
  if (x == 0 || x == right || y == 0 || y == 8) return true;
  x -= 2;
  y -= 2;
  if (x < 0 || x >= 4 * count || y < 0 || y >= 5) return false;
  int digit = (code >> (4 * (count - 1 - x / 4))) & 15;
  return digits[y][4 * digit + x % 4] == '#';
}

static bool has_glyph(int32_t code) {
  const band *b;
  int column;
  return composed(code) || find_glyph(code, &b, &column);
}

int hd_font_advance(int32_t code) { return has_glyph(code) ? HD_FONT_ADVANCE : 4 * box_digits(code) + 4; }

bool hd_font_ink(int32_t code, int x, int y) {
  if (composed(code)) return composed_ink(code, x, y);
  return has_glyph(code) ? drawn_ink(code, x, y) : box_ink(code, x, y);
}
