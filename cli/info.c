/* info.c: `heed info`: what a bug report needs, and what this machine reaches. */
#include "json.h"
#include "output.h"

#include <string.h>

typedef struct values {
  common_values common;
  bool measure;
} values;

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* The processor's name where Linux tells it. */
static void processor_name(char *buffer, size_t size) {
  char line[256];
  FILE *stream = fopen("/proc/cpuinfo", "r");
  snprintf(buffer, size, "unknown");
  while (stream && fgets(line, sizeof line, stream)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    snprintf(buffer, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (stream) fclose(stream);
}

static void print_json(const heed_context *context, const char *processor, const heed_machine *machine) {
  json j = {0};
  json_open(&j, NULL, '{');
  json_text(&j, "version", heed_version());
  json_text(&j, "processor", processor);
  json_text(&j, "level", heed_level_name(heed_context_level(context)));
  json_open(&j, "levels", '[');
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    if (heed_level_available(level)) json_text(&j, NULL, heed_level_name(level));
  json_close(&j);
  json_whole(&j, "threads", heed_context_threads(context));
  json_text(&j, "compiler", COMPILER);
  if (machine) {
    json_number(&j, "peak_gflops", machine->peak_flops / 1e9);
    json_number(&j, "read_gbs", machine->read_bytes / 1e9);
  }
  json_close(&j);
}

static void print_table(const heed_context *context, const char *processor, const heed_machine *machine) {
  out("heed       %s\n", heed_version());
  out("processor  %s\n", processor);
  out("level      %s (of", heed_level_name(heed_context_level(context)));
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    if (heed_level_available(level)) out(" %s", heed_level_name(level));
  out(")\n");
  out("threads    %d\n", heed_context_threads(context));
  out("compiler   %s\n", COMPILER);
  if (machine) {
    out("peak       %.1f GFLOP/s (f32 multiply-adds, two operations each)\n", machine->peak_flops / 1e9);
    out("reading    %.1f GB/s from main memory\n", machine->read_bytes / 1e9);
  }
}

static int run(const void *pointer) {
  const values *v = pointer;
  heed_context *context = NULL;
  heed_machine machine = {.size = sizeof machine};
  char processor[128];
  int code;
  TRY(context_open(&v->common, &context));
  if (v->measure) TRY(check(context, heed_machine_measure(context, 0.5, &machine)));
  processor_name(processor, sizeof processor);
  (v->common.json ? print_json : print_table)(context, processor, v->measure ? &machine : NULL);
done:
  heed_context_free(context);
  return code;
}

static const option options[] = {
    OPTION("measure", 0, FLAG, NULL, measure, "also measure the peak of f32 arithmetic and the read bandwidth (half a second)"),
    {0},
};

const command command_info = {
    .name = "info",
    .summary = "version, processor, instruction sets, threads",
    .about = "Says which heed this is and what it runs on: what a bug report needs. All instruction set levels give the same "
             "bits.",
    .examples = "  heed info --measure\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON,
    .values_size = sizeof(values),
    .run = run,
};
