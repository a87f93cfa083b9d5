/* recurrent.c: gated recurrent layers, one direction or both. The input's part of all gates is one product over all positions that rows have; what is behind their ends is left out before it. */
#include "../op/list.h"

/* Rows of a batch as positions one behind another: row · T + t for t below the row's length. */
static heed_tensor *positions(heed_tape *tape, const heed_nn_gru_rows *rows, int64_t batch, int64_t steps) {
  int64_t count = 0;
  int32_t *at;
  if (!hd_tape_note(tape, hd_tape_keep(tape, "positions of rows", batch * steps, sizeof *at, &at))) return NULL;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t t = 0; t < HD_MIN(rows->lengths[b], steps); t++) at[count++] = (int32_t)(b * steps + t);
  const heed_view view = heed_view_of(at, HEED_I32, 1, &count);
  return heed_tape_input(tape, &view);
}

/* The states after the last steps: of a row without elements the zeros that stand in its place. */
static heed_tensor *last_states(heed_tape *tape, const heed_nn_gru_rows *rows, bool reverse, heed_tensor *states) {
  if (!states) return NULL;
  const int64_t batch = states->dim[0], steps = states->dim[1], width = states->dim[2];
  int32_t *at;
  if (!hd_tape_note(tape, hd_tape_keep(tape, "positions of rows", batch, sizeof *at, &at))) return NULL;
  for (int64_t b = 0; b < batch; b++)
    at[b] = (int32_t)(b * steps + (reverse ? 0 : HD_MAX(rows->lengths ? rows->lengths[b] : steps, 1) - 1));
  const heed_view view = heed_view_of(at, HEED_I32, 1, &batch);
  heed_tensor *flat = heed_tape_reshape(tape, states, 2, (int64_t[]){batch * steps, width});
  return heed_tape_gather(tape, flat, heed_tape_input(tape, &view));
}

static heed_status check(heed_context *context, const heed_nn_gru *layer, const heed_nn_gru_rows *rows, const heed_tensor *x) {
  char text[HD_SHAPE_LENGTH];
  HD_REQUIRE(x && (x->ndim == 3 || (x->ndim == 2 && rows->lengths && rows->rows > 0)), context, HEED_E_SHAPE,
             "heed_nn_gru: x %s, allowed [B,T,inputs], or with lengths [positions,inputs]", x ? hd_tensor_shape(x, text) : "none");
  HD_REQUIRE(layer->directions == 1 || layer->directions == 2, context, HEED_E_ARGUMENT, "heed_nn_gru: %d directions, allowed 1 and 2",
             layer->directions);
  for (int d = 0; d < layer->directions; d++)
    HD_REQUIRE(layer->w_input[d] && layer->w_state[d], context, HEED_E_ARGUMENT, "heed_nn_gru: weights are missing");
  const int64_t batch = x->ndim == 3 ? x->dim[0] : rows->rows, steps = x->ndim == 3 ? x->dim[1] : rows->steps;
  for (int64_t b = 0; rows->lengths && b < batch; b++)
    HD_REQUIRE(rows->lengths[b] >= 0 && rows->lengths[b] <= steps, context, HEED_E_ARGUMENT,
               "heed_nn_gru: row %lld has %lld elements, allowed 0 to %lld", (long long)b, (long long)rows->lengths[b], (long long)steps);
  return HEED_OK;
}

heed_tensor *heed_nn_gru_apply(heed_tape *tape, const heed_nn_gru *layer, const heed_nn_gru_rows *given, heed_tensor *x,
                               heed_tensor **last) {
  heed_nn_gru_rows rows = {.size = sizeof rows};
  heed_tensor *states[2] = {NULL, NULL};
  if (!tape || heed_tape_status(tape) != HEED_OK) return NULL;
  heed_context *context = hd_tape_context(tape);
  if (!hd_tape_note(tape, hd_options_read(context, "heed_nn_gru_rows", given, &rows, sizeof rows)) ||
      !hd_tape_note(tape, check(context, layer, &rows, x)))
    return NULL;
  if (x->ndim == 3) {
    rows.rows = x->dim[0];
    rows.steps = x->dim[1];
    if (rows.lengths) {
      heed_tensor *flat = heed_tape_reshape(tape, x, 2, (int64_t[]){rows.rows * rows.steps, x->dim[2]});
      x = heed_tape_gather(tape, flat, positions(tape, &rows, rows.rows, rows.steps));
    }
  }
  for (int d = 0; d < layer->directions; d++) {
    const heed_tape_gru_options options = {.size = sizeof options,
                                           .lengths = rows.lengths,
                                           .rows = rows.rows,
                                           .steps = rows.steps,
                                           .reverse = d == 1,
                                           .initial = rows.initial[d]};
    heed_tensor *gates = heed_tape_linear(tape, x, layer->w_input[d], layer->b_input[d]);
    states[d] = heed_tape_gru(tape, &options, gates, layer->w_state[d], layer->b_state[d]);
    if (last) last[d] = last_states(tape, &rows, d == 1, states[d]);
  }
  return layer->directions == 2 ? heed_tape_concat(tape, 2, states, 2) : states[0];
}
