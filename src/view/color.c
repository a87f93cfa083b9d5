/* color.c: one perceptually uniform colour map, for light and for dark paper.
 *
 * Each map is a cubic Bézier curve in OKLab (Björn Ottosson, "A perceptual color space for image processing", 2020; the matrices below are his), walked at equal
 * steps of arc length, so that equal steps of level look equally large. Lightness is strictly monotone, from white to deep blue or from near-black through
 * blue and green to pale yellow, so the order of values survives colour blindness and a grey printer. All of both curves lies inside sRGB. */
#include "record.h"

#include <math.h>

typedef struct lab {
  double v[3]; /* lightness, green–red, blue–yellow */
} lab;

/* Control points as lightness, chroma, hue in degrees. */
static const double light_curve[4][3] = {{1.00, 0.000, 0}, {0.80, 0.110, 235}, {0.55, 0.170, 255}, {0.29, 0.110, 265}};
static const double dark_curve[4][3] = {{0.20, 0.035, 270}, {0.42, 0.150, 258}, {0.72, 0.150, 175}, {0.965, 0.090, 105}};

static lab lab_of(const double lch[3]) {
  double angle = lch[2] * 3.14159265358979323846 / 180;
  return (lab){{lch[0], lch[1] * cos(angle), lch[1] * sin(angle)}};
}

static double distance(lab a, lab b) {
  double sum = 0;
  for (int k = 0; k < 3; k++) sum += (a.v[k] - b.v[k]) * (a.v[k] - b.v[k]);
  return sqrt(sum);
}

static uint8_t encode(double linear) {
  double value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
  return (uint8_t)lrint(255 * HD_MIN(HD_MAX(value, 0), 1));
}

static double decode(uint8_t byte) {
  double value = byte / 255.0;
  return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static hd_rgb rgb_of(lab c) {
  double l = c.v[0] + 0.3963377774 * c.v[1] + 0.2158037573 * c.v[2], m = c.v[0] - 0.1055613458 * c.v[1] - 0.0638541728 * c.v[2],
         s = c.v[0] - 0.0894841775 * c.v[1] - 1.2914855480 * c.v[2];
  l *= l * l, m *= m * m, s *= s * s;
  return (hd_rgb){encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                  encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                  encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

static lab lab_of_rgb(hd_rgb c) {
  double r = decode(c.r), g = decode(c.g), b = decode(c.b);
  double l = cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b), m = cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b),
         s = cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return (lab){{0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s, 1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
                0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s}};
}

static lab curve_at(const lab points[4], double t) {
  double u = 1 - t, w[4] = {u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t};
  lab out = {{0}};
  for (int p = 0; p < 4; p++)
    for (int k = 0; k < 3; k++) out.v[k] += w[p] * points[p].v[k];
  return out;
}

void hd_color_map(bool dark, hd_rgb map[HD_LEVELS]) {
  enum { STEPS = 2048 }; // eight chords a level: the chord length is the arc length to five digits
  lab points[4];
  double length[STEPS + 1] = {0};
  for (int p = 0; p < 4; p++) points[p] = lab_of(dark ? dark_curve[p] : light_curve[p]);
  for (int i = 1; i <= STEPS; i++)
    length[i] = length[i - 1] + distance(curve_at(points, (i - 1) / (double)STEPS), curve_at(points, i / (double)STEPS));
  for (int level = 0, i = 0; level < HD_LEVELS; level++) {
    double want = length[STEPS] * level / (HD_LEVELS - 1);
    while (i < STEPS - 1 && length[i + 1] < want) i++;
    double within = (want - length[i]) / (length[i + 1] - length[i]);
    map[level] = rgb_of(curve_at(points, (i + within) / STEPS));
  }
}

int hd_level(float weight) {
  if (!(weight > 0)) return 0;
  return (int)lrint((HD_LEVELS - 1) * sqrt(HD_MIN((double)weight, 1)));
}

double hd_color_distance(hd_rgb a, hd_rgb b) { return distance(lab_of_rgb(a), lab_of_rgb(b)); }

/* xterm's palette: a 6 × 6 × 6 cube from 16, whose steps are 0, 95, 135, ... 255, then 24 greys from 8 in steps of 10. Only the five darkest greys are used,
 * between black and the first blue, where the cube has nothing: a map that went on changing between grey and blue would read as two quantities. */
enum { CUBE_BEGIN = 16, GREY_BEGIN = 232, GREY_END = 237 };

static hd_rgb palette_256(int index) {
  if (index >= GREY_BEGIN) {
    uint8_t grey = (uint8_t)(8 + 10 * (index - GREY_BEGIN));
    return (hd_rgb){grey, grey, grey};
  }
  int cube = index - CUBE_BEGIN, step[3] = {cube / 36, cube / 6 % 6, cube % 6};
  for (int k = 0; k < 3; k++) step[k] = step[k] ? 55 + 40 * step[k] : 0;
  return (hd_rgb){(uint8_t)step[0], (uint8_t)step[1], (uint8_t)step[2]};
}

int hd_color_256(hd_rgb c) {
  lab wanted = lab_of_rgb(c);
  int best = CUBE_BEGIN;
  double least = INFINITY;
  for (int index = CUBE_BEGIN; index < GREY_END; index++) {
    double d = distance(wanted, lab_of_rgb(palette_256(index)));
    if (d < least) {
      least = d;
      best = index;
    }
  }
  return best;
}
