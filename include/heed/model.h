/* model.h: loading the models people have, running them, and recording what they attend to.
 *
 * A model is immutable and counted: load it once, share it between contexts in several threads, free each reference. A session holds the keys and
 * values of one sequence; it belongs to one context at a time. Weights stay in the type of their file; arithmetic is f32. The logits of a position
 * have the same bits whether the sequence was run in one pass, in chunks of any sizes, or token by token. (Linear attention: the same numbers to rounding. A decoder with LSH attention runs the
 * whole text so far anew with each call: logits are those of that text, in which later tokens may change whom earlier ones meet.) */
#ifndef HEED_MODEL_H
#define HEED_MODEL_H

#include "heed.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct heed_model heed_model;

/* path: a GGUF file, a Hugging Face directory (config.json, *.safetensors, tokenizer.json) or a config.json in one.
 * HEED_E_FILE, HEED_E_FORMAT, HEED_E_UNSUPPORTED (architecture, tensor type or activation; heed_error names it and lists what is known), HEED_E_MEMORY,
 * HEED_E_CANCELLED (progress "load"). */
HEED_API heed_status heed_model_load(heed_context *context, const char *path, heed_model **out);
HEED_API heed_model *heed_model_retain(heed_model *model);
HEED_API void heed_model_free(heed_model *model);

/* What a model says of what it has read. */
typedef enum heed_head {
  HEED_HEAD_TOKENS, /* of every position: which token follows or, of an encoder, which one stands there */
  HEED_HEAD_LABELS, /* of every position: which label its token bears (parts of speech, named entities) */
  HEED_HEAD_CLASS   /* of the whole sequence: which label it bears, read from its first position through a pooler (Devlin et al. 2019) */
} heed_head;

typedef struct heed_model_info {
  size_t size;
  const char *name;   /* "SmolLM2-135M-Instruct": the file or directory's name without its storage type; borrowed from the model */
  const char *family; /* "llama", "gpt2", "bert"; static */
  const char *path;   /* as given to heed_model_load; borrowed */
  int64_t layers, heads, kv_heads, head_dim, width, feed_forward, vocabulary, context; /* context: positions the model was made for */
  int64_t parameters, weight_bytes; /* weight_bytes: in memory; each token decoded reads about this many */
  double flops_per_token;           /* 2 × the weights that a token is multiplied with */
  bool bidirectional; /* an encoder: every token sees all others, logits are for the token that stands there, and nothing is generated */
  heed_head head;
  int64_t labels;  /* of a head for labels or a class; otherwise 0 */
  int64_t outputs; /* numbers in a row of logits: vocabulary or labels */
  /* Of an encoder–decoder, whose numbers above are the decoder's; otherwise 0 and start −1. */
  int64_t encoder_layers, encoder_heads, encoder_vocabulary, encoder_context;
  int32_t start; /* the id that a target begins with; −1: the files name none */
} heed_model_info;
/* HEED_E_ARGUMENT: null, or info's size is not set. */
HEED_API heed_status heed_model_describe(const heed_model *model, heed_model_info *info);
/* The name of a label, NULL outside [0, labels); borrowed for the life of the model. */
HEED_API const char *heed_model_label(const heed_model *model, int64_t label);
/* The tokenizer that came with the model, or NULL (gpt-nano-sort has none); borrowed for the life of the model. */
HEED_API const heed_tokenizer *heed_model_tokenizer(const heed_model *model);

/* ---- watching ----------------------------------------------------------------------------------------------------------- */

/* Which attention a record is of. */
typedef enum heed_stage {
  HEED_STAGE_SELF,    /* a model's, or a decoder's, among its own tokens */
  HEED_STAGE_ENCODER, /* of a model with an encoder: the source's tokens among themselves */
  HEED_STAGE_CROSS    /* of the decoder's tokens (queries) to those of the source (keys) */
} heed_stage;

/* What a layer attends with among its own, by the text that heed_learner_options.attention has for it: "full" where nothing else is said, also in a layer with a window of its family; NULL: no
 * such layer. *approximate, if asked for: whether it is linear or LSH attention, so that records have exact weights beside its own. Lives as long as the model. */
HEED_API const char *heed_model_attention(const heed_model *model, int64_t layer, bool *approximate);

/* What one layer did for the queries of one run; all arrays are borrowed for the duration of the call.
 * weights [n_heads, queries, keys] rows sum to 1, masked keys exactly 0; q [H, queries, head_dim], k and v [Hkv, keys, head_dim] as they met in the scores
 * (after positions), NULL unless asked for. The first query of this run stands at position first. */
typedef struct heed_layer_record {
  int64_t layer, n_heads, queries, keys, first;
  const int64_t *heads; /* [n_heads] */
  float *weights;       /* the callback of `edit` may change them */
  const float *q, *k, *v;
  bool causal;
  int64_t window; /* keys a query sees back from itself, itself included, and of an encoder as many ahead; 0: all */
  heed_stage stage;
  const uint8_t *
      visible; /* [n_heads, queries, keys]: 1 where the layer's pattern lets the query look, causal or not, or LSH attention had the pair; NULL: it has no pattern */
  const float *
      exact; /* of linear attention, whose weights are those that its features imply, and of LSH attention: what exact attention of the same q and k would have; else NULL */
} heed_layer_record;

