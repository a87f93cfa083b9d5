/* score_dot.c: the dot product, which the kernel does by itself. */
#include "score.h"

const hd_score_kind hd_score_dot = {.name = "dot"};
