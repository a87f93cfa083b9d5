/* heads.c: see heads.h. */
#include "heads.h"

hd_heads_place hd_heads_place_of(const hd_node *node, int64_t heads, int64_t kv_heads, int which) {
  int64_t q = hd_columns(node->in[HD_Q]);
  if (!node->in[HD_K]) {
    int64_t width = q / (heads + 2 * kv_heads), before = which == HD_Q ? 0 : which == HD_K ? heads : heads + kv_heads;
    return (hd_heads_place){HD_Q, which == HD_Q ? heads : kv_heads, width, before * width};
  }
  if (which == HD_Q) return (hd_heads_place){HD_Q, heads, q / heads, 0};
  int64_t k = hd_columns(node->in[HD_K]);
  if (!node->in[HD_V]) return (hd_heads_place){HD_K, kv_heads, k / (2 * kv_heads), which == HD_K ? 0 : k / 2};
  return (hd_heads_place){which, kv_heads, hd_columns(node->in[which]) / kv_heads, 0};
}

heed_view hd_heads_view(const heed_tensor *t, void *data, heed_type type, const hd_heads_place *at) {
  int64_t columns = hd_columns(t), rows = t->dim[t->ndim - 2], batch = t->ndim == 3 ? t->dim[0] : 1;
  return (heed_view){(char *)data + at->column * (int64_t)heed_type_bytes(type),
                     type,
                     4,
                     {batch, at->heads, rows, at->width},
                     {rows * columns, at->width, columns, 1}};
}

heed_status hd_heads_shape(heed_context *context, hd_node *node, int64_t heads, int64_t kv_heads) {
  const char *name = node->operation->name;
  const heed_tensor *q = node->in[HD_Q];
  char text[HD_SHAPE_LENGTH];
  HD_REQUIRE(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, context, HEED_E_SHAPE,
             "%s: %lld heads over %lld key/value heads, allowed a positive multiple", name, (long long)heads, (long long)kv_heads);
  HD_REQUIRE(node->in[HD_K] || !node->in[HD_V], context, HEED_E_ARGUMENT, "%s: values without keys", name);
  for (int i = HD_Q; i <= HD_V; i++) {
    const heed_tensor *t = node->in[i];
    int64_t parts = i == HD_Q ? heads + (node->in[HD_K] ? 0 : 2 * kv_heads) : kv_heads * (i == HD_K && !node->in[HD_V] ? 2 : 1);
    if (!t) continue;
    HD_REQUIRE((t->ndim == 2 || t->ndim == 3) && t->ndim == q->ndim && hd_columns(t) % parts == 0, context, HEED_E_SHAPE,
               "%s: %c %s, allowed [B,rows,%lld · width]", name, "qkv"[i], hd_tensor_shape(t, text), (long long)parts);
  }
  hd_shape_like(node, q);
  node->out->dim[q->ndim - 1] = heads * hd_heads_place_of(node, heads, kv_heads, HD_V).width;
  return HEED_OK;
}

heed_status hd_gradients_aside(heed_context *context, const hd_node *node, int inputs,
                               heed_status (*differentiate)(heed_context *context, const hd_node *node, void *const *to)) {
  float *belongs[HD_MOST_INPUTS] = {0}, *aside[HD_MOST_INPUTS] = {0};
  void *to[HD_MOST_INPUTS] = {0};
  heed_status status = HEED_OK;
  for (int i = 0; i < inputs; i++) {
    bool add = false;
    belongs[i] = hd_gradient(node, i, &add);
    if (add) HD_TRY_DONE(hd_allocate(context, "a gradient of heads", hd_count(node->in[i]), sizeof *aside[i], &aside[i]));
    to[i] = aside[i] ? aside[i] : belongs[i];
  }
  HD_TRY_DONE(differentiate(context, node, to));
  for (int i = 0; i < inputs; i++)
    if (aside[i]) hd_elements_pass(context, aside[i], hd_count(node->in[i]), true, belongs[i]);
done:
  for (int i = 0; i < inputs; i++) hd_release(context, aside[i], aside[i] ? hd_count(node->in[i]) : 0, sizeof(float));
  return status;
}
