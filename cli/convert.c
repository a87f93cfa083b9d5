/* convert.c: `heed convert`: a model file of any kind as a Hugging Face directory. */
#include "json.h"
#include "model.h"
#include "output.h"

typedef struct values {
  common_values common;
  const char *model, *out;
} values;

/* What the directory holds now, by loading it. */
static void describe(const values *v, const heed_model_info *info) {
  if (v->common.json) {
    json j = {0};
    json_open(&j, NULL, '{');
    json_text(&j, "directory", v->out);
    json_text(&j, "family", info->family);
    json_whole(&j, "encoder_layers", info->encoder_layers);
    json_whole(&j, "layers", info->layers);
    json_whole(&j, "width", info->width);
    json_whole(&j, "heads", info->heads);
    json_whole(&j, "encoder_vocabulary", info->encoder_vocabulary);
    json_whole(&j, "vocabulary", info->vocabulary);
    json_whole(&j, "parameters", info->parameters);
    json_close(&j);
    return;
  }
  out("%s: %s, ", v->out, info->family);
  if (info->encoder_layers > 0)
    out("%lld layers of an encoder and %lld of a decoder", (long long)info->encoder_layers, (long long)info->layers);
  else out("%lld layers", (long long)info->layers);
  out(", width %lld, %lld heads, vocabulary %lld", (long long)info->width, (long long)info->heads, (long long)info->vocabulary);
  if (info->encoder_layers > 0) out(" (source %lld)", (long long)info->encoder_vocabulary);
  out(", %lld parameters\n", (long long)info->parameters);
}

static int run(const void *pointer) {
  const values *v = pointer;
  heed_context *context = NULL;
  heed_model *model = NULL;
  heed_model_info info = {.size = sizeof info};
  int code;
  TRY(context_open(&v->common, &context));
  TRY(check(context, heed_convert(context, v->model, v->out)));
  TRY(check(context, heed_model_load(context, v->out, &model)));
  TRY(check(context, heed_model_describe(model, &info)));
  describe(v, &info);
  if (!heed_model_tokenizer(model) && !v->common.quiet)
    note("%s: no tokenizer: the files do not say how a text is cut into tokens", v->out);
done:
  heed_model_free(model);
  heed_context_free(context);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a directory or model.bin of CTranslate2, a GGUF file, or a Hugging Face directory",
           .required = true),
    OPTION("DIR", 0, TEXT, NULL, out, "the directory that is written; it is made if it is not there", .required = true),
    {0},
};

const command command_convert = {
    .name = "convert",
    .summary = "write a model as a Hugging Face directory",
    .about = "Reads a model and writes it as a directory that heed and, where the model is of a family that it knows, transformers read: "
             "config.json, model.safetensors in f32, tokenizer.json. Of CTranslate2: encoder-decoders of the kinds TransformerBase and "
             "TransformerBig in the binary format 2 with f32, i16 or i8 weights, which become models of heed's own; vocabularies of "
             "characters become tokenizers, the target's in DIR/target. Prints what it wrote.",
    .examples = "  heed convert aren-transliteration aren\n"
                "  heed convert model.gguf model\n",
    .options = options,
    .takes = TAKES_JSON,
    .values_size = sizeof(values),
    .run = run,
};
