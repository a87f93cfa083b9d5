/* pairs.c: `heed pairs`: what a task of pairs consists of, as a file of pairs. */
#include "json.h"
#include "output.h"
#include "pair_task.h"

#include <stdlib.h>

typedef struct values {
  common_values common;
  const char *task;
  pair_task_values how;
  int64_t count;
  bool held_out, links;
} values;

static void print_line(const heed_pair *pair, bool links) {
  out("%s\t%s", pair->source, pair->target);
  for (int64_t i = 0; i < pair->link_count && links; i++)
    out("%c%d%c%d", i == 0 ? '\t' : ' ', pair->links[i].source, pair->links[i].possible ? 'p' : '-', pair->links[i].target);
  if (links && pair->link_count == 0) out("\t");
  out("\n");
}

static void print_json(json *j, const heed_pair *pair, bool links) {
  json_open(j, NULL, '{');
  json_text(j, "source", pair->source);
  json_text(j, "target", pair->target);
  if (links) json_open(j, "links", '[');
  for (int64_t i = 0; i < pair->link_count && links; i++) {
    json_open(j, NULL, '{');
    json_whole(j, "source", pair->links[i].source);
    json_whole(j, "target", pair->links[i].target);
    json_bool(j, "possible", pair->links[i].possible);
    json_close(j);
  }
  if (links) json_close(j);
  json_close(j);
}

static int run(const void *pointer) {
  const values *v = pointer;
  heed_context *context = NULL;
  heed_pair_task task;
  heed_pair *pair = allocate("a pair", 1, sizeof *pair);
  json j = {0};
  int code;
  TRY(context_open(&v->common, &context));
  TRY(pair_task_of(context, v->task, &v->how, &task));
  task.held_out = v->held_out;
  if (v->common.json) json_open(&j, NULL, '[');
  for (int64_t i = 0; i < v->count && !interrupted(); i++) {
    heed_pair_task_make(&task, (uint64_t)v->common.seed, i, pair);
    v->common.json ? print_json(&j, pair, v->links) : print_line(pair, v->links);
  }
  if (v->common.json) json_close(&j);
  if (interrupted()) code = EXIT_INTERRUPTED;
done:
  free(pair);
  heed_context_free(context);
  return code;
}

static const option options[] = {
    OPTION("TASK", 0, CHOICE, NULL, task, "what kind of pairs", .choices = PAIR_TASKS, .required = true),
    OPTION("count", 'n', WHOLE, "N", count, "how many (default 10)", .low = 0, .high = 1e12),
    OPTION("held-out", 0, FLAG, NULL, held_out, "those that training never shows"),
    OPTION("links", 0, FLAG, NULL, links, "a third column: which token translates which, as in Pharaoh (0-0; 0p1 is possible)"),
    PAIR_TASK_OPTIONS(how),
    {0},
};

const command command_pairs = {
    .name = "pairs",
    .summary = "print pairs of sentences of a task",
    .about =
        "Prints pairs that are made on the spot, a line each: source, tab, target. dates: a date as English, German, French and Spanish "
        "write it, and ISO 8601; numbers: a number, and its words in English or Spanish; reverse, double: letters, and the letters "
        "from the last on, or twice; grammar: an English sentence, and its Spanish translation. The same for the same --seed. Links are "
        "between words in grammar, between characters elsewhere; numbers have none.",
    .examples = "  heed pairs dates -n 5\n  heed pairs grammar --links -n 3\n  heed pairs numbers -n 100000 > numbers.tsv\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.count = 10},
    .run = run,
};
