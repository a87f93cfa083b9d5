/* list.h: every operation: X(name). One line expands to the declaration of hd_op_<name> below and to its entry in the tests' table, by which it is held to its reference
 * (gradient check, levels, threads). A new operation is one file and one line. */
#ifndef HD_OP_LIST_H
#define HD_OP_LIST_H

#include "../tensor/tensor.h"

// clang-format off
#define HD_OPERATION_LIST(X) \
  X(linear) \
  X(add) \
  X(mul) \
  X(scale) \
  X(activate) \
  X(gate) \
  X(embedding) \
  X(gather) \
  X(dropout) \
  X(reshape) \
  X(transpose) \
  X(slice) \
  X(concat) \
  X(sum) \
  X(mean) \
  X(attention) \
  X(linear_attention) \
  X(lsh_attention) \
  X(rope) \
  X(cross_entropy) \
  X(layer_norm) \
  X(rms_norm) \
  X(softmax) \
  X(log_softmax) \
  X(matmul) \
  X(gru) \
  X(maxout)
// clang-format on

/* The table of an operation whose file has functions of the usual names; what else it says follows. HD_OPERATION(scale, .options = sizeof(settings)) defines hd_op_scale. */
#define HD_OPERATION(called, ...)                                                                                                          \
  const hd_operation hd_op_##called = {                                                                                                    \
      .name = #called, .shape = shape, .forward = forward, .backward = backward, .reference = reference, .sample = sample, __VA_ARGS__}

#define HD_OPERATION_DECLARE(name) extern const hd_operation hd_op_##name;
HD_OPERATION_LIST(HD_OPERATION_DECLARE)
#undef HD_OPERATION_DECLARE

/* heed_tape_add where the caller knows that nobody will use b any more, so that the sum may take its place. */
heed_tensor *hd_tape_add_last(heed_tape *tape, heed_tensor *a, heed_tensor *b);

#endif
