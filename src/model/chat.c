/* chat.c: one user message in a model's chat form, without a template engine.
 *
 * Templates are programs, but nearly all chat models speak one of a few forms. A form is recognised by the marker tokens that its template must contain, and is itself a short
 * list of pieces. An ordinary message is encoded in one call with its markers, exactly as in training; one that itself contains a special token's name is encoded in parts, its markers
 * as plain text, so that it cannot smuggle one in. */
#include "model.h"

#include "../io/json.h"
#include "../text/tokenizer.h"

typedef enum piece_kind { END, SPECIAL, TEXT, SYSTEM, USER } piece_kind;
typedef struct piece {
  piece_kind kind;
  const char *text;
} piece;

enum { MAX_PIECES = 20 };

struct hd_chat_form {
  const char *name;
  const char *markers[2];  /* all of them in the template; NULL: no more */
  const char *not_with;    /* a marker that other forms have */
  bool always_begins;      /* with the begin token, whether or not the template names it */
  const char *turn_end;    /* ends what the model says */
  const char *system_open; /* what the template writes before a system prompt of its own; NULL: heed looks for none */
  piece system[MAX_PIECES], message[MAX_PIECES];
};

static const hd_chat_form forms[] = {
    {.name = "ChatML",
     .markers = {"<|im_start|>"},
     .turn_end = "<|im_end|>",
     .system_open = "<|im_start|>system",
     .system = {{SPECIAL, "<|im_start|>"}, {TEXT, "system\n"}, {SYSTEM, NULL}, {SPECIAL, "<|im_end|>"}, {TEXT, "\n"}},
     .message = {{SPECIAL, "<|im_start|>"},
                 {TEXT, "user\n"},
                 {USER, NULL},
                 {SPECIAL, "<|im_end|>"},
                 {TEXT, "\n"},
                 {SPECIAL, "<|im_start|>"},
                 {TEXT, "assistant\n"}}},
    {.name = "Llama 3",
     .markers = {"<|start_header_id|>", "<|eot_id|>"},
     .always_begins = true,
     .turn_end = "<|eot_id|>",
     .message = {{SPECIAL, "<|start_header_id|>"},
                 {TEXT, "user"},
                 {SPECIAL, "<|end_header_id|>"},
                 {TEXT, "\n\n"},
                 {USER, NULL},
                 {SPECIAL, "<|eot_id|>"},
                 {SPECIAL, "<|start_header_id|>"},
                 {TEXT, "assistant"},
                 {SPECIAL, "<|end_header_id|>"},
                 {TEXT, "\n\n"}}},
    {.name = "Gemma",
     .markers = {"<start_of_turn>", "<end_of_turn>"},
     .always_begins = true,
     .turn_end = "<end_of_turn>",
     .message = {{SPECIAL, "<start_of_turn>"},
                 {TEXT, "user\n"},
                 {USER, NULL},
                 {SPECIAL, "<end_of_turn>"},
                 {TEXT, "\n"},
                 {SPECIAL, "<start_of_turn>"},
                 {TEXT, "model\n"}}},
    {.name = "Zephyr",
     .markers = {"<|user|>", "<|assistant|>"},
     .not_with = "<|end|>",
     .turn_end = "</s>",
     .message =
         {{SPECIAL, "<|user|>"}, {TEXT, "\n"}, {USER, NULL}, {SPECIAL, "</s>"}, {TEXT, "\n"}, {SPECIAL, "<|assistant|>"}, {TEXT, "\n"}}},
};

const char *hd_chat_turn_end(const hd_chat_form *form) { return form->turn_end; }

/* ---- recognising ----------------------------------------------------------------------------------------------------------- */

/* Where `word` stands in [at, end), or NULL. */
static const char *find(const char *at, const char *end, const char *word) {
  size_t length = strlen(word);
  for (; (size_t)(end - at) >= length; at++) {
    if (memcmp(at, word, length) == 0) return at;
    if (at == end) break;
  }
  return NULL;
}

static bool has(heed_text text, const char *word) { return find(text.data, text.data + text.length, word) != NULL; }

static const hd_chat_form *recognise(heed_text template) {
  for (int64_t i = 0; i < HD_COUNT(forms); i++) {
    const hd_chat_form *form = &forms[i];
    bool fits = !form->not_with || !has(template, form->not_with);
    for (int64_t m = 0; m < HD_COUNT(form->markers) && form->markers[m]; m++) fits = fits && has(template, form->markers[m]);
    if (fits) return form;
  }
  return NULL;
}

