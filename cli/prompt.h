/* prompt.h: the token ids that a model is to read, from an argument, standard input or a list of numbers. */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include "output.h"

#include "heed/text.h"

/* The options that say what to read; a member of the command's values. */
typedef struct prompt_values {
  const char *text; /* "-": standard input */
  const char *ids;
  bool special, plain;
} prompt_values;

/* Three lines of a table of options; place is the offset of the prompt_values. */
// clang-format off
#define PROMPT_OPTIONS(place) \
  {.name = "ids", .kind = OPTION_TEXT, .value = "LIST", .at = (place) + offsetof(prompt_values, ids), \
   .help = "token ids instead of text, such as 5,17,3"}, \
  {.name = "special", .kind = OPTION_FLAG, .at = (place) + offsetof(prompt_values, special), \
   .help = "text such as <|im_start|> is that special token, not its letters"}, \
  {.name = "plain", .kind = OPTION_FLAG, .at = (place) + offsetof(prompt_values, plain), \
   .help = "leave out the begin and end tokens that the tokenizer adds"}
// clang-format on

typedef struct prompt {
  int32_t *ids;
  int64_t count;
  heed_context *encoded_by; /* the library owns ids; NULL: the command does */
} prompt;

/* Encodes the text or reads the ids. tokenizer may be NULL with ids. A prompt without tokens has count 0. `model` is its file, for messages. */
int prompt_read(heed_context *context, const char *model, const heed_tokenizer *tokenizer, int64_t vocabulary, const prompt_values *v,
                prompt *out);
void prompt_free(prompt *p);

/* Text from an argument; "-" is all of standard input. The result is for free(). */
int read_text(const char *argument, heed_text *out);

/* A token as text: its bytes, or its number where there is no tokenizer (written to buffer). */
enum { ID_TEXT_MAX = 16 };
heed_text token_text(const heed_tokenizer *tokenizer, int32_t id, char buffer[ID_TEXT_MAX]);

#endif
