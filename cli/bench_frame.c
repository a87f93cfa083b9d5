/* bench_frame.c: what all benches share: the cross product of a command's lists, the timing of one case, and its row in a table, in JSON or in CSV.
 *
 * Axes are read from the command's own table of options, so a bench that gains a list gains an axis and a column. */
#include "bench.h"
#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { ROW_CELLS_MAX = 64, GROUP_MAX = 512, TEXT_MAX = 64 };

/* A value under its name. */
typedef struct cell {
  char key[CHOICE_MAX];
  enum { CELL_WHOLE, CELL_NUMBER, CELL_TEXT } kind;
  int64_t whole;
  double number;
  char text[TEXT_MAX];
  bool varies;  /* an axis that has several values in this run */
  bool follows; /* an axis that was left to follow another one */
} cell;

/* The axes first. */
typedef struct row {
  int axes, count;
  cell cells[ROW_CELLS_MAX];
} row;

typedef enum format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV } format;

/* A run of one bench. */
typedef struct bench_job {
  const command *command;
  const bench *bench;
  const bench_values *given; /* the command's values */
  format format;
  bool begun;
  bool group_reads;
  char group[GROUP_MAX]; /* what the rows of the table printed last have in common */
} bench_job;

/* ---- the cross product --------------------------------------------------------------------------------------------------- */

static bool is_axis(const option *o) { return o->kind == OPTION_WHOLES || o->kind == OPTION_NUMBERS || o->kind == OPTION_CHOICES; }

static int64_t points_of(const bench_job *j) {
  int64_t points = 1;
  for (const option *o = j->command->options; o->name; o++)
    if (is_axis(o)) points *= *(const int *)((const char *)j->given + o->at);
  return points;
}

/* Leaves in every list of values the one item that belongs to this number of the cross product. */
static void pick_point(const bench_job *j, int64_t number, void *values) {
  int last = 0;
  while (j->command->options[last].name) last++;
  for (int i = last - 1; i >= 0; i--) {
    const option *o = &j->command->options[i];
    if (!is_axis(o)) continue;
    whole_list *wholes = (whole_list *)((char *)values + o->at);
    number_list *numbers = (number_list *)((char *)values + o->at);
    int64_t count = o->kind == OPTION_NUMBERS ? numbers->count : wholes->count, place = number % count;
    number /= count;
    if (o->kind == OPTION_NUMBERS) numbers->items[0] = numbers->items[place], numbers->count = 1;
    else wholes->items[0] = wholes->items[place], wholes->count = 1;
  }
}

/* ---- one case ------------------------------------------------------------------------------------------------------------ */

/* Calls for `seconds`; *median is the median of one. The call before them warms the caches that the machine probe has emptied. */
static int time_block(int (*call)(bench_case *c), bench_case *c, double seconds, double *median) {
  double times[VALUES_MAX], end;
  int code, calls = 0;
  TRY(call(c));
  end = seconds_now() + seconds;
  do {
    double begin = seconds_now();
    TRY(call(c));
    times[calls++] = seconds_now() - begin;
  } while (seconds_now() < end && calls < VALUES_MAX);
  *median = quartiles_of(times, calls).median;
done:
  return code;
}