typedef heed_status (*heed_watch_fn)(void *user, const heed_layer_record *record);
typedef heed_status (*heed_edit_fn)(void *user, heed_layer_record *record);

/* Chooses what to watch. layers NULL: all; heads NULL: all. record is called once a layer and run, from the caller's thread, in layer order; in a decoder that looks at a source twice,
 * for SELF and then for CROSS.
 * edit, if given, is called before record and may replace weights before they meet the values (edge knock-out, head ablation): that layer then runs
 * with the edited weights of the chosen heads instead of the fused kernel. A status other than HEED_OK stops the run and is returned. */
typedef struct heed_watch {
  size_t size;
  int64_t n_layers, n_heads;
  const int64_t *layers, *heads;
  bool want_qkv;
  heed_watch_fn record;
  heed_edit_fn edit;
  void *user;
} heed_watch;

/* ---- running ------------------------------------------------------------------------------------------------------------ */

typedef struct heed_session heed_session;
typedef struct heed_session_options {
  size_t size;
  int64_t capacity; /* positions; 0: the model's context. The cache grows in pages as it is used. */
  int64_t chunk;    /* tokens run at once in a long prompt; 0: 512. Changes no bit. (With LSH attention always all.) */

  /* Endless text: once there are sinks + stream_window tokens, the session keeps the first `sinks` of them and the last stream_window, each token sees those, and positions count from the first that is
   * kept. Neither memory nor the time of a token grows any more; capacity must be 0, there is none. A decoder with rotary positions only. From there on nothing is forgotten by request, nothing is
   * watched, tokens run one by one, and after an error the session holds what was run. (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2024.) */
  int64_t stream_window; /* 0: no stream */
  int64_t sinks;         /* at most stream_window */
} heed_session_options;

/* The session keeps the context and a reference to the model. HEED_E_ARGUMENT (capacity beyond the model's positions where they are learned; a stream beyond its context),
 * HEED_E_UNSUPPORTED (a stream of a model that cannot), HEED_E_MEMORY. */
HEED_API heed_status heed_session_new(heed_context *context, heed_model *model, const heed_session_options *options, heed_session **out);
HEED_API void heed_session_free(heed_session *session);
/* Positions filled so far. */
HEED_API int64_t heed_session_length(const heed_session *session);
/* Forgets everything from position length on. HEED_E_ARGUMENT if length is not in [0, session length], or a stream that has let tokens go is asked for anything but 0 or all. */
HEED_API heed_status heed_session_truncate(heed_session *session, int64_t length);
/* Keeps the longest common prefix of ids and what the session holds (at most count − 1, so that there is something left to run), forgets the rest, returns its length. */
HEED_API int64_t heed_session_reuse(heed_session *session, const int32_t *ids, int64_t count);

/* Gives an encoder–decoder its source: runs the ids [count] through the encoder, and keeps for each layer of the decoder the keys and values that it makes of them. The session then holds no
 * token of a target: what heed_session_run gets next begins one, with the id that heed_model_info names as its start. Capacity and chunk do not limit a source. watch may be NULL.
 * On error the session has no source. HEED_E_ARGUMENT (an id out of range, more than the encoder's positions where they are learned), HEED_E_UNSUPPORTED (a model without an encoder),
 * HEED_E_MEMORY, HEED_E_CANCELLED (progress "prefill"). */
HEED_API heed_status heed_session_source(heed_session *session, const int32_t *ids, int64_t count, const heed_watch *watch);
/* Tokens of the source; 0: none. */
HEED_API int64_t heed_session_source_length(const heed_session *session);

/* Runs ids [count] after what the session holds, which is nothing where the model is an encoder. logits NULL or [rows, outputs] for the
 * last `rows` of them (1 ≤ rows ≤ count; of a model that gives a class, rows is 1 and the row that of the sequence). watch may be NULL. On
 * error the session holds what it held before. HEED_E_ARGUMENT (an id out of range, more positions than capacity, an encoder that holds
 * something, a decoder without a source), HEED_E_MEMORY, HEED_E_CANCELLED (progress "prefill"). */
HEED_API heed_status heed_session_run(heed_session *session, const int32_t *ids, int64_t count, float *logits, int64_t rows,
                                      const heed_watch *watch);

/* ---- sampling and generating --------------------------------------------------------------------------------------------- */

/* Zero is greedy. The order is: repetition penalty, temperature, top-k, top-p, min-p, draw. */
typedef struct heed_sampling {
  size_t size;
  double temperature;        /* 0: the most likely token (the lowest id among equals) */
  int64_t top_k;             /* 0: off */
  double top_p, min_p;       /* 0: off */
  double repetition_penalty; /* 0 or 1: off; logits of tokens already in the window are divided (multiplied if negative) */
  int64_t repetition_window; /* 0: 64 */
  uint64_t seed;
} heed_sampling;

