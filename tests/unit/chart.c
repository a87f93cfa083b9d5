/* chart: the same chart as SVG, PNG and HTML: where points land, what is left out, the colours of papers, and every refusal. */
#include "test.h"

#include "counting_allocator.h"
#include "support/sample.h"

#include "../../src/view/chart.h"

#include <png.h>
#include <stdio.h>

typedef heed_status (*chart_output)(heed_context *, const heed_chart *, const heed_sink *);
static const chart_output outputs[] = {heed_chart_svg, heed_chart_png, heed_chart_html};

static const double x[] = {0, 1, 2, 3, 4}, rising[] = {0, 25, 50, 75, 100}, powers[] = {1, 10, 100, 0, 10000},
                    broken[] = {1, 2, NAN, INFINITY, 5};

#define TEXT(words)                                                                                                                        \
  { words, sizeof(words) - 1 }

static const heed_series linear_series[] = {{TEXT("rising & <falling>"), 5, x, rising, false}};
static const heed_series other_series[] = {{TEXT("powers"), 5, x, powers, false}, {TEXT("expected"), 2, x, powers, true}};
static const heed_panel panels[] = {
    {TEXT("one"), {TEXT("across"), 0}, {TEXT("up"), 0}, 1, linear_series},
    {TEXT("two"), {TEXT("across"), 0}, {TEXT("up"), 10}, 2, other_series},
};
static const heed_chart usual = {
    .size = sizeof usual,
    .title = TEXT("A chart of √d_k"),
    .caption = TEXT("What was found, in one sentence that is long enough to be wrapped into a second line under two panels, "
                    "because it goes on and on about numbers that nobody has asked for."),
    .command = TEXT("heed experiment \"x\""),
    .panel_count = 2,
    .panels = panels};

/* free(bytes.data) */
static sample_bytes written(heed_context *context, chart_output write, const heed_chart *chart) {
  sample_bytes bytes = {.fail_after = -1};
  ok(context, write(context, chart, &(heed_sink){&bytes, sample_write}));
  assert_non_null(bytes.data);
  return bytes;
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (; (text = strstr(text, what)); text += strlen(what)) n++;
  return n;
}

/* The numbers of the n-th polyline of a tone. */
static int line_points(const char *svg, const char *class, int n, double at[64]) {
  int numbers = 0;
  for (; n >= 0; n--) {
    svg = strstr(svg + 1, class);
    assert_non_null(svg);
  }
  svg = strstr(svg, "points=\"") + 8;
  for (char *end; *svg != '"' && numbers < 64; svg = end + (*end == ',' || *end == ' ')) at[numbers++] = strtod(svg, &end);
  return numbers;
}

static void points_land_on_their_scales(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  sample_bytes svg = written(context, heed_chart_svg, &usual);
  double at[64];
  // The legend's sample is the first line of its tone, the series the second: a straight one from corner to corner.
  assert_int_equal(line_points(svg.data, "class=\"s4\"", 1, at), 10);
  for (int i = 1; i < 5; i++) {
    assert_true(fabs(at[2 * i] - at[2 * i - 2] - (at[2] - at[0])) < 0.02);
    assert_true(fabs(at[2 * i + 1] - at[2 * i - 1] - (at[3] - at[1])) < 0.02);
  }
  assert_true(at[2] > at[0] && at[3] < at[1]);
  // Powers of ten are a straight line too, as far as the number that has no logarithm; what comes after it stands alone.
  assert_int_equal(line_points(svg.data, "class=\"s4\"", 3, at), 6);
  assert_true(fabs(at[5] - at[3] - (at[3] - at[1])) < 0.02);
  assert_int_equal(count(svg.data, "<polygon"), 5 + 1 + 4 + 1);
  assert_non_null(strstr(svg.data, "rising &amp; &lt;falling&gt;"));
  assert_non_null(strstr(svg.data, ">100</text>"));
  assert_non_null(strstr(svg.data, ">1e4</text>"));
  assert_int_equal(count(svg.data, "stroke-dasharray"), 2);
  free(svg.data);
  heed_context_free(context);
}

static void numbers_are_for_people(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *name;
  } cases[] = {{0, "0"},       {1, "1"},           {0.25, "0.25"},      {-3, "-3"},
               {1000, "1000"}, {10000, "1e4"},     {123456, "1.235e5"}, {0.001, "0.001"},
               {1e-4, "1e-4"}, {1.5e-7, "1.5e-7"}, {-2e-10, "-2e-10"},  {1e100, "1e100"}};
  char buffer[HD_NUMBER_NAME];
  for (int i = 0; i < HD_COUNT(cases); i++) { assert_string_equal(hd_number_name(cases[i].value, buffer), cases[i].name); }
}

static void charts_of_every_kind(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const double same[] = {7, 7, 7, 7, 7};
  const heed_series odd[] = {{TEXT("none"), 0, NULL, NULL, false},  {TEXT("one"), 1, x, rising, false}, {TEXT("same"), 5, x, same, false},
                             {TEXT("broken"), 5, x, broken, false}, {TEXT("line"), 5, rising, x, true}, {{NULL, 0}, 5, x, rising, false}};
  static const int bases[] = {0, 2, 10};
  for (int b = 0; b < HD_COUNT(bases); b++)
    for (int k = 0; k < HD_COUNT(odd); k++)
      for (int64_t count = 1; count <= 16; count += 5) {
        heed_panel many[16];
        for (int i = 0; i < 16; i++) many[i] = (heed_panel){.x.base = bases[b], .y.base = bases[b], .series_count = 1, .series = &odd[k]};
        const heed_chart chart = {.size = sizeof chart, .panel_count = count, .panels = many};
        for (int o = 0; o < HD_COUNT(outputs); o++) {
          sample_bytes bytes = written(context, outputs[o], &chart);
          if (outputs[o] == heed_chart_svg) assert_null(strstr(bytes.data, "nan"));
          free(bytes.data);
        }
      }
  heed_context_free(context);
}

