/* pattern.h: the kinds of heed_pattern. A kind says of one query which keys it sees, as a few runs; everything else, bits of a tile, tiles that are alive, unions, costs, follows
 * from these (visible.c).
 *
 * A new kind is one file pattern_<name>.c that defines one hd_pattern_kind, and one line in HD_PATTERN_LIST in the order of heed_pattern_kind. Kernels never see patterns: they get
 * a word of bits a key. */
#ifndef HD_PATTERN_H
#define HD_PATTERN_H

#include "problem.h"

/* Keys begin + i · step + [0, width) for i = 0, 1, …, as far as they lie below end; 1 ≤ width ≤ step. Without a step: all of [begin, end). May reach beyond the keys there are. */
typedef struct hd_run {
  int64_t begin, end, step, width;
  hd_order_kind order; /* that of `order` for the query's head, if it would bring these keys together */
} hd_run;

/* A query as a pattern sees it: its place among the keys of its document, whose first is key 0 here. */
typedef struct hd_row {
  int64_t batch, head;
  int64_t position; /* may lie outside the keys */
  int64_t keys;
  bool causal;   /* keys beyond the position are hidden anyway */
  int64_t query; /* the row of the call, for kinds that are `absolute` */
  int64_t queries;
} hd_row;

/* What stands between colons in the text form: a number, a list of several where there is a place for one, or the field's own name. Places are those in heed_pattern. */
typedef struct hd_pattern_field {
  const char *name;
  size_t number, list, count;
  size_t flag; /* 0: not a name */
} hd_pattern_field;

enum { HD_PATTERN_FIELDS = 5, HD_RUNS_AT_ONCE = 66 };
typedef struct hd_pattern_kind {
  const char *name; /* in the text form */
  bool absolute;    /* rows and keys are those of the call, whatever its documents and positions */
  /* E_ARGUMENT or E_SHAPE where the pattern makes no sense, or none in this problem. NULL: nothing to check. */
  heed_status (*check)(const hd_problem *problem, const heed_pattern *pattern);
  /* How many runs a row has, and run number i. */
  int64_t (*runs)(const heed_pattern *pattern, const hd_row *row);
  hd_run (*run)(const heed_pattern *pattern, const hd_row *row, int64_t i);
  /* All runs of a row, at most HD_RUNS_AT_ONCE, where they cost no more than one alone. NULL: they do. */
  void (*all)(const heed_pattern *pattern, const hd_row *row, hd_run *out);
  /* How many queries from this one on have the same runs, at least 1, as far as it is known at once. NULL: 1. */
  int64_t (*alike)(const heed_pattern *pattern, const hd_row *row);
  /* Where runs ascend: a run before which none reaches the key. NULL: they do not. */
  int64_t (*first)(const heed_pattern *pattern, const hd_row *row, int64_t key);
  /* An order for what the pattern scatters, in which a row has at most two runs. HD_IN_PLACE: none. *all: no run of a query is without it. The runs that have it and those that have not have no
   * key in common. NULL: none. */
  hd_order_kind (*order)(const heed_pattern *pattern, int64_t head, int64_t *step, int64_t *width, bool *all);
  /* E_ARGUMENT where the pattern cannot be meant for so many tokens, though a call with fewer may do with it. NULL: it always can. */
  heed_status (*fits)(heed_context *context, const heed_pattern *pattern, int64_t tokens);
  /* The text form NAME:field:field...; the first `needed` must be given, complete fills in what was not. needed −1: it has none. */
  hd_pattern_field field[HD_PATTERN_FIELDS];
  int needed;
  void (*complete)(heed_pattern *pattern, int given);
} hd_pattern_kind;

/* One line expands to the declaration of hd_pattern_<name> and to an entry of the table. Unions and intersections are not kinds of runs: they stand behind them. */
#define HD_PATTERN_LIST(X)                                                                                                                 \
  X(window)                                                                                                                                \
  X(dilated)                                                                                                                               \
  X(global)                                                                                                                                \
  X(prefix)                                                                                                                                \
  X(ranges)                                                                                                                                \
  X(blocks)                                                                                                                                \
  X(strided)                                                                                                                               \
  X(fixed)                                                                                                                                 \
  X(logsparse)                                                                                                                             \
  X(tree)                                                                                                                                  \
  X(bigbird)

#define HD_PATTERN_DECLARE(name) extern const hd_pattern_kind hd_pattern_##name;
HD_PATTERN_LIST(HD_PATTERN_DECLARE)
#undef HD_PATTERN_DECLARE

/* Levels of unions and intersections. */
enum { HD_PATTERN_DEPTH = 8 };

/* The kind of a part that is no union or intersection; NULL for those. */
const hd_pattern_kind *hd_pattern_kind_of(const heed_pattern *pattern);

/* The parts of a union, or the pattern itself as the only one. */
const heed_pattern *const *hd_pattern_parts(const heed_pattern *const *pattern, int64_t *count);

/* The kind of a name, or NULL; and its number. */
const hd_pattern_kind *hd_pattern_named(const char *name, size_t length);
heed_pattern_kind hd_pattern_number(const hd_pattern_kind *kind);

/* heed_pattern_parse with everything that the pattern points to in an arena. */
heed_status hd_pattern_read(heed_context *context, hd_arena *arena, const char *text, heed_pattern *out);

/* Everything that can be wrong with a pattern in a call. */
heed_status hd_pattern_check(const hd_problem *problem, const heed_pattern *pattern);
/* For `check`: lists of so many rows for all heads or for each. */
heed_status hd_pattern_check_lists(const hd_problem *problem, const char *name, const heed_pattern *pattern, int64_t rows);
/* Whether it depends on where queries stand among the keys. */
bool hd_pattern_positional(const heed_pattern *pattern);

/* Division that rounds towards −∞, and what it leaves over; positions may be negative. b > 0. */
static inline int64_t hd_floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static inline int64_t hd_floor_mod(int64_t a, int64_t b) { return a - hd_floor_div(a, b) * b; }

#endif
