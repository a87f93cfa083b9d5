/* page_sample: writes what the page test needs of a synthetic record: DIRECTORY/NAME.html, .json (all numbers as recorded) and .npy (the weights,
 * little-endian f32, [layers, heads, queries, keys]).
 *
 *   page_sample DIRECTORY NAME LAYERS HEADS QUERIES KEYS WINDOW FLAGS      FLAGS: any of causal, awkward, plain, or none, joined by commas */
#include "sample.h"

#include <stdio.h>

static bool write_file(void *user, const void *data, size_t bytes) { return fwrite(data, 1, bytes, user) == bytes; }

static FILE *open_part(const char *directory, const char *name, const char *suffix) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%s", directory, name, suffix);
  FILE *file = fopen(path, "wb");
  if (!file) perror(path);
  return file;
}

/* NPY version 1.0: magic, a 16-bit length, a Python dictionary padded so that the data begin at a multiple of 64. */
static bool write_npy(FILE *file, const heed_record *r) {
  char text[246];
  int used = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld, %lld, %lld), }",
                      (long long)r->layers, (long long)r->heads, (long long)r->queries, (long long)r->keys);
  memset(text + used, ' ', sizeof text - (size_t)used);
  text[sizeof text - 1] = '\n';
  unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, sizeof text & 255, sizeof text >> 8};
  size_t count = (size_t)(r->layers * r->heads * r->queries * r->keys);
  return fwrite(head, 1, sizeof head, file) == sizeof head && fwrite(text, 1, sizeof text, file) == sizeof text &&
         fwrite(r->weights, sizeof *r->weights, count, file) == count;
}

int main(int count, char **given) {
  if (count != 9) {
    fprintf(stderr, "page_sample DIRECTORY NAME LAYERS HEADS QUERIES KEYS WINDOW FLAGS\n");
    return 2;
  }
  sample_spec spec = {.layers = atoll(given[3]),
                      .heads = atoll(given[4]),
                      .queries = atoll(given[5]),
                      .keys = atoll(given[6]),
                      .window = atoll(given[7]),
                      .causal = strstr(given[8], "causal"),
                      .awkward = strstr(given[8], "awkward"),
                      .pattern = strstr(given[8], "pattern"),
                      .plain = strstr(given[8], "plain"),
                      .spread = 1.2};
  heed_record record = sample_new(&spec);
  heed_context *context = NULL;
  FILE *html = open_part(given[1], given[2], "html"), *json = open_part(given[1], given[2], "json"),
       *npy = open_part(given[1], given[2], "npy");
  if (!html || !json || !npy || heed_context_new(NULL, &context) != HEED_OK) return 1;
  int64_t layer = 0, head = 0;
  heed_status status = heed_record_pick(&record, &layer, &head);
  if (status == HEED_OK) status = heed_record_html(context, &record, layer, head, &(heed_sink){html, write_file});
  if (status == HEED_OK) status = heed_record_json(context, &record, &(heed_sink){json, write_file});
  bool written = write_npy(npy, &record);
  written = !fclose(html) & !fclose(json) & !fclose(npy) && written;
  if (status != HEED_OK) fprintf(stderr, "page_sample: %s\n", heed_error(context));
  heed_context_free(context);
  sample_free(&record);
  return status == HEED_OK && written ? 0 : 1;
}
