/* bench.h: how the bench commands measure: as ratios to what the machine reaches in the same moment.
 *
 * Shared machines drift by a factor of two within seconds, so a speed alone says little. Every timed block stands between two measurements of the machine and is
 * divided by their mean; results are medians over blocks, with quartiles. A bench says what one call of one case does (bench_attention.c is the model); the frame
 * walks the cross product of its lists, times the calls and prints table, JSON or CSV. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "output.h"

/* ---- blocks of measurements ---------------------------------------------------------------------------------------------- */

typedef struct quartiles {
  double low, median, high;
} quartiles;

/* Between neighbours by straight lines. count in [1, VALUES_MAX]. */
enum { VALUES_MAX = 1024 };
quartiles quartiles_of(const double *values, int count);

/* Many blocks of one thing. */
enum { BLOCKS_MAX = 64 };
typedef struct blocks {
  heed_context *context;
  double machine_seconds; /* that one measurement of the machine takes */
  bool reads;             /* the read bandwidth is measured too */
  heed_machine before;    /* the machine as last measured */
  int count;
  double seconds[BLOCKS_MAX]; /* of one call */
  double beside[BLOCKS_MAX];  /* of one call of what it is compared with; 0: nothing is */
  double peak[BLOCKS_MAX];    /* flops a second around the block */
  double read[BLOCKS_MAX];    /* bytes a second around the block */
} blocks;

/* A scheduler hands out milliseconds; blocks and probes must see several of its turns. */
#define BLOCK_SECONDS 0.1

int blocks_begin(heed_context *context, double machine_seconds, bool reads, blocks *b);
/* Adds a block in which one call took `seconds`, and one of what it is compared with `beside` (or 0), and measures the machine after it. */
int blocks_add(blocks *b, double seconds, double beside);

quartiles blocks_seconds(const blocks *b);
quartiles blocks_peak(const blocks *b);
quartiles blocks_read(const blocks *b);
quartiles blocks_of_peak(const blocks *b, double flops); /* the share of the peak that a call of so many flops reached */
quartiles blocks_of_read(const blocks *b, double bytes);
quartiles blocks_beside(const blocks *b); /* how many times as long the other call took, block by block */

/* ---- the frame ----------------------------------------------------------------------------------------------------------- */

/* The first member, `bench`, of every bench's values. */
typedef struct bench_values {
  common_values common;
  whole_list threads, level; /* level: places in LEVEL_CHOICES */
  int64_t blocks;
  double seconds; /* of calls in one block, and of one measurement of the machine */
  bool csv;
  const char *output;
} bench_values;

/* The first lines of the table of a bench that has queries, keys and values. */
#define BENCH_HEADS_OPTIONS                                                                                                                \
  OPTION("batch", 0, WHOLES, "LIST", batch, "batch entries (default 1)", .low = 1, .high = 1e6),                                           \
      OPTION("heads", 0, WHOLES, "LIST", heads, "query heads (default 4)", .low = 1, .high = 4096),                                        \
      OPTION("kv-heads", 0, WHOLES, "LIST", kv_heads, "key/value heads (default 0: as many as query heads)", .low = 0, .high = 4096),      \
      OPTION("head-dim", 0, WHOLES, "LIST", head_dim, "width of queries and keys (default 64)", .low = 1, .high = 4096),                   \
      OPTION("value-dim", 0, WHOLES, "LIST", value_dim, "width of values (default 0: as queries)", .low = 0, .high = 4096)

/* The last lines of a bench's table of options and the first of its defaults. */
#define BENCH_OPTIONS                                                                                                                      \
  OPTION("threads", 0, WHOLES, "LIST", bench.threads, "threads (default 0: all processors)", .low = 0, .high = 4096),                      \
      OPTION("level", 0, CHOICES, "LIST", bench.level, "instruction sets (default auto)", .choices = LEVEL_CHOICES),                       \
      OPTION("blocks", 0, WHOLE, "N", bench.blocks, "timed blocks a case, of which the median counts (default 9)", .low = 1,               \
             .high = BLOCKS_MAX),                                                                                                          \
      OPTION("seconds", 0, NUMBER, "S", bench.seconds, "time for a block and for each measurement of the machine (default 0.1)",           \
             .low = 1e-3, .high = 60),                                                                                                     \
      OPTION("csv", 0, FLAG, NULL, bench.csv, "print CSV"),                                                                                \
      OPTION("output", 'o', TEXT, "FILE", bench.output, "write to this file: a .json, a .csv, or the table")
#define BENCH_DEFAULTS .bench = {.threads = {1, {0}}, .level = {1, {0}}, .blocks = 9, .seconds = BLOCK_SECONDS}

/* One point of the cross product while it is measured. */
typedef struct bench_case {
  heed_context *context;
  double flops;     /* of one call, 0: not said. Only what the result needs: pairs that are visible, no work twice */
  double bytes;     /* that one call must read from memory at least; 0: not said */
  bool reads;       /* bound by memory: compared with the read bandwidth, which is then measured too */
  double tokens;    /* that one call reads or writes; 0: no such thing */
  bool compares;    /* the bench's `beside` is timed too */
  char subject[64]; /* what is measured, where that is not the command: a model; "" otherwise */
  void *state;      /* the bench's own */
} bench_case;

typedef struct bench {
  /* values are the command's own with one item in every list, threads and level also in bench.common; an item may be replaced by what a default means (kv_heads 0 by the
   * heads). */
  int (*open)(void *values, bench_case *c);
  int (*call)(bench_case *c);
  void (*close)(bench_case *c); /* also after an open that failed */
  int (*beside)(bench_case *c); /* what it is compared with, timed in the same blocks where the case says so; or NULL */
} bench;

/* Every option of the command whose value is a list is an axis; the last varies fastest. Returns an exit code. */
int bench_run(const command *of, const bench *b, const void *values);

#endif