/* A line break in a string of the template: the character itself, or backslash and n. Returns its length, or 0. */
static size_t line_break(const char *at, const char *end) {
  if (at < end && *at == '\n') return 1;
  return end - at >= 2 && at[0] == '\\' && at[1] == 'n' ? 2 : 0;
}

/* A system prompt that the template gives by itself stands in it as one literal: <|im_start|>system, a line break, the prompt, <|im_end|>, with no quote in between
 * (SmolLM2, Qwen 2.5). */
static heed_status find_system(const hd_config *config, heed_model *model, heed_text template) {
  const char *open = model->chat->system_open, *close = model->chat->turn_end, *end = template.data + template.length;
  if (!open) return HEED_OK;
  for (const char *at = template.data; (at = find(at, end, open));) {
    at += strlen(open);
    size_t skip = line_break(at, end);
    const char *stop = find(at, end, close);
    if (!skip || !stop) continue;
    at += skip;
    if (at >= stop || find(at, stop, "'") || find(at, stop, "\"")) continue;
    char *copy;
    HD_TRY(hd_arena_text(&model->arena, config->context, at, (size_t)(stop - at), &copy));
    model->chat_system = copy;
    return HEED_OK;
  }
  return HEED_OK;
}

static heed_status use_template(const hd_config *config, heed_model *model, heed_text template) {
  model->has_template = true;
  model->chat = recognise(template);
  if (!model->chat) return HEED_OK;
  model->chat_begins = model->chat->always_begins || has(template, "bos_token");
  return find_system(config, model, template);
}

/* chat_template is a text, or a list of named ones, of which "default" counts. */
static heed_status template_of_json(const hd_config *config, heed_model *model, const json_t *object) {
  const json_t *value = json_object_get(object, "chat_template");
  for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
    const json_t *entry = json_array_get(value, i);
    const char *name = json_string_value(json_object_get(entry, "name"));
    if (name && strcmp(name, "default") == 0) value = json_object_get(entry, "template");
  }
  if (!json_is_string(value)) return HEED_OK;
  return use_template(config, model, (heed_text){json_string_value(value), json_string_length(value)});
}

static heed_status template_of_directory(const hd_config *config, heed_model *model) {
  heed_context *context = config->context;
  const char *path;
  HD_TRY(hd_model_beside(config, model, "chat_template.jinja", &path));
  if (path) {
    char *data;
    int64_t size;
    HD_TRY(hd_file_load(context, path, HD_JSON_CONFIG_BYTES, &data, &size));
    heed_status status = use_template(config, model, (heed_text){data, (size_t)size});
    hd_release(context, data, size + 1, 1);
    return status;
  }
  HD_TRY(hd_model_beside(config, model, "tokenizer_config.json", &path));
  if (!path) return HEED_OK;
  json_t *object;
  HD_TRY(hd_json_load(context, path, (hd_json_rules){.limit = HD_JSON_CONFIG_BYTES, .big_integers = true}, &object));
  heed_status status = template_of_json(config, model, object);
  json_decref(object);
  return status;
}

heed_status hd_chat_load(const hd_config *config, heed_model *model) {
  if (!model->tokenizer) return HEED_OK;
  if (!hd_tensors_is_gguf(config->tensors)) return template_of_directory(config, model);
  heed_text template;
  if (!hd_meta_find(config->tensors, "tokenizer.chat_template")) return HEED_OK;
  HD_TRY(hd_meta_text(config->context, config->tensors, "tokenizer.chat_template", &template));
  return use_template(config, model, template);
}

/* ---- encoding -------------------------------------------------------------------------------------------------------------- */

typedef struct encoding {
  heed_context *context;
  const heed_model *model;
  heed_text user;
  bool whole; /* markers are part of the text; otherwise they are put by id, and what lies between is encoded without looking for them */
  char *text; /* not yet encoded */
  int64_t length, text_capacity;
  int32_t *ids;
  int64_t count, capacity;
} encoding;

static heed_status add_ids(encoding *e, const int32_t *ids, int64_t n) {
  HD_TRY(hd_grow(e->context, "the ids of a message", &e->ids, &e->capacity, e->count + n, sizeof *ids));
  memcpy(e->ids + e->count, ids, (size_t)n * sizeof *ids);
  e->count += n;
  return HEED_OK;
}

