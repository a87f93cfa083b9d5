/* spec.c: the arithmetic of a spec: what its fields imply, whether they fit together, rotary frequencies. */
#include "spec.h"

#include "kinds.h"

#include "../attn/rope.h"
#include "../attn/sinusoid.h"

#include <stdio.h>

int64_t hd_spec_window(const hd_transformer_spec *spec, int64_t layer) { return hd_spec_is_full(spec, layer) ? 0 : spec->window; }

void hd_spec_sinusoid(const hd_transformer_spec *spec, int64_t position, float *out) {
  const heed_sinusoid sinusoid = {.size = sizeof sinusoid, .closed = spec->sinusoid_closed, .offset = spec->position_offset};
  hd_sinusoid_row(&sinusoid, spec->width, position, out);
}

static heed_status check_heads(heed_context *context, const char *file, hd_transformer_spec *s) {
  if (s->kv_heads == 0) s->kv_heads = s->heads;
  HD_REQUIRE(s->heads % s->kv_heads == 0, context, HEED_E_FORMAT, "%s: key/value heads must divide heads (got %lld and %lld)", file,
             (long long)s->kv_heads, (long long)s->heads);
  if (s->head_dim == 0) {
    HD_REQUIRE(s->width % s->heads == 0, context, HEED_E_FORMAT, "%s: heads must divide the width (got %lld and %lld)", file,
               (long long)s->heads, (long long)s->width);
    s->head_dim = s->width / s->heads;
  }
  return HEED_OK;
}

/* What the core would refuse, as a fault of the file. */
static heed_status check_scaling(heed_context *context, const char *file, const heed_rope_scaling *scaling, int64_t rotary_dim) {
  char problem[HD_ERROR_LENGTH];
  if (hd_rope_scaling_check(context, scaling, rotary_dim) == HEED_OK) return HEED_OK;
  memcpy(problem, heed_error(context), sizeof problem);
  return hd_fail(context, HEED_E_FORMAT, "%s: %s", file, problem);
}

