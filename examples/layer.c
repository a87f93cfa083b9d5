/* layer.c: one training step's passes through a multi-head layer: cc layer.c $(pkg-config --cflags --libs heed) && ./a.out */
#include <heed/heed.h>

#include <stdio.h>
#include <stdlib.h>

int main(void) {
  float x[2][5][8], w_qkv[24][8], w_o[8][8], out[2][5][8], dx[2][5][8], dw_qkv[24][8] = {{0}}, dw_o[8][8] = {{0}};
  for (int i = 0; i < 80; i++) (&x[0][0][0])[i] = (float)(i % 7) / 7;
  for (int i = 0; i < 192; i++) (&w_qkv[0][0])[i] = (float)(i % 11) / 11 - 0.5f;
  for (int i = 0; i < 64; i++) (&w_o[0][0])[i] = (float)(i % 13) / 13 - 0.5f;
  heed_view vx = heed_view_of(x, HEED_F32, 3, (int64_t[]){2, 5, 8}), vout = vx, vdx = vx;
  heed_view vw = heed_view_of(w_qkv, HEED_F32, 2, (int64_t[]){24, 8}), vdw = vw, vo = heed_view_of(w_o, HEED_F32, 2, (int64_t[]){8, 8}),
            vdo = vo;
  vout.data = out, vdx.data = dx, vdw.data = dw_qkv, vdo.data = dw_o;

  heed_context *context = NULL;
  if (heed_context_new(NULL, &context) != HEED_OK) return 1;
  heed_attention causal = {.size = sizeof causal, .causal = true};
  heed_multi_head layer = {.size = sizeof layer, .heads = 2, .attention = &causal, .w_qkv = &vw, .w_o = &vo};
  int64_t floats = 0;
  heed_status status = heed_multi_head_saved_size(context, &layer, &vx, NULL, NULL, &floats);
  heed_view saved = heed_view_of(calloc((size_t)floats, sizeof(float)), HEED_F32, 1, &floats); // once for all steps
  heed_multi_head_extras extras = {.size = sizeof extras, .saved = &saved};
  heed_multi_head_gradients gradients = {.size = sizeof gradients, .accumulate = true, .dx_query = &vdx, .dw_qkv = &vdw, .dw_o = &vdo};
  if (status == HEED_OK) status = heed_multi_head_forward(context, &layer, &vx, NULL, NULL, &vout, &extras);
  if (status == HEED_OK) status = heed_multi_head_backward(context, &layer, &vx, NULL, NULL, &saved, &vout, &gradients); // of ½ Σ out²
  if (status == HEED_OK) printf("out %.4f, dx %.4f, dw_qkv %.4f\n", out[1][4][0], dx[1][4][0], dw_qkv[23][7]);
  else fprintf(stderr, "layer: %s\n", heed_error(context));
  free(saved.data);
  heed_context_free(context);
  return status != HEED_OK;
}
