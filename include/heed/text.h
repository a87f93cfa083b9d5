/* text.h: tokenizers, text to token ids and back; and how good translations and alignments are.
 *
 * Text is pointer + length in bytes, UTF-8, never NUL-terminated by assumption. A tokenizer is immutable and may be shared between contexts. */
#ifndef HEED_TEXT_H
#define HEED_TEXT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct heed_text {
  const char *data;
  size_t length;
} heed_text;

typedef struct heed_tokenizer heed_tokenizer;

/* Reads the tokenizer of a model: a GGUF file, a tokenizer.json, or a Hugging Face directory that holds one (or the .safetensors or config.json in it).
 * HEED_E_FILE, HEED_E_FORMAT, HEED_E_UNSUPPORTED (a kind, normaliser or pattern that heed does not know, named in heed_error), HEED_E_MEMORY. */
HEED_API heed_status heed_tokenizer_load(heed_context *context, const char *path, heed_tokenizer **out);
/* Makes a tokenizer from a text. kind:
 *   "char"   a token for each character (code point) of the text, in ascending order; other characters have none and are left out when encoding
 *   "byte"   the 256 bytes, id = byte; takes any text, also what is not UTF-8
 *   "bpe:N"  byte-level BPE with GPT-2's pre-tokenizer and a vocabulary of N ≥ 256: 256 bytes and the merges learned, those of Hugging Face's BpeTrainer given the same
 *            text in one piece (of pairs equally frequent the one with the smaller ids). Fewer than N where the text has no more to merge
 *   "word"   the words of the text as BERT's tokenizer cuts it, at white space and punctuation, with their case and accents, the most frequent first; "word:N": those N.
 *            What is none of them becomes the token "<unk>", which is special and has the id 0
 * Special tokens are those of options (NULL: none), with the ids after all others. HEED_E_ARGUMENT (kind), HEED_E_FORMAT (char, bpe, word: not UTF-8, names the byte), HEED_E_OVERFLOW,
 * HEED_E_MEMORY, HEED_E_CANCELLED. */
typedef struct heed_tokenizer_train_options {
  size_t size;
  const char *const *special; /* [special_count] names, such as "[MASK]": never found in a text unless encoding is told to */
  int64_t special_count;
  const char *begin, *end; /* those of them that stand before and after a text where encoding adds special tokens; NULL: none */
} heed_tokenizer_train_options;
HEED_API heed_status heed_tokenizer_train(heed_context *context, const char *kind, heed_text text,
                                          const heed_tokenizer_train_options *options, heed_tokenizer **out);
/* Writes tokenizer.json and tokenizer_config.json into an existing directory, as heed_tokenizer_load and Hugging Face read them. HEED_E_UNSUPPORTED (one that
 * merges by scores: GGUF's SentencePiece), HEED_E_WRITE, HEED_E_MEMORY. */
HEED_API heed_status heed_tokenizer_save(heed_context *context, const heed_tokenizer *tokenizer, const char *directory);
HEED_API void heed_tokenizer_free(heed_tokenizer *tokenizer);

typedef struct heed_tokenizer_info {
  size_t size;
  const char *kind;          /* "byte-level BPE", "SentencePiece BPE", "characters", "WordPiece"; static */
  const char *pre_tokenizer; /* "gpt2", "smollm", "llama3", "qwen2", "pattern" (the file's own), "none"; static */
  int64_t vocabulary;        /* ids are in [0, vocabulary) */
  int32_t bos, eos, unknown; /* −1 where the model has none */
  bool adds_bos, adds_eos;   /* what encode does with add_special */
  int32_t mask;              /* the special token [MASK] or <mask>; −1 where there is none */
  int32_t pad;               /* [PAD] or <pad>, likewise */
  /* What encode puts around a text with add_special, [before_count] and [after_count]; borrowed from the tokenizer. */
  const int32_t *before, *after;
  int before_count, after_count;
} heed_tokenizer_info;
/* HEED_E_ARGUMENT: null, or info's size is not set. */
HEED_API heed_status heed_tokenizer_describe(const heed_tokenizer *tokenizer, heed_tokenizer_info *info);

typedef struct heed_encode_options {
  size_t size;
  bool add_special;   /* put the model's begin (and end) token around the text, as the model was trained with */
  bool parse_special; /* text such as <|im_start|> becomes the special token instead of its letters */
} heed_encode_options;

/* *ids [*count] is allocated with the context's allocator; give it back with heed_ids_free. options NULL: no special tokens are added or parsed.
 * What a model has no token for, not even byte by byte, becomes its unknown token, or is left out where the model's own tokenizer does that (a byte-level
 * vocabulary without some control characters). Text that is not UTF-8 is HEED_E_FORMAT and names the byte, except to a tokenizer of bytes alone. HEED_E_CANCELLED (progress "encode",
 * after each MiB). Time O(n log n). */
HEED_API heed_status heed_encode(heed_context *context, const heed_tokenizer *tokenizer, heed_text text, const heed_encode_options *options,
                                 int32_t **ids, int64_t *count);
HEED_API void heed_ids_free(heed_context *context, int32_t *ids, int64_t count);

