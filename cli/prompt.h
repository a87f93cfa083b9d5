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

/* Three lines of a command's table, for values with a member `prompt`. */
#define PROMPT_OPTIONS                                                                                                                     \
  OPTION("ids", 0, TEXT, "LIST", prompt.ids, "token ids instead of text, such as 5,17,3"),                                                 \
      OPTION("special", 0, FLAG, NULL, prompt.special, "text such as <|im_start|> is that special token, not its letters"),                \
      OPTION("plain", 0, FLAG, NULL, prompt.plain, "leave out the begin and end tokens that the tokenizer adds")

typedef struct prompt {
  int32_t *ids;
  int64_t count;
  bool no_text;             /* the text had no bytes, whatever tokens the tokenizer put around it */
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
