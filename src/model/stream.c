/* stream.c: what a stream keeps beside the cache. */
#include "stream.h"

static heed_status check(heed_context *context, const heed_model *model, int64_t sinks, int64_t window) {
  const hd_transformer_spec *spec = &model->spec;
  HD_REQUIRE(window >= 1 && sinks >= 0 && sinks <= window, context, HEED_E_ARGUMENT,
             "a stream of %lld sinks and a window of %lld tokens, allowed a window of 1 and more and no more sinks than that",
             (long long)sinks, (long long)window);
  HD_REQUIRE(window <= spec->context - sinks, context, HEED_E_ARGUMENT,
             "%s: a stream of %lld sinks and a window of %lld tokens, allowed %lld in all, the context of the model", model->name,
             (long long)sinks, (long long)window, (long long)spec->context);
  bool turns = !spec->bidirectional && !spec->cross;
  for (int64_t i = 0; i < spec->layers; i++) turns &= hd_positions_rotate(hd_spec_positions_of(spec, i));
  HD_REQUIRE(turns, context, HEED_E_UNSUPPORTED,
             "%s: only a decoder with rotary positions can stream, since positions are to count inside the cache", model->name);
  for (int64_t i = 0; i < spec->layers; i++) {
    const int64_t own = hd_spec_window(spec, i);
    const hd_attention_kind kind = hd_kind_of(&model->kinds, i);
    HD_REQUIRE(!kind.pattern && !kind.linear && !kind.rounds, context, HEED_E_UNSUPPORTED,
               "%s: a stream is a window of its own, but layer %lld attends with \"%.64s\"", model->name, (long long)i, kind.text);
    HD_REQUIRE(own == 0 || own >= sinks + window, context, HEED_E_UNSUPPORTED,
               "%s: a stream of %lld tokens, but layer %lld has a window of its own of %lld", model->name, (long long)(sinks + window),
               (long long)i, (long long)own);
  }
  return HEED_OK;
}

/* Numbers of a sink's keys in a layer. */
static int64_t key_floats(const hd_transformer_spec *spec) { return spec->kv_heads * spec->head_dim; }

static bool lay_out(const hd_transformer_spec *spec, hd_stream *s, float *memory, int64_t *floats) {
  const int64_t pairs = spec->rotary_dim / 2, local = spec->rotary_local.size ? pairs : 0;
  const hd_part parts[] = {
      {&s->keys, spec->layers * s->sinks, key_floats(spec)},
      {&s->turned, s->sinks, key_floats(spec)},
      {&s->cosine, s->sinks, pairs},
      {&s->sine, s->sinks, pairs},
      {&s->local_cosine, s->sinks, local},
      {&s->local_sine, s->sinks, local},
  };
  *floats = 0;
  return hd_cut(memory, parts, (int)HD_COUNT(parts), floats);
}

heed_status hd_stream_new(heed_context *context, const heed_model *model, int64_t sinks, int64_t window, hd_stream **out) {
  HD_TRY(check(context, model, sinks, window));
  hd_stream *stream;
  HD_TRY(hd_allocate(context, "a stream", 1, sizeof *stream, &stream));
  *stream = (hd_stream){.sinks = sinks, .window = window};
  heed_status status = HEED_E_OVERFLOW;
  if (lay_out(&model->spec, stream, NULL, &stream->floats))
    status = hd_allocate(context, "the sinks of a stream", stream->floats, sizeof *stream->memory, &stream->memory);
  if (status == HEED_OK) lay_out(&model->spec, stream, stream->memory, &stream->floats);
  if (status != HEED_OK) hd_stream_free(context, stream);
  else *out = stream;
  return status;
}

void hd_stream_free(heed_context *context, hd_stream *stream) {
  if (!stream) return;
  hd_release(context, stream->memory, stream->floats, sizeof *stream->memory);
  hd_release(context, stream, 1, sizeof *stream);
}

float *hd_stream_keys(const hd_stream *stream, const hd_transformer_spec *spec, int64_t layer) {
  return stream->keys + layer * stream->sinks * key_floats(spec);
}
