/* embedding.c: rows of a table by their numbers.
 *
 *   y[p] = table[ids[p]]      dtable[i] = Σ over the p with ids[p] = i of dy[p], p ascending
 * Nothing is saved. ids i32 [...], table [rows,width], which may be stored as in a file, y [...,width]. Embedding and gather are one operation under two names. */
#include "elements.h"

#include "../kern/matrix.h"

enum { TABLE, IDS };

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *table = node->in[TABLE], *ids = node->in[IDS];
  const char *name = node->operation->name;
  char text[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(ids->type == HEED_I32 && table->type == HEED_F32, context, HEED_E_TYPE, "%s: ids %s, rows %s: allowed i32 and f32", name,
             heed_type_name(ids->type), heed_type_name(table->type));
  HD_REQUIRE(table->ndim == 2 && ids->ndim < HEED_MAX_DIM, context, HEED_E_SHAPE, "%s: ids %s, rows %s: allowed rank 1 to %d, [rows,width]",
             name, hd_tensor_shape(ids, text[0]), hd_tensor_shape(table, text[1]), HEED_MAX_DIM - 1);
  hd_shape_like(node, ids);
  node->out->dim[node->out->ndim++] = table->dim[1];
  return HEED_OK;
}

static void take(const hd_elements *e, int64_t first, int64_t rows) {
  const int32_t *ids = hd_index(e->node->in[IDS]);
  for (int64_t p = first; p < first + rows; p++) memcpy(e->out + p * e->width, e->a + ids[p] * e->width, (size_t)e->width * sizeof *e->out);
}

static void take_stored(const hd_elements *e, int64_t first, int64_t rows) {
  const heed_context *context = hd_tape_context(e->node->tape);
  const int32_t *ids = hd_index(e->node->in[IDS]);
  for (int64_t p = first; p < first + rows; p++) {
    const hd_matrix *part = e->node->in[TABLE]->stored;
    int64_t row = ids[p];
    while (row >= part->outputs) row -= part++->outputs;
    hd_matrix_row(context, part, row, e->out + p * e->width);
  }
}

static heed_status check_ids(heed_context *context, const hd_node *node) {
  const heed_tensor *table = node->in[TABLE], *ids = node->in[IDS];
  for (int64_t p = 0; p < hd_count(ids); p++)
    HD_REQUIRE(hd_index(ids)[p] >= 0 && hd_index(ids)[p] < table->dim[0], context, HEED_E_ARGUMENT,
               "%s: id %ld at place %lld, allowed 0 to %lld", node->operation->name, (long)hd_index(ids)[p], (long long)p,
               (long long)table->dim[0] - 1);
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  HD_TRY(check_ids(context, node));
  hd_elements_run(context, &(hd_elements){.work = node->in[TABLE]->stored ? take_stored : take,
                                          .rows = hd_count(node->in[IDS]),
                                          .width = hd_columns(node->out),
                                          .node = node,
                                          .a = hd_value(node->in[TABLE]),
                                          .out = hd_value(node->out)});
  return HEED_OK;
}

/* A piece owns columns of the table, so that it may add its part of one row after another without regard to which rows they are. */
enum { OWN_COLUMNS = 64 };

static void give_back(void *argument, int64_t piece, int worker) {
  (void)worker;
  const hd_elements *e = argument;
  const int32_t *ids = hd_index(e->node->in[IDS]);
  int64_t c = piece * OWN_COLUMNS, n = HD_MIN(e->width - c, OWN_COLUMNS);
  for (int64_t p = 0; p < e->rows; p++) {
    float *row = e->out + ids[p] * e->width + c;
    e->kernels->add(row, e->a + p * e->width + c, n, row);
  }
}

static heed_status backward(heed_context *context, const hd_node *node) {
  bool add;
  float *to = hd_gradient(node, TABLE, &add);
  if (!to) return HEED_OK;
  if (!add) hd_runs_move(context, &(hd_runs){.to = to, .rows = 1, .width = hd_count(node->in[TABLE])});
  hd_elements e = {.kernels = hd_kernels_of(context),
                   .rows = hd_count(node->in[IDS]),
                   .width = hd_columns(node->out),
                   .node = node,
                   .a = hd_upstream(node),
                   .out = to};
  hd_parallel(context, hd_ceil_div(e.width, OWN_COLUMNS), give_back, &e);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const int64_t width = hd_columns(node->out);
  for (int64_t i = 0; i < hd_count(node->out); i++) out[i] = in[TABLE][hd_index(node->in[IDS])[i / width] * width + i % width];
}

static void sample(hd_sample *s) {
  s->inputs = 2;
  s->in[TABLE] = (hd_sample_input){.ndim = 2, .dim = {hd_sample_pick(s, 1, 40), hd_sample_pick(s, 1, 150)}};
  if (hd_sample_pick(s, 0, 2) == 0) hd_sample_store(s, &s->in[TABLE]);
  hd_sample_shape(s, &s->in[IDS], 60);
  s->in[IDS].below = s->in[TABLE].dim[0];
}

HD_OPERATION(embedding, .checks_types = true, .output_unread = true, .stored = 1 << TABLE);
HD_OPERATION(gather, .checks_types = true, .output_unread = true, .stored = 1 << TABLE);

heed_tensor *heed_tape_embedding(heed_tape *tape, heed_tensor *ids, heed_tensor *table) {
  return hd_tape_apply(tape, &hd_op_embedding, 2, (heed_tensor *[]){table, ids}, 2, NULL);
}

heed_tensor *heed_tape_gather(heed_tape *tape, heed_tensor *x, heed_tensor *rows) {
  return hd_tape_apply(tape, &hd_op_gather, 2, (heed_tensor *[]){x, rows}, 2, NULL);
}
