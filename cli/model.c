/* model.c: loads a model and refuses what it cannot read. */
#include "model.h"

#include <stdlib.h>

int model_open(const common_values *common, const char *path, loaded *out) {
  int code = model_open_any(common, path, out);
  if (code != EXIT_OK || !model_translates(out)) return code;
  return error_of(EXIT_UNSUPPORTED,
                  "%s: an encoder–decoder turns a source into a target, and this command reads one text (see `heed translate`)",
                  out->info.name);
}

int model_open_any(const common_values *common, const char *path, loaded *out) {
  int code;
  *out = (loaded){.info = {.size = sizeof out->info}};
  TRY(context_open(common, &out->context));
  double begin = seconds_now();
  TRY(check(out->context, heed_model_load(out->context, path, &out->model)));
  out->seconds = seconds_now() - begin;
  TRY(check(out->context, heed_model_describe(out->model, &out->info)));
  out->tokenizer = heed_model_tokenizer(out->model);
done:
  return code;
}

void model_close(loaded *m) {
  heed_model_free(m->model);
  heed_context_free(m->context);
}

bool model_translates(const loaded *m) { return m->info.encoder_layers > 0; }

int model_generates(const loaded *m) {
  if (!m->info.bidirectional) return EXIT_OK;
  return error_of(EXIT_UNSUPPORTED,
                  "%s: an encoder does not generate: it sees the whole text at once and fills in masked tokens (see `heed logits`)",
                  m->info.name);
}

int64_t likeliest(const float *logits, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

int prompt_check(const loaded *m, const prompt *p, bool bounded) {
  if (p->count == 0 || p->no_text) return usage_error("the prompt is empty (give a text, or --ids)");
  if (bounded && p->count > m->info.context)
    return usage_error("the prompt is too long (got %lld tokens, allowed %lld, the context of %s)", (long long)p->count,
                       (long long)m->info.context, m->info.name);
  return EXIT_OK;
}

int prompt_begin(const loaded *m, prompt *p) {
  heed_tokenizer_info info = {.size = sizeof info, .bos = -1};
  p->no_text = false;
  if (p->count > 0) return EXIT_OK;
  if (m->tokenizer) {
    int code = check(m->context, heed_tokenizer_describe(m->tokenizer, &info));
    if (code != EXIT_OK) return code;
  }
  if (info.bos < 0) return usage_error("the prompt is empty and %s has no begin token (give a text with -p, or --ids)", m->info.name);
  prompt_free(p);
  *p = (prompt){.ids = allocate("a token", 1, sizeof *p->ids), .count = 1};
  p->ids[0] = info.bos;
  return EXIT_OK;
}