/* The bytes of one token as they stand in text (a token may be part of a UTF-8 character; special tokens give their name); borrowed for the life of the
 * tokenizer. An id out of range gives an empty text. */
HEED_API heed_text heed_token_text(const heed_tokenizer *tokenizer, int32_t id);
HEED_API bool heed_token_is_special(const heed_tokenizer *tokenizer, int32_t id);
/* The id of the token whose text is exactly this (special tokens too; a byte token by "<0x0A>"), or −1. */
HEED_API int32_t heed_token_find(const heed_tokenizer *tokenizer, heed_text name);

/* Decodes a stream of ids without ever splitting a UTF-8 character: bytes that begin a character are held back until it is whole (bytes that can
 * never become one are given as U+FFFD). The first token of a SentencePiece text loses its leading space, as in training. */
typedef struct heed_decoder heed_decoder;
typedef struct heed_decode_options {
  size_t size;
  bool keep_special;       /* give special tokens as their names; otherwise they are left out */
  bool keep_leading_space; /* the stream continues a text: keep the first token's space */
} heed_decode_options;
/* The decoder keeps the context and the tokenizer: it goes before them. options NULL: all false. HEED_E_ARGUMENT, HEED_E_MEMORY. */
HEED_API heed_status heed_decoder_new(heed_context *context, const heed_tokenizer *tokenizer, const heed_decode_options *options,
                                      heed_decoder **out);
HEED_API void heed_decoder_free(heed_decoder *decoder);
/* The text that id completes (perhaps empty), borrowed until the next call with this decoder. HEED_E_ARGUMENT (no such id), HEED_E_MEMORY. */
HEED_API heed_status heed_decoder_push(heed_decoder *decoder, int32_t id, heed_text *out);
/* What is still held back, as U+FFFD; the decoder is then as new. */
HEED_API heed_status heed_decoder_finish(heed_decoder *decoder, heed_text *out);

/* ---- how good translations are ------------------------------------------------------------------------------------------------ */

/* BLEU of a whole set of translations, one reference each (Papineni et al. 2002), to the figures of sacreBLEU (Post 2018): words as mteval-v13a cuts them, n-grams of one to four words,
 * precisions in percent; where an order has no match, one half of a match is counted, of the next such order one quarter. */
#define HEED_BLEU_ORDERS 4
typedef struct heed_bleu {
  size_t size;
  double score;                        /* 0 to 100 */
  double precisions[HEED_BLEU_ORDERS]; /* 0 to 100 */
  double brevity;                      /* the factor for being shorter than the references, 1 where they are not */
  int64_t words, reference_words;
} heed_bleu;
/* translations and references [count]. HEED_E_ARGUMENT, HEED_E_FORMAT (a text that is not UTF-8: names its number, from 1), HEED_E_MEMORY. */
HEED_API heed_status heed_bleu_score(heed_context *context, const heed_text *translations, const heed_text *references, int64_t count,
                                     heed_bleu *out);
/* What sacreBLEU calls these choices: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0", its version being the one whose figures these are. Static. */
HEED_API const char *heed_bleu_signature(void);

/* chrF, 0 to 100: the F2 of n-grams of one to six characters, white space apart (Popović 2015); with `words` chrF++, which counts one and two words too (Popović 2017). To the figures of
 * sacreBLEU; errors as above. */
HEED_API heed_status heed_chrf_score(heed_context *context, const heed_text *translations, const heed_text *references, int64_t count,
                                     bool words, double *out);
HEED_API const char *heed_chrf_signature(bool words); /* "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"; static */

/* ---- alignments ----------------------------------------------------------------------------------------------------------------- */

/* A target token and a source token that translate each other, counted from 0. */
typedef struct heed_link {
  int32_t source, target;
  bool possible; /* of a reference: right where it is found, not missed where it is not (Och & Ney 2003) */
} heed_link;

/* Reads a line in the format of Pharaoh, "0-0 1-2": source-target; "1p2" is a possible link. *links [*count] is for heed_links_free, in the line's order. HEED_E_FORMAT (names the word),
 * HEED_E_MEMORY. */
HEED_API heed_status heed_links_parse(heed_context *context, heed_text line, heed_link **links, int64_t *count);
HEED_API void heed_links_free(heed_context *context, heed_link *links, int64_t count);

/* Alignments of sentences against their references. Rates are 0 to 1: precision of what was found among all links of the reference, recall among the sure ones, and the alignment error rate
 * 1 − (|A∩S| + |A∩P|) / (|A| + |S|), A found, S sure, P all of the reference (Och & Ney 2003). NaN where nothing was counted. */
typedef struct heed_alignment_score {
  size_t size;
  int64_t found, sure, found_sure, found_right; /* |A|, |S|, |A∩S|, |A∩P| */
  double precision, recall, error_rate;
} heed_alignment_score;
/* Adds a sentence to *score, whose counts are 0 before the first; a link that comes twice counts once. HEED_E_ARGUMENT, HEED_E_MEMORY. */
HEED_API heed_status heed_alignment_add(heed_context *context, const heed_link *found, int64_t found_count, const heed_link *reference,
                                        int64_t reference_count, heed_alignment_score *score);

#ifdef __cplusplus
}
#endif
#endif
