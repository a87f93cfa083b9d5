/* stream.h: endless text in constant memory: the first tokens and a window of the last ones (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2024).
 *
 * The cache fills up as usual until it holds sinks + window keys. From then on each token's key takes the place of the oldest one behind the sinks, and positions count inside the cache: the token stands at
 * the last of them, its neighbours right before it, the sinks at the first. Only distances between positions count where keys turn, so the keys of the window stay as they are; it is the sinks
 * that move along, turned anew for each token from what they were before they first turned. In which order keys lie means nothing to attention. */
#ifndef HD_STREAM_H
#define HD_STREAM_H

#include "session.h"

struct hd_stream {
  int64_t sinks, window;
  float *keys;                      /* [layers][sinks][kv_heads · head_dim]: of the first tokens, before they turn */
  float *turned;                    /* [sinks][kv_heads · head_dim] */
  float *cosine, *sine;             /* [sinks, rotary_dim/2]: what the sinks turn by in this pass */
  float *local_cosine, *local_sine; /* as in hd_scratch */
  float *memory;
  int64_t floats;
};

/* A stream for sessions of a model. HEED_E_ARGUMENT (sizes), HEED_E_UNSUPPORTED (a model whose positions are not rotary, or whose own window is smaller), HEED_E_MEMORY. */
heed_status hd_stream_new(heed_context *context, const heed_model *model, int64_t sinks, int64_t window, hd_stream **out);
void hd_stream_free(heed_context *context, hd_stream *stream);

/* Keys that it keeps at most. */
static inline int64_t hd_stream_size(const hd_stream *stream) { return stream->sinks + stream->window; }
/* Whether the token at a position takes the place of another. NULL: no. */
static inline bool hd_stream_wraps(const hd_stream *stream, int64_t position) { return stream && position >= hd_stream_size(stream); }
/* The key whose place the token at a position takes. */
static inline int64_t hd_stream_slot(const hd_stream *stream, int64_t position) {
  return stream->sinks + (position - stream->sinks) % stream->window;
}
/* Where the first sink stands when the token at a position is read. */
static inline int64_t hd_stream_first(const hd_stream *stream, int64_t position) { return position - hd_stream_size(stream) + 1; }
/* Keys of sinks of a layer, [sinks][kv_heads · head_dim]. */
float *hd_stream_keys(const hd_stream *stream, const hd_transformer_spec *spec, int64_t layer);

#endif