static heed_status add_text(encoding *e, const char *data, size_t length) {
  HD_REQUIRE(length < INT32_MAX, e->context, HEED_E_ARGUMENT, "a message of %zu bytes is too long", length);
  HD_TRY(hd_grow(e->context, "the text of a message", &e->text, &e->text_capacity, e->length + (int64_t)length, 1));
  if (length) memcpy(e->text + e->length, data, length);
  e->length += (int64_t)length;
  return HEED_OK;
}

static heed_status flush(encoding *e) {
  if (!e->length) return HEED_OK;
  int32_t *ids;
  int64_t count;
  heed_encode_options options = {.size = sizeof options, .parse_special = e->whole};
  HD_TRY(heed_encode(e->context, e->model->tokenizer, (heed_text){e->text, (size_t)e->length}, &options, &ids, &count));
  heed_status status = add_ids(e, ids, count);
  heed_ids_free(e->context, ids, count);
  e->length = 0;
  return status;
}

/* A marker that this tokenizer does not have as one token is plain text (Zephyr's <|user|>). */
static heed_status add_special(encoding *e, heed_text name) {
  int32_t id = heed_token_find(e->model->tokenizer, name);
  if (e->whole || id < 0 || !heed_token_is_special(e->model->tokenizer, id)) return add_text(e, name.data, name.length);
  HD_TRY(flush(e));
  return add_ids(e, &id, 1);
}

static heed_status add_pieces(encoding *e, const piece *pieces) {
  for (int i = 0; i < MAX_PIECES && pieces[i].kind != END; i++) {
    const piece *p = &pieces[i];
    switch (p->kind) {
    case SPECIAL: HD_TRY(add_special(e, (heed_text){p->text, strlen(p->text)})); break;
    case TEXT: HD_TRY(add_text(e, p->text, strlen(p->text))); break;
    case SYSTEM: HD_TRY(add_text(e, e->model->chat_system, strlen(e->model->chat_system))); break;
    default: HD_TRY(add_text(e, e->user.data, e->user.length)); break;
    }
  }
  return HEED_OK;
}

/* Whether the user's text names a special token. */
static heed_status names_special(const encoding *e, bool *out) {
  heed_encode_options options = {.size = sizeof options, .parse_special = true};
  int32_t *ids;
  int64_t count;
  *out = false;
  HD_TRY(heed_encode(e->context, e->model->tokenizer, e->user, &options, &ids, &count));
  for (int64_t i = 0; i < count; i++) *out |= heed_token_is_special(e->model->tokenizer, ids[i]);
  heed_ids_free(e->context, ids, count);
  return HEED_OK;
}

static heed_status encode(encoding *e) {
  const heed_model *model = e->model;
  heed_tokenizer_info info = {.size = sizeof info};
  HD_TRY(heed_tokenizer_describe(model->tokenizer, &info));
  bool special;
  HD_TRY(names_special(e, &special));
  e->whole = !special;
  if (model->chat_begins && info.bos >= 0) HD_TRY(add_special(e, heed_token_text(model->tokenizer, info.bos)));
  if (model->chat_system) HD_TRY(add_pieces(e, model->chat->system));
  HD_TRY(add_pieces(e, model->chat->message));
  return flush(e);
}

heed_status heed_chat_encode(heed_context *context, const heed_model *model, heed_text text, const char **form, int32_t **ids,
                             int64_t *count) {
  if (ids) *ids = NULL;
  if (count) *count = 0;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(model && ids && count && (text.data || !text.length), context, HEED_E_ARGUMENT,
             "heed_chat_encode needs a model, a text and a place for the ids");
  HD_REQUIRE(model->chat, context, HEED_E_UNSUPPORTED, "%s: %s (allowed ChatML, Llama 3, Gemma, Zephyr)", model->path,
             model->has_template ? "a chat template of a form heed does not know" : "no chat template");
  encoding e = {.context = context, .model = model, .user = text};
  int32_t *exact = NULL;
  heed_status status = encode(&e);
  if (status == HEED_OK) status = hd_allocate(context, "the ids of a message", e.count, sizeof *exact, &exact);
  if (status == HEED_OK) {
    memcpy(exact, e.ids, (size_t)e.count * sizeof *exact);
    *ids = exact, *count = e.count;
    if (form) *form = model->chat->name;
  }
  hd_release(context, e.text, e.text_capacity, 1);
  hd_release(context, e.ids, e.capacity, sizeof *e.ids);
  return status;
}
