/* attend.c: exact causal attention on your own arrays: cc attend.c $(pkg-config --cflags --libs heed) && ./a.out */
#include <heed/heed.h>

#include <stdio.h>

int main(void) {
  float q[6][2] = {{1, 0}, {0, 1}, {1, 1}, {0, 2}, {2, 0}, {1, 2}}, v[6][1] = {{1}, {2}, {3}, {4}, {5}, {6}}, out[6][1];
  heed_view queries = heed_view_of(q, HEED_F32, 2, (int64_t[]){6, 2}), keys = queries;
  heed_view values = heed_view_of(v, HEED_F32, 2, (int64_t[]){6, 1}), result = heed_view_of(out, HEED_F32, 2, (int64_t[]){6, 1});
  heed_context *context = NULL;
  if (heed_context_new(NULL, &context) != HEED_OK) return 1;
  heed_attention attention = {.size = sizeof attention, .causal = true};
  heed_status status = heed_attention_forward(context, &attention, &queries, &keys, &values, &result, NULL);
  if (status != HEED_OK) fprintf(stderr, "attend: %s\n", heed_error(context));
  for (int i = 0; status == HEED_OK && i < 6; i++) printf("token %d reads %.4f\n", i, out[i][0]);
  heed_context_free(context);
  return status != HEED_OK;
}
