/* tokenizer.h: what a tokenizer is made of. A loader (GGUF, tokenizer.json) says what its file holds in an hd_tokenizer_spec; hd_tokenizer_new checks it and builds the
 * tokenizer; everything after that (encode, decode, find) is the same for all files.
 *
 * A token's text is kept as it stands in plain text: the alphabet of byte-level files and the "▁" of SentencePiece are undone when the file is read. */
#ifndef HD_TOKENIZER_H
#define HD_TOKENIZER_H

#include "../base/base.h"
#include "../../include/heed/text.h"
#include "pretokenize.h"
#include "vocabulary.h"

/* When a SentencePiece text gets a space in front. Text is cut at special tokens first; a section is what lies between. */
typedef enum hd_prefix {
  HD_PREFIX_NEVER,
  HD_PREFIX_FIRST,        /* the section at the very beginning, unless it has a space already (Metaspace "first") */
  HD_PREFIX_UNLESS_SPACE, /* every section that has none already (Metaspace "always"; ByteLevel add_prefix_space) */
  HD_PREFIX_EVERY,        /* every section (SentencePiece's dummy prefix) */
} hd_prefix;

typedef enum hd_normal_form { HD_AS_IS, HD_NFC, HD_NFD, HD_NFKC, HD_NFKD } hd_normal_form;

enum { HD_MAX_AROUND = 4 }; /* special tokens before or after a text; models in use have at most two */

/* What the symbols are that merge, and how a file spells them. */
typedef enum hd_token_spelling {
  HD_SPELLS_MARKS, /* SentencePiece's kind: characters, a space as "▁" */
  HD_SPELLS_BYTES, /* GPT-2's kind: bytes, each as one visible character */
  HD_SPELLS_PLAIN, /* characters, each as itself */
  HD_SPELLS_WORDS, /* BERT's kind: words, and "##" before what goes on with one; nothing merges (wordpiece.h) */
} hd_token_spelling;

/* What BERT's normaliser does. */
typedef struct hd_bert_settings {
  bool cleans, cuts_chinese, strips_accents, lowers;
} hd_bert_settings;

/* How text becomes tokens, apart from the vocabulary. */
typedef struct hd_tokenizer_settings {
  hd_token_spelling spelling;
  bool scored;        /* the best score merges first (SentencePiece's own files); otherwise the list of merges decides */
  bool byte_fallback; /* a character without a token becomes its bytes' <0xNN> */
  bool fuse_unknown;  /* neighbouring unknown characters become one unknown token */
  bool whole_words;   /* a piece that is a token is taken as it is, merges or not */
  bool cut_at_spaces; /* SentencePiece: no merge reaches across the beginning of a word */
  bool strips_space;  /* decoding drops the first space of a text */
  hd_prefix prefix;
  hd_normal_form form;
  hd_bert_settings bert;     /* words only */
  int32_t bos, eos, unknown; /* −1: none */
  int32_t stand_in; /* for a character that has no token; −1: it is left out, as the tokenizers library does where a model names none */
  int32_t before[HD_MAX_AROUND], after[HD_MAX_AROUND];
  int before_count, after_count;
} hd_tokenizer_settings;

typedef struct hd_tokenizer_spec hd_tokenizer_spec;
struct hd_tokenizer_spec {
  const char *file;         /* for messages */
  const char *tokens_place; /* "tokenizer.ggml.tokens", "model.vocab" */
  const char *merges_place;
  hd_tokenizer_settings settings;
  const hd_pre_tokenizer *pre_tokenizer; /* byte-level only */

  int64_t token_count, merge_count;
  const void *source; /* the loader's own */
  /* Token `id` in the file's spelling; text is borrowed until the tokenizer is built. */
  void (*token)(const hd_tokenizer_spec *spec, int64_t id, hd_token *out);
  /* The two parts of merge i in the file's spelling. */
  heed_status (*merge)(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text *left, heed_text *right);
};

struct heed_tokenizer {
  hd_arena arena; /* holds everything, this struct too */
  hd_tokenizer_settings settings;
  hd_vocabulary vocabulary;
  hd_pairs pairs;
  hd_splitter splitter;
};

/* The two parts of a merge written as "left right": exactly one space, with something on both sides. */
heed_status hd_merge_parts(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text line, heed_text *left,
                           heed_text *right);

/* HEED_E_FORMAT, HEED_E_UNSUPPORTED, HEED_E_MEMORY; *out is NULL on error. */
heed_status hd_tokenizer_new(heed_context *context, const hd_tokenizer_spec *spec, heed_tokenizer **out);

/* The special token of a role, by the names in use ("[MASK]", "<mask>"); −1: none. */
typedef enum hd_role { HD_ROLE_MASK, HD_ROLE_PAD, HD_ROLE_CLASS, HD_ROLE_SEPARATOR } hd_role;
int32_t hd_tokenizer_special(const heed_tokenizer *tokenizer, hd_role role);

/* The tokenizer inside an open GGUF file. */
struct hd_tensors;
heed_status hd_tokenizer_load_gguf(heed_context *context, const struct hd_tensors *tensors, heed_tokenizer **out);
/* A vocab.txt of BERT's kind, and the tokenizer_config.json beside it if there is one. */
heed_status hd_tokenizer_load_words(heed_context *context, const char *path, heed_tokenizer **out);
/* A vocabulary of OpenNMT, a token a line; the id behind the last stands for what has none, unless a line is <unk>. */
typedef struct hd_open_nmt_vocabulary {
  int64_t count;                      /* with the unknown token */
  int32_t blank, begin, end, unknown; /* −1: not there */
} hd_open_nmt_vocabulary;
/* *out is NULL where its tokens are not characters: then it does not say how texts are cut. Nothing stands around a text. HEED_E_FILE, HEED_E_FORMAT, HEED_E_MEMORY. */
heed_status hd_tokenizer_load_open_nmt(heed_context *context, const char *path, hd_open_nmt_vocabulary *vocabulary, heed_tokenizer **out);
/* A tokenizer.json, and the tokenizer_config.json beside it if there is one. */
heed_status hd_tokenizer_load_json(heed_context *context, const char *path, heed_tokenizer **out);

#endif
