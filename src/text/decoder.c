/* decoder.c: ids to text, one at a time. Bytes pass through a window of at most three that begin a character and wait for its rest; what leaves is always UTF-8. */
#include "tokenizer.h"
#include "utf8.h"

struct heed_decoder {
  heed_context *context;
  const heed_tokenizer *tokenizer;
  heed_decode_options options;
  bool started; /* some text has been given */
  char held[4];
  size_t held_count;
  char *out;
  size_t length;
  int64_t capacity;
};

heed_status heed_decoder_new(heed_context *context, const heed_tokenizer *tokenizer, const heed_decode_options *options,
                             heed_decoder **out) {
  if (!context || !tokenizer || !out)
    return hd_fail(context, HEED_E_ARGUMENT, "heed_decoder_new: context, tokenizer and out must not be null");
  heed_decoder *decoder;
  heed_decode_options chosen = {0};
  *out = NULL;
  HD_TRY(hd_options_read(context, "heed_decode_options", options, &chosen, sizeof chosen));
  HD_TRY(hd_allocate(context, "a decoder", 1, sizeof *decoder, &decoder));
  *decoder = (heed_decoder){.context = context, .tokenizer = tokenizer, .options = chosen};
  *out = decoder;
  return HEED_OK;
}

void heed_decoder_free(heed_decoder *decoder) {
  if (!decoder) return;
  hd_release(decoder->context, decoder->out, decoder->capacity, 1);
  hd_release(decoder->context, decoder, 1, sizeof *decoder);
}

static void give(heed_decoder *decoder, const char *data, size_t length) {
  memcpy(decoder->out + decoder->length, data, length);
  decoder->length += length;
}

/* Gives what the held bytes have become; true if they still wait. */
static bool settle(heed_decoder *decoder) {
  uint32_t code;
  int size = hd_utf8_next(decoder->held, decoder->held_count, &code);
  if (size == 0) return true;
  if (size > 0) give(decoder, decoder->held, (size_t)size);
  else give(decoder, HD_REPLACEMENT, 3);
  size_t used = (size_t)(size > 0 ? size : -size);
  decoder->held_count -= used;
  memmove(decoder->held, decoder->held + used, decoder->held_count);
  return false;
}

static void take_byte(heed_decoder *decoder, char byte) {
  decoder->held[decoder->held_count++] = byte;
  while (decoder->held_count > 0 && !settle(decoder)) continue;
}

heed_status heed_decoder_push(heed_decoder *decoder, int32_t id, heed_text *out) {
  if (!decoder || !out) return HEED_E_ARGUMENT;
  const hd_vocabulary *vocabulary = &decoder->tokenizer->vocabulary;
  *out = (heed_text){"", 0};
  HD_REQUIRE(id >= 0 && id < vocabulary->count, decoder->context, HEED_E_ARGUMENT, "no such token (got %d, allowed 0 to %lld)", (int)id,
             (long long)vocabulary->count - 1);
  heed_text text = hd_vocabulary_text(vocabulary, id);
  if (text.length == 0 || (hd_token_is_special(vocabulary, id) && !decoder->options.keep_special)) return HEED_OK;
  // Each byte may turn out to be an invalid one, given as three.
  HD_TRY(hd_grow(decoder->context, "decoded text", &decoder->out, &decoder->capacity,
                 3 * ((int64_t)text.length + (int64_t)sizeof decoder->held), 1));
  bool drop_space = !decoder->started && decoder->tokenizer->settings.strips_space && !decoder->options.keep_leading_space;
  decoder->length = 0;
  decoder->started = true;
  for (size_t i = drop_space && text.data[0] == ' '; i < text.length; i++) take_byte(decoder, text.data[i]);
  *out = (heed_text){decoder->out, decoder->length};
  return HEED_OK;
}

heed_status heed_decoder_finish(heed_decoder *decoder, heed_text *out) {
  if (!decoder || !out) return HEED_E_ARGUMENT;
  // Whatever waits is the beginning of one character.
  *out = decoder->held_count > 0 ? (heed_text){HD_REPLACEMENT, 3} : (heed_text){"", 0};
  decoder->held_count = 0;
  decoder->started = false;
  return HEED_OK;
}