/* ---- positions that layers take in turn --------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  hd_positions positions;
} named_positions[] = {{"learned", HD_POSITIONS_LEARNED},
                       {"sinusoidal", HD_POSITIONS_SINUSOIDAL},
                       {"rope", HD_POSITIONS_ROTARY_HALF},
                       {"alibi", HD_POSITIONS_ALIBI},
                       {"xl", HD_POSITIONS_XL},
                       {"t5", HD_POSITIONS_RELATIVE},
                       {"none", HD_POSITIONS_NONE}};

static bool positions_from_name(const char *name, size_t length, hd_positions *out) {
  for (int64_t i = 0; i < HD_COUNT(named_positions); i++)
    if (strlen(named_positions[i].name) == length && memcmp(named_positions[i].name, name, length) == 0) {
      *out = named_positions[i].positions;
      return true;
    }
  return false;
}

static int64_t turns_of(const hd_transformer_spec *spec) {
  int64_t count = 1;
  for (const char *at = spec->layer_positions; *at; at++) count += *at == '/';
  return count;
}

hd_positions hd_spec_turn(const hd_transformer_spec *spec, int64_t layer) {
  const char *at = spec->layer_positions;
  hd_positions out = HD_POSITIONS_NONE;
  for (int64_t i = layer % turns_of(spec); i > 0; at++) i -= *at == '/';
  positions_from_name(at, strcspn(at, "/"), &out);
  return out;
}

bool hd_spec_uses(const hd_transformer_spec *spec, hd_positions positions) {
  if (!spec->layer_positions[0]) return spec->positions == positions;
  for (int64_t i = turns_of(spec) - 1; i >= 0; i--)
    if (hd_spec_turn(spec, i) == positions) return true;
  return false;
}

static heed_status check_turns(heed_context *context, const char *file, const hd_transformer_spec *s) {
  const int64_t turns = turns_of(s);
  if (!s->layer_positions[0]) return HEED_OK;
  HD_REQUIRE(turns <= s->layers, context, HEED_E_FORMAT, "%s: positions: %lld kinds for %lld layers", file, (long long)turns,
             (long long)s->layers);
  for (const char *at = s->layer_positions;; at++) {
    const size_t length = strcspn(at, "/");
    hd_positions found;
    HD_REQUIRE(positions_from_name(at, length, &found), context, HEED_E_FORMAT,
               "%s: positions: unknown kind \"%.*s\", known are learned, sinusoidal, rope, alibi, xl, t5, none", file,
               (int)HD_MIN(length, 32), at);
    at += length;
    if (!*at) break;
  }
  HD_REQUIRE(!hd_spec_uses(s, HD_POSITIONS_LEARNED) || !hd_spec_uses(s, HD_POSITIONS_SINUSOIDAL), context, HEED_E_FORMAT,
             "%s: positions: learned and sinusoidal ones would both be added to the embedding (got \"%.64s\")", file, s->layer_positions);
  return HEED_OK;
}

static heed_status check_positions(heed_context *context, const char *file, hd_transformer_spec *s) {
  const int64_t most = 1 << 20;
  HD_TRY(check_turns(context, file, s));
  if (hd_spec_uses(s, HD_POSITIONS_XL))
    HD_REQUIRE(s->context <= most, context, HEED_E_FORMAT,
               "%s: positions xl keep a row for each distance (context, got %lld, allowed up to %lld)", file, (long long)s->context,
               (long long)most);
  if (hd_spec_uses(s, HD_POSITIONS_RELATIVE)) {
    const int64_t side = s->bidirectional ? s->relative_buckets / 2 : s->relative_buckets;
    HD_REQUIRE(side >= 2 && s->relative_buckets % 2 == 0 && s->relative_distance > side / 2, context, HEED_E_FORMAT,
               "%s: relative positions need an even number of buckets, at least 4, and a distance beyond the near ones (got %lld and %lld)",
               file, (long long)s->relative_buckets, (long long)s->relative_distance);
  }
  if (!hd_spec_rotates(s)) return HEED_OK;
  if (s->rotary_dim == 0) s->rotary_dim = s->head_dim;
  HD_REQUIRE(s->rotary_dim % 2 == 0 && s->rotary_dim <= s->head_dim, context, HEED_E_FORMAT,
             "%s: rotary positions need an even width within the head (got %lld, allowed 2..%lld)", file, (long long)s->rotary_dim,
             (long long)s->head_dim);
  HD_TRY(check_scaling(context, file, &s->rotary, s->rotary_dim));
  return s->rotary_local.size ? check_scaling(context, file, &s->rotary_local, s->rotary_dim) : HEED_OK;
}

static heed_status check_attention(heed_context *context, const char *file, const hd_transformer_spec *s) {
  char sentence[HD_ERROR_LENGTH];
  const heed_status status = hd_kinds_check(context, s);
  if (status != HEED_E_ARGUMENT && status != HEED_E_SHAPE) return status;
  snprintf(sentence, sizeof sentence, "%s", heed_error(context));
  return hd_fail(context, HEED_E_FORMAT, "%s: %s", file, sentence);
}

heed_status hd_spec_finish(heed_context *context, const char *file, hd_transformer_spec *s) {
  HD_TRY(check_heads(context, file, s));
  if (s->feed_forward == 0) s->feed_forward = 4 * s->width;
  HD_REQUIRE(!s->cross || !s->bidirectional, context, HEED_E_FORMAT, "%s: only a decoder looks at an encoder", file);
  HD_REQUIRE(s->head == HEED_HEAD_TOKENS || s->bidirectional, context, HEED_E_FORMAT,
             "%s: only an encoder has a head for labels or a class", file);
  HD_TRY(check_positions(context, file, s));
  return check_attention(context, file, s);
}

/* Every spelling in use. "gelu" is the exact form; the others are names for the tanh form. */
static const struct {
  const char *name;
  heed_activation activation;
} activations[] = {
    {"silu", HEED_ACTIVATION_SILU},          {"swish", HEED_ACTIVATION_SILU},          {"gelu", HEED_ACTIVATION_GELU},
    {"gelu_new", HEED_ACTIVATION_GELU_TANH}, {"gelu_fast", HEED_ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", HEED_ACTIVATION_GELU_TANH},
    {"relu", HEED_ACTIVATION_RELU}};

bool hd_activation_from_name(const char *name, size_t length, heed_activation *out) {
  for (int64_t i = 0; i < HD_COUNT(activations); i++)
    if (strlen(activations[i].name) == length && memcmp(activations[i].name, name, length) == 0) {
      *out = activations[i].activation;
      return true;
    }
  return false;
}

const char *hd_activation_name(heed_activation kind) {
  switch (kind) {
  case HEED_ACTIVATION_RELU: return "relu";
  case HEED_ACTIVATION_SILU: return "silu";
  case HEED_ACTIVATION_GELU_TANH: return "gelu_new";
  default: return "gelu";
  }
}

const char *hd_activation_known(void) { return "silu, swish, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu"; }

int64_t hd_spec_positions(const hd_transformer_spec *spec) { return hd_spec_has_table(spec) ? spec->context : HD_MAX_CONTEXT; }
