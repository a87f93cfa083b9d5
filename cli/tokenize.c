/* tokenize.c: `heed tokenize`: text to token ids and back. */
#include "json.h"
#include "prompt.h"

#include <string.h>

typedef struct values {
  common_values common;
  prompt_values prompt;
  const char *model, *decode;
  bool only_ids;
} values;

static void print_json(const heed_tokenizer *tokenizer, const prompt *p) {
  json j = {0};
  json_open(&j, NULL, '{');
  json_open(&j, "ids", '[');
  for (int64_t i = 0; i < p->count; i++) json_whole(&j, NULL, p->ids[i]);
  json_close(&j);
  json_open(&j, "tokens", '[');
  for (int64_t i = 0; i < p->count; i++) json_bytes(&j, NULL, heed_token_text(tokenizer, p->ids[i]));
  json_close(&j);
  json_close(&j);
}

static void print_ids(const prompt *p) {
  for (int64_t i = 0; i < p->count; i++) out("%s%d", i ? "," : "", p->ids[i]);
  out("\n");
}

static void print_table(const heed_tokenizer *tokenizer, const prompt *p) {
  char text[VISIBLE_MAX];
  for (int64_t i = 0; i < p->count; i++) {
    visible_token(heed_token_text(tokenizer, p->ids[i]), text, sizeof text);
    out("%6lld %8d  %s\n", (long long)i, p->ids[i], text);
  }
}

static int print_decoded(heed_context *context, const heed_tokenizer *tokenizer, const prompt *p, bool as_json) {
  heed_decoder *decoder = NULL;
  heed_decode_options options = {.size = sizeof options, .keep_special = true};
  heed_text piece;
  json j = {0};
  int code;
  TRY(check(context, heed_decoder_new(context, tokenizer, &options, &decoder)));
  if (as_json) {
    json_open(&j, NULL, '{');
    json_open(&j, "pieces", '[');
  }
  for (int64_t i = 0; i <= p->count; i++) {
    bool last = i == p->count;
    TRY(check(context, last ? heed_decoder_finish(decoder, &piece) : heed_decoder_push(decoder, p->ids[i], &piece)));
    if (!as_json) out_bytes(piece.data, piece.length);
    else if (!last || piece.length) json_bytes(&j, NULL, piece);
  }
  if (as_json) {
    json_close(&j);
    json_close(&j);
  } else {
    out("\n");
  }
done:
  heed_decoder_free(decoder);
  return code;
}

static int run(const void *pointer) {
  const values *v = pointer;
  heed_context *context = NULL;
  heed_tokenizer *tokenizer = NULL;
  heed_tokenizer_info info = {.size = sizeof info};
  prompt p = {0};
  int code;
  if (!v->prompt.text && !v->decode)
    return usage_error("tokenize: TEXT is missing: what to tokenize (or --decode; see `heed tokenize --help`)");
  if (v->prompt.text && v->decode) return usage_error("--decode: given together with a text (one of them is enough)");
  TRY(context_open(&v->common, &context));
  TRY(check(context, heed_tokenizer_load(context, v->model, &tokenizer)));
  TRY(check(context, heed_tokenizer_describe(tokenizer, &info)));
  if (v->decode) {
    TRY(parse_ids("--decode", v->decode, info.vocabulary, &p.ids, &p.count));
    TRY(print_decoded(context, tokenizer, &p, v->common.json));
    goto done;
  }
  TRY(prompt_read(context, v->model, tokenizer, info.vocabulary, &v->prompt, &p));
  if (v->common.json) print_json(tokenizer, &p);
  else if (v->only_ids) print_ids(&p);
  else print_table(tokenizer, &p);
done:
  prompt_free(&p);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a GGUF file, a tokenizer.json, or a directory that holds one", .required = true),
    OPTION("TEXT", 0, TEXT, NULL, prompt.text, "what to tokenize; - is standard input"),
    OPTION("ids", 0, FLAG, NULL, only_ids, "print only the ids, in the form that --ids takes elsewhere"),
    OPTION("decode", 0, TEXT, "LIST", decode, "the other way: print the text of these ids"),
    OPTION("special", 0, FLAG, NULL, prompt.special, "text such as <|im_start|> is that special token, not its letters"),
    OPTION("plain", 0, FLAG, NULL, prompt.plain, "leave out the begin and end tokens that the tokenizer adds"),
    {0},
};

const command command_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids and back",
    .about =
        "Prints the tokens that a model reads for a text: position, id and bytes, with ␠ for a space at either end and ⏎ for a new line.",
    .examples = "  heed tokenize model.gguf \"The cat sat.\"\n"
                "  heed tokenize model.gguf --decode 504,2644,3307\n",
    .options = options,
    .takes = TAKES_JSON,
    .values_size = sizeof(values),
    .run = run,
};