static void papers_have_their_colours(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int paper = HEED_PAPER_READER; paper <= HEED_PAPER_DARK; paper++) {
    heed_chart chart = usual;
    chart.paper = (heed_paper)paper;
    sample_bytes svg = written(context, heed_chart_svg, &chart), html = written(context, heed_chart_html, &chart),
                 png = written(context, heed_chart_png, &chart);
    assert_int_equal(strstr(svg.data, "prefers-color-scheme") != NULL, paper == HEED_PAPER_READER);
    assert_int_equal(strstr(html.data, "prefers-color-scheme") != NULL, paper == HEED_PAPER_READER);
    assert_non_null(strstr(html.data, "heed experiment &quot;x&quot;"));
    assert_null(strstr(html.data, "http://www.w3.org/1999"));
    assert_int_equal(count(html.data, "<table>"), 3);
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&image, png.data, png.used));
    image.format = PNG_FORMAT_RGB;
    uint8_t *pixels = malloc(PNG_IMAGE_SIZE(image));
    assert_true(png_image_finish_read(&image, NULL, pixels, 0, NULL));
    double width = strtod(strstr(svg.data, " width=\"") + 8, NULL), at[64];
    assert_int_equal(image.width, (int)(2 * width));
    hd_rgb expected = hd_tone_color(HD_TONE_PAPER, paper == HEED_PAPER_DARK),
           blue = hd_tone_color(HD_TONE_SERIES, paper == HEED_PAPER_DARK);
    assert_memory_equal(pixels, &expected, 3);
    // A point of the SVG is that point of the PNG.
    line_points(svg.data, "class=\"s4\"", 1, at);
    assert_memory_equal(pixels + 3 * ((int)(2 * at[5]) * (int)image.width + (int)(2 * at[4])), &blue, 3);
    free(pixels);
    free(svg.data);
    free(html.data);
    free(png.data);
  }
  heed_context_free(context);
}

static void illegal_charts_are_refused(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const heed_series without = {TEXT("x"), 3, x, NULL, false};
  const heed_panel no_numbers = {.series_count = 1, .series = &without}, no_series = {.series_count = 1}, base = {.x.base = 3};
  const struct {
    heed_chart chart;
    heed_status status;
  } cases[] = {
      {{.panel_count = 1, .panels = panels}, HEED_E_ARGUMENT}, // no size
      {{.size = sizeof(heed_chart), .panel_count = 0, .panels = panels}, HEED_E_SHAPE},
      {{.size = sizeof(heed_chart), .panel_count = 17, .panels = panels}, HEED_E_SHAPE},
      {{.size = sizeof(heed_chart), .panel_count = 1}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_chart), .panel_count = 1, .panels = &no_numbers}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_chart), .panel_count = 1, .panels = &no_series}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_chart), .panel_count = 1, .panels = &base}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_chart), .panel_count = 1, .panels = panels, .paper = (heed_paper)3}, HEED_E_ARGUMENT},
  };
  for (int o = 0; o < HD_COUNT(outputs); o++) {
    sample_bytes bytes = {.fail_after = -1};
    const heed_sink sink = {&bytes, sample_write};
    for (int i = 0; i < HD_COUNT(cases); i++) {
      assert_int_equal(outputs[o](context, &cases[i].chart, &sink), cases[i].status);
      assert_int_equal(bytes.used, 0);
    }
    assert_int_equal(outputs[o](NULL, &usual, &sink), HEED_E_ARGUMENT);
    assert_int_equal(outputs[o](context, NULL, &sink), HEED_E_ARGUMENT);
    assert_int_equal(outputs[o](context, &usual, NULL), HEED_E_ARGUMENT);
    free(bytes.data);
  }
  heed_context_free(context);
}

static void a_failing_sink_is_a_write_error(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int o = 0; o < HD_COUNT(outputs); o++) {
    sample_bytes whole = written(context, outputs[o], &usual);
    for (int part = 0; part < 4; part++) {
      sample_bytes bytes = {.fail_after = (long)whole.used * part / 4};
      assert_int_equal(outputs[o](context, &usual, &(heed_sink){&bytes, sample_write}), HEED_E_WRITE);
      free(bytes.data);
    }
    free(whole.data);
  }
  heed_context_free(context);
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  for (int o = 0; o < HD_COUNT(outputs); o++) {
    heed_status status = HEED_E_MEMORY;
    for (int64_t n = 0; status == HEED_E_MEMORY; n++) {
      ledger l;
      heed_context *context = ledger_context(&l, 1);
      int64_t before = l.now;
      sample_bytes bytes = {.fail_after = -1};
      l.budget = n;
      status = outputs[o](context, &usual, &(heed_sink){&bytes, sample_write});
      assert_true(n < 1000 && (status == HEED_OK || status == HEED_E_MEMORY));
      assert_int_equal(l.now, before);
      heed_context_free(context);
      free(bytes.data);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(points_land_on_their_scales), cmocka_unit_test(numbers_are_for_people),
      cmocka_unit_test(charts_of_every_kind),        cmocka_unit_test(papers_have_their_colours),
      cmocka_unit_test(illegal_charts_are_refused),  cmocka_unit_test(a_failing_sink_is_a_write_error),
      cmocka_unit_test(memory_may_run_out_anywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
