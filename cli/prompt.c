/* prompt.c: turns an argument, standard input or a list of numbers into token ids. */
#include "input.h"
#include "prompt.h"

#include <stdlib.h>
#include <string.h>

int read_text(const char *argument, heed_text *out) {
  if (strcmp(argument, "-") == 0) {
    char *data = NULL;
    size_t length = 0;
    int code = read_stream(stdin, "standard input", &data, &length);
    *out = (heed_text){data, length};
    return code;
  }
  size_t length = strlen(argument);
  char *data = allocate("a text", (int64_t)length + 1, 1);
  memcpy(data, argument, length);
  *out = (heed_text){data, length};
  return EXIT_OK;
}

int prompt_read(heed_context *context, const char *model, const heed_tokenizer *tokenizer, int64_t vocabulary, const prompt_values *v,
                prompt *out) {
  *out = (prompt){0};
  if (v->ids && v->text) return usage_error("--ids: given together with a text (one of them is enough)");
  if (v->ids) return parse_ids("--ids", v->ids, vocabulary, &out->ids, &out->count);
  if (!v->text) return EXIT_OK;
  if (!tokenizer) return usage_error("%s: has no tokenizer (give token ids: --ids 0,1,2)", model);
  heed_text text = {0};
  heed_encode_options options = {.size = sizeof options, .add_special = !v->plain, .parse_special = v->special};
  int code = read_text(v->text, &text);
  if (code == EXIT_OK) code = check(context, heed_encode(context, tokenizer, text, &options, &out->ids, &out->count));
  if (code == EXIT_OK) out->encoded_by = context;
  out->no_text = text.length == 0;
  free((char *)text.data);
  return code;
}

void prompt_free(prompt *p) {
  if (p->encoded_by) heed_ids_free(p->encoded_by, p->ids, p->count);
  else free(p->ids);
  *p = (prompt){0};
}

heed_text token_text(const heed_tokenizer *tokenizer, int32_t id, char buffer[ID_TEXT_MAX]) {
  if (tokenizer) return heed_token_text(tokenizer, id);
  return (heed_text){buffer, (size_t)snprintf(buffer, ID_TEXT_MAX, "%d", id)};
}