/* Chooses a token. history [count] is what the penalty looks at; step numbers the draws of one seed. HEED_E_ARGUMENT for a field out of range or logits that hold NaN. */
HEED_API heed_status heed_sample(heed_context *context, const heed_sampling *sampling, const float *logits, int64_t vocabulary,
                                 const int32_t *history, int64_t count, int64_t step, int32_t *id);

/* Called with each new token, the end token too; text is what it completes (see heed_decoder). If a character is still incomplete at the end, it comes once more with id −1
 * and U+FFFD. Return false to stop, which is not an error. */
typedef bool (*heed_generate_fn)(void *user, int32_t id, heed_text text);

typedef struct heed_generate_options {
  size_t size;
  int64_t count;           /* at most so many new tokens */
  heed_sampling sampling;  /* its own size need not be set */
  bool ignore_end;         /* go on after an end token */
  const heed_watch *watch; /* or NULL */
  heed_generate_fn emit;
  void *user;
} heed_generate_options;

typedef struct heed_generate_report {
  size_t size;
  int64_t prompt_tokens, new_tokens;
  double prompt_seconds, new_seconds;
  bool ended; /* by an end token */
} heed_generate_report;

/* Runs the prompt ids (at least one) and samples up to count tokens, fewer where an end token comes or the session is full. The last token is not run: the session then holds
 * all but it. report may be NULL. HEED_E_UNSUPPORTED (an encoder), HEED_E_CANCELLED (progress "prefill", "generate"). */
HEED_API heed_status heed_generate(heed_session *session, const int32_t *ids, int64_t count, const heed_generate_options *options,
                                   heed_generate_report *report);

/* Wraps text as one user message in the model's chat form (ChatML, Llama 3, Gemma, Zephyr), recognised from the file's template, and encodes it. *form gets the
 * static name. HEED_E_UNSUPPORTED if the model has no template or one that is none of these. Free ids with heed_ids_free. */
HEED_API heed_status heed_chat_encode(heed_context *context, const heed_model *model, heed_text text, const char **form, int32_t **ids,
                                      int64_t *count);

/* ---- what is in a file --------------------------------------------------------------------------------------------------- */

/* Lists a model file or array file of any kind heed reads without loading its weights. Strings are borrowed for the call. */
typedef struct heed_file_item {
  bool is_tensor;
  heed_text name;
  heed_text value;  /* metadata: its value as text (long arrays shortened) */
  const char *type; /* the file's word: "F32", "Q4_1", "IQ4_XS", "u32", "text", "array", ... */
  int ndim;
  int64_t dim[HEED_MAX_DIM]; /* outermost first */
  int64_t bytes;
} heed_file_item;
typedef bool (*heed_file_item_fn)(void *user, const heed_file_item *item);
/* *format gets the static name of the file's format ("GGUF 3", "safetensors", "npy", "npz", "Hugging Face directory", "CTranslate2 2"). each
 * returns false to stop, which is not an error. HEED_E_ARGUMENT, HEED_E_FILE, HEED_E_FORMAT, HEED_E_UNSUPPORTED, HEED_E_MEMORY. */
HEED_API heed_status heed_file_inspect(heed_context *context, const char *path, const char **format, heed_file_item_fn each, void *user);

/* Writes a model as a Hugging Face directory that heed reads, which is made if it is not there: weights in f32, configuration, tokenizer.
 * path: a model of CTranslate2 (the directory with model.bin and its vocabularies, binary version 2, of its kinds TransformerBase and TransformerBig): an encoder–decoder of
 * heed's own form, whose vocabularies become tokenizers where they are of characters, the target's in DIRECTORY/target; or whatever heed_model_load reads, under the name of the family that
 * says all of it.
 * HEED_E_UNSUPPORTED (a kind that heed does not know or cannot write), HEED_E_WRITE and those of heed_model_load. */
HEED_API heed_status heed_convert(heed_context *context, const char *path, const char *directory);

/* Arrays in and out: .npy, or one array of an .npz, .safetensors or .gguf as "file.npz:name". The view's data is owned by the context's allocator: heed_array_free.
 * Fortran order becomes strides, a single number has rank 1, integer types that heed_type lacks are widened. Arrays are written as .npy, packed, bf16 as f32.
 * HEED_E_FILE, HEED_E_FORMAT, HEED_E_UNSUPPORTED, HEED_E_MEMORY; heed_array_save also HEED_E_WRITE (the old file stays as it was). */
HEED_API heed_status heed_array_load(heed_context *context, const char *path, heed_view *out);
HEED_API heed_status heed_array_save(heed_context *context, const char *path, const heed_view *array);
HEED_API void heed_array_free(heed_context *context, heed_view *array);

#ifdef __cplusplus
}
#endif
#endif
