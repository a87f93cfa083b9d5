/* hashed.h: layers of LSH attention in a pass. Which rows meet depends on all of them, later ones too, so nothing is kept: a pass has the whole text of each of its sequences, from the first token on. */
#ifndef HD_HASHED_H
#define HD_HASHED_H

#include "session.h"

/* Rows of the pass attend in such a layer: queries, which are also keys, and values lie in qkv, the result goes to mixed. */
heed_status hd_hashed_attend(const hd_pass *pass, int64_t layer);

/* What a watch sees of it after that, in a pass of one span: the weights of rows that met, which rows those were, and the weights if all had met. */
heed_status hd_hashed_watch(const hd_pass *pass, int64_t layer);

#endif