static int time_case(const bench_job *j, bench_case *c, blocks *b) {
  double seconds, beside = 0;
  int code;
  TRY(blocks_begin(c->context, j->given->seconds, c->reads, b));
  for (int64_t i = 0; i < j->given->blocks; i++) {
    TRY(time_block(j->bench->call, c, j->given->seconds, &seconds));
    if (c->compares) TRY(time_block(j->bench->beside, c, j->given->seconds, &beside));
    TRY(blocks_add(b, seconds, beside));
  }
done:
  return code;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static cell *add_cell(row *r, const char *key) {
  cell *new = &r->cells[r->count++];
  *new = (cell){0};
  for (size_t i = 0; key[i] && i + 1 < sizeof new->key; i++) new->key[i] = key[i] == '-' ? '_' : key[i];
  return new;
}

static void add_number(row *r, const char *key, double number) {
  cell *new = add_cell(r, key);
  new->kind = CELL_NUMBER;
  new->number = number;
}

static void add_quartiles(row *r, const char *key, quartiles q) {
  char name[CHOICE_MAX];
  add_number(r, key, q.median);
  snprintf(name, sizeof name, "%s_q1", key);
  add_number(r, name, q.low);
  snprintf(name, sizeof name, "%s_q3", key);
  add_number(r, name, q.high);
}

static void add_axes(const bench_job *j, const void *values, row *r) {
  for (const option *o = j->command->options; o->name; o++) {
    if (!is_axis(o)) continue;
    const void *list = (const char *)values + o->at, *given = (const char *)j->given + o->at;
    cell *new = add_cell(r, o->name);
    new->varies = *(const int *)given > 1;
    new->kind = o->kind == OPTION_NUMBERS ? CELL_NUMBER : o->kind == OPTION_CHOICES ? CELL_TEXT : CELL_WHOLE;
    if (new->kind == CELL_NUMBER) new->number = ((const number_list *)list)->items[0];
    else new->whole = ((const whole_list *)list)->items[0];
    new->follows = !new->varies && o->at >= sizeof(bench_values) && new->whole != ((const whole_list *)given)->items[0];
    if (new->kind == CELL_TEXT) choice_at(o->choices, new->whole, new->text);
  }
  r->axes = r->count;
}

static void add_subject(const bench_case *c, row *r) {
  if (!c->subject[0]) return;
  cell *new = add_cell(r, "model");
  new->kind = CELL_TEXT;
  snprintf(new->text, sizeof new->text, "%s", c->subject);
}

static void add_results(const bench_case *c, const blocks *b, row *r) {
  quartiles seconds = blocks_seconds(b);
  add_number(r, "blocks", b->count);
  add_number(r, "median_s", seconds.median);
  add_number(r, "q1_s", seconds.low);
  add_number(r, "q3_s", seconds.high);
  if (c->tokens > 0) {
    add_number(r, "tokens", c->tokens);
    add_number(r, "tokens_per_s", c->tokens / seconds.median);
  }
  if (c->flops > 0) {
    add_number(r, "flops", c->flops);
    add_number(r, "gflops", c->flops / seconds.median / 1e9);
    add_number(r, "peak_gflops", blocks_peak(b).median / 1e9);
    add_quartiles(r, "of_peak", blocks_of_peak(b, c->flops));
  }
  if (c->reads) {
    add_number(r, "bytes", c->bytes);
    add_number(r, "gbs", c->bytes / seconds.median / 1e9);
    add_number(r, "read_gbs", blocks_read(b).median / 1e9);
    add_quartiles(r, "of_bandwidth", blocks_of_read(b, c->bytes));
  }
  if (c->compares) add_quartiles(r, "faster", blocks_beside(b));
}

/* ---- printing ------------------------------------------------------------------------------------------------------------ */

static const char *cell_text(const cell *c, char buffer[TEXT_MAX]) {
  if (c->kind == CELL_TEXT) return c->text;
  if (c->kind == CELL_WHOLE) snprintf(buffer, TEXT_MAX, "%lld", (long long)c->whole);
  else snprintf(buffer, TEXT_MAX, "%.9g", c->number);
  return buffer;
}

static void print_json(const row *r) {
  json j = {0};
  json_open(&j, NULL, '{');
  for (const cell *c = r->cells; c < r->cells + r->count; c++) {
    if (c->kind == CELL_WHOLE) json_whole(&j, c->key, c->whole);
    else if (c->kind == CELL_NUMBER) json_number(&j, c->key, c->number);
    else json_text(&j, c->key, c->text);
  }
  json_close(&j);
}

static void print_csv(const row *r, bool heading) {
  char buffer[TEXT_MAX];
  for (int i = 0; heading && i < r->count; i++) out("%s%s", i ? "," : "", r->cells[i].key);
  if (heading) out("\n");
  for (int i = 0; i < r->count; i++) out("%s%s", i ? "," : "", cell_text(&r->cells[i], buffer));
  out("\n");
}

static int column_width(const cell *c) { return strlen(c->key) > 8 ? (int)strlen(c->key) : 8; }

/* The line that says what the rows below it have in common, and the columns' names. */
static void print_group(bench_job *j, const row *r, const bench_case *b) {
  char group[GROUP_MAX] = "", buffer[TEXT_MAX];
  int used = 0;
  for (const cell *c = r->cells; c < r->cells + r->axes; c++)
    if (!c->varies && !c->follows)
      used += snprintf(group + used, sizeof group - (size_t)used, "%s%s %s", used ? " · " : "", c->key, cell_text(c, buffer));
  if (j->begun && j->group_reads == b->reads && strcmp(group, j->group) == 0) return;
  j->group_reads = b->reads;
  memcpy(j->group, group, sizeof group);
  out("%s%s\n", j->begun ? "\n" : "", group);
  for (const cell *c = r->cells; c < r->cells + r->axes; c++)
    if (c->varies) out("%*s ", column_width(c), c->key);
  if (b->tokens > 0) out("%9s ", "tokens/s");
  out("%11s %9s %9s %8s  %s%s\n", "seconds", b->reads ? "GB/s" : "GFLOP/s", b->reads ? "reading" : "peak", b->reads ? "of it" : "of peak",
      "quartiles", b->compares ? "    times faster" : "");
}

static void print_table(bench_job *j, const row *r, const bench_case *c, const blocks *b) {
  bool reads = c->reads;
  char buffer[TEXT_MAX];
  double amount = reads ? c->bytes : c->flops, seconds = blocks_seconds(b).median;
  quartiles share = reads ? blocks_of_read(b, amount) : blocks_of_peak(b, amount);
  print_group(j, r, c);
  for (const cell *each = r->cells; each < r->cells + r->axes; each++)
    if (each->varies) out("%*s ", column_width(each), cell_text(each, buffer));
  if (c->tokens > 0) out("%9.1f ", c->tokens / seconds);
  out("%11.6f %9.1f %9.1f %8.3f  %.3f–%.3f", seconds, amount / seconds / 1e9, (reads ? blocks_read(b) : blocks_peak(b)).median / 1e9,
      share.median, share.low, share.high);
  if (c->compares) out("  %.2f (%.2f–%.2f)", blocks_beside(b).median, blocks_beside(b).low, blocks_beside(b).high);
  out("\n");
}

static void print_case(bench_job *j, const void *values, const bench_case *c, const blocks *b) {
  row r = {0};
  add_subject(c, &r);
  add_axes(j, values, &r);
  add_results(c, b, &r);
  if (j->format == FORMAT_JSON) print_json(&r);
  else if (j->format == FORMAT_CSV) print_csv(&r, !j->begun);
  else print_table(j, &r, c, b);
  j->begun = true;
}

/* ---- a run --------------------------------------------------------------------------------------------------------------- */

/* Opens a context with the case's threads and level and puts into the values what these defaults mean here. */
static int open_context(bench_values *v, bench_case *c) {
  char level[CHOICE_MAX];
  v->common.threads = v->threads.items[0];
  v->common.level = heed_level_name(heed_level_from_name(choice_at(LEVEL_CHOICES, v->level.items[0], level)));
  int code = context_open(&v->common, &c->context);
  if (code != EXIT_OK) return code;
  v->threads.items[0] = v->common.threads = heed_context_threads(c->context);
  v->level.items[0] = choice_place(LEVEL_CHOICES, heed_level_name(heed_context_level(c->context)));
  return EXIT_OK;
}

static int run_case(bench_job *j, int64_t number) {
  bench_case c = {0};
  blocks b;
  void *values = allocate("a case", 1, j->command->values_size);
  int code;
  memcpy(values, j->given, j->command->values_size);
  pick_point(j, number, values);
  TRY(open_context(values, &c));
  TRY(j->bench->open(values, &c));
  TRY(time_case(j, &c, &b));
  print_case(j, values, &c, &b);
  if (!j->given->output) TRY(out_flush());
done:
  j->bench->close(&c);
  heed_context_free(c.context);
  free(values);
  return code;
}

static format format_of(const bench_values *v) {
  const char *suffix = v->output ? path_suffix(v->output) : "";
  if (v->common.json) return FORMAT_JSON;
  if (v->csv) return FORMAT_CSV;
  return strcmp(suffix, ".json") == 0 ? FORMAT_JSON : strcmp(suffix, ".csv") == 0 ? FORMAT_CSV : FORMAT_TABLE;
}

int bench_run(const command *of, const bench *b, const void *values) {
  bench_job j = {.command = of, .bench = b, .given = values, .format = format_of(values)};
  output_file file = {0};
  int code = EXIT_OK;
  if (j.given->common.json && j.given->csv) return usage_error("--csv: contradicts --json (one of them is enough)");
  if (j.given->output && (code = output_open(j.given->output, &file)) != EXIT_OK) return code;
  out_into(&file);
  int64_t points = points_of(&j);
  for (int64_t i = 0; i < points && code == EXIT_OK; i++) {
    progress(of->name, i, points);
    code = run_case(&j, i);
  }
  out_into(NULL);
  return output_close(&file, code);
}
