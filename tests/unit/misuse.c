/* Every public function of heed.h with every kind of wrong argument, from tables: each is refused with its named status and one sentence, and no byte of any array
 * changes. attention_refusals.c holds what the sentences say. */
#include "attention_sample.h"

static heed_context *context;

enum {
  Q,
  K,
  V,
  OUT,
  LSE,
  DOUT,
  DQ,
  DK,
  DV,
  DBIAS,
  DSINK,
  WEIGHTS,
  ATTEND,
  BIAS,
  SINK,
  ALIBI,
  WQ,
  WK,
  WV,
  DWQ,
  DWK,
  DWV,
  GEMM_A,
  GEMM_B,
  GEMM_C,
  GEMM_BIAS,
  ROPE_X,
  ROPE_OUT,
  ROPE_POSITIONS,
  ROPE_FACTORS,
  X,
  W_Q,
  W_K,
  W_V,
  W_O,
  B_Q,
  B_O,
  Y,
  SAVED,
  DY,
  DX,
  DW_Q,
  DW_O,
  DB_O,
  VIEWS
};
enum { B = 2, H = 4, KV = 2, N = 5, M = 6, D = 8, W = 3, HIDDEN = 7, OUTPUTS_OF_LAYER = 6, ROOM = 2 * B * H * N * D };

/* One call of anything: an array for each view, and every description. */
typedef struct call {
  heed_view view[VIEWS];
  const heed_view *given[VIEWS];
  heed_attention a;
  heed_score score;
  heed_attention_extras extras;
  heed_attention_gradients gradients;
  heed_attention_rows rows;
  heed_gemm_form form;
  heed_rope rope;
  heed_multi_head layer;
  heed_multi_head_extras kept;
  heed_multi_head_gradients slopes;
  heed_plan plan;
  int64_t list[4], lengths[B], bounds[8];
  bool no_context, no_extras, no_gradients, no_plan;
  double data[VIEWS][ROOM]; /* room for a misplaced start, and aligned for every type */
} call;

static const struct shape {
  const char *name;
  int ndim;
  int64_t dim[4];
} shapes[VIEWS] = {
    [Q] = {"q", 4, {B, H, N, D}},
    [K] = {"k", 4, {B, KV, M, D}},
    [V] = {"v", 4, {B, KV, M, W}},
    [OUT] = {"out", 4, {B, H, N, W}},
    [LSE] = {"lse", 3, {B, H, N}},
    [DOUT] = {"dout", 4, {B, H, N, W}},
    [DQ] = {"dq", 4, {B, H, N, D}},
    [DK] = {"dk", 4, {B, KV, M, D}},
    [DV] = {"dv", 4, {B, KV, M, W}},
    [DBIAS] = {"dbias", 4, {B, H, N, M}},
    [DSINK] = {"dsink", 1, {H}},
    [WEIGHTS] = {"weights", 4, {B, H, N, M}},
    [ATTEND] = {"attend", 4, {B, H, N, M}},
    [BIAS] = {"bias", 4, {B, H, N, M}},
    [SINK] = {"sink", 1, {H}},
    [ALIBI] = {"alibi", 1, {H}},
    [WQ] = {"wq", 2, {HIDDEN, D}},
    [WK] = {"wk", 2, {HIDDEN, D}},
    [WV] = {"wv", 1, {HIDDEN}},
    [DWQ] = {"dwq", 2, {HIDDEN, D}},
    [DWK] = {"dwk", 2, {HIDDEN, D}},
    [DWV] = {"dwv", 1, {HIDDEN}},
    [GEMM_A] = {"a", 3, {B, N, D}},
    [GEMM_B] = {"b", 3, {B, D, M}},
    [GEMM_C] = {"c", 3, {B, N, M}},
    [GEMM_BIAS] = {"bias", 1, {M}},
    [ROPE_X] = {"x", 4, {B, H, N, D}},
    [ROPE_OUT] = {"out", 4, {B, H, N, D}},
    [ROPE_POSITIONS] = {"positions", 2, {B, N}},
    [ROPE_FACTORS] = {"factors", 1, {D / 2}},
    [X] = {"x_query", 3, {B, N, D}},
    [W_Q] = {"w_q", 2, {D, D}},
    [W_K] = {"w_k", 2, {D, D}},
    [W_V] = {"w_v", 2, {D, D}},
    [W_O] = {"w_o", 2, {OUTPUTS_OF_LAYER, D}},
    [B_Q] = {"b_q", 1, {D}},
    [B_O] = {"b_o", 1, {OUTPUTS_OF_LAYER}},
    [Y] = {"out", 3, {B, N, OUTPUTS_OF_LAYER}},
    [SAVED] = {"saved", 1, {2 * ROOM}},
    [DY] = {"dout", 3, {B, N, OUTPUTS_OF_LAYER}},
    [DX] = {"dx_query", 3, {B, N, D}},
    [DW_Q] = {"dw_q", 2, {D, D}},
    [DW_O] = {"dw_o", 2, {OUTPUTS_OF_LAYER, D}},
    [DB_O] = {"db_o", 1, {OUTPUTS_OF_LAYER}},
};

/* Whether calls are made with a score of their own: everything is tried without and with one. */
static bool scored;

static void describe(call *c) {
  c->a.size = sizeof c->a;
  c->a.attend = c->given[ATTEND];
  c->a.bias = c->given[BIAS];
  c->a.sink = c->given[SINK];
  c->a.alibi = c->given[ALIBI];
  c->extras = (heed_attention_extras){.size = sizeof c->extras, .lse = c->given[LSE]};
  c->gradients = (heed_attention_gradients){.size = sizeof c->gradients,
                                            .dq = c->given[DQ],
                                            .dk = c->given[DK],
                                            .dv = c->given[DV],
                                            .dbias = c->given[DBIAS],
                                            .dsink = c->given[DSINK]};
  if (scored) {
    c->score =
        (heed_score){.size = sizeof c->score, .kind = HEED_SCORE_ADDITIVE, .wq = c->given[WQ], .wk = c->given[WK], .wv = c->given[WV]};
    c->a.score = &c->score;
    c->gradients.dwq = c->given[DWQ];
    c->gradients.dwk = c->given[DWK];
    c->gradients.dwv = c->given[DWV];
  }
  c->rows.size = sizeof c->rows;
  c->form.size = sizeof c->form;
  c->form.bias = c->given[GEMM_BIAS];
  c->plan.size = sizeof c->plan;
  c->rope = (heed_rope){.size = sizeof c->rope, .positions = c->given[ROPE_POSITIONS], .factors = c->given[ROPE_FACTORS]};
  c->layer = (heed_multi_head){.size = sizeof c->layer,
                               .heads = H,
                               .w_q = c->given[W_Q],
                               .w_k = c->given[W_K],
                               .w_v = c->given[W_V],
                               .w_o = c->given[W_O],
                               .b_q = c->given[B_Q],
                               .b_o = c->given[B_O]};
  c->kept = (heed_multi_head_extras){.size = sizeof c->kept, .saved = c->given[SAVED]};
  c->slopes = (heed_multi_head_gradients){
      .size = sizeof c->slopes, .dx_query = c->given[DX], .dw_q = c->given[DW_Q], .dw_o = c->given[DW_O], .db_o = c->given[DB_O]};
}

static void legal(call *c) {
  memset(c, 0, sizeof *c);
  for (int i = 0; i < VIEWS; i++) {
    c->view[i] = heed_view_of(c->data[i],
                              i == ATTEND           ? HEED_BOOL
                              : i == ROPE_POSITIONS ? HEED_I32
                                                    : HEED_F32,
                              shapes[i].ndim, shapes[i].dim);
    c->given[i] = &c->view[i];
    float *numbers = (float *)c->data[i];
    for (int j = 0; j < 2 * ROOM; j++) numbers[j] = (float)(j % 7 - 3);
  }
  memset(c->data[ATTEND], 1, sizeof c->data[ATTEND]);
  memset(c->data[ROPE_POSITIONS], 0, sizeof c->data[ROPE_POSITIONS]);
  for (int j = 0; j < D / 2; j++) ((float *)c->data[ROPE_FACTORS])[j] = 1;
  c->a = (heed_attention){.align = HEED_ALIGN_START}; // for ALiBi
  describe(c);
}

/* ---- the functions -------------------------------------------------------------------------------------------------------------------- */

static heed_context *context_of(const call *c) { return c->no_context ? NULL : context; }
static const heed_attention_extras *extras_of(const call *c) { return c->no_extras ? NULL : &c->extras; }
static const heed_attention_gradients *gradients_of(const call *c) { return c->no_gradients ? NULL : &c->gradients; }

static heed_status forward(call *c) {
  return heed_attention_forward(context_of(c), &c->a, c->given[Q], c->given[K], c->given[V], c->given[OUT], extras_of(c));
}
static heed_status reference(call *c) {
  return heed_attention_reference(context_of(c), &c->a, c->given[Q], c->given[K], c->given[V], c->given[OUT], extras_of(c));
}
static heed_status backward(call *c) {
  return heed_attention_backward(context_of(c), &c->a, c->given[Q], c->given[K], c->given[V], c->given[OUT], c->given[LSE], c->given[DOUT],
                                 gradients_of(c));
}
static heed_status backward_reference(call *c) {
  return heed_attention_backward_reference(context_of(c), &c->a, c->given[Q], c->given[K], c->given[V], c->given[DOUT], gradients_of(c));
}
static heed_status weights(call *c) {
  return heed_attention_weights(context_of(c), &c->a, c->given[Q], c->given[K], &c->rows, c->given[WEIGHTS]);
}
static heed_status weights_reference(call *c) {
  return heed_attention_weights_reference(context_of(c), &c->a, c->given[Q], c->given[K], &c->rows, c->given[WEIGHTS]);
}
static heed_status explain_plan(call *c) {
  return heed_attention_explain_plan(context_of(c), &c->a, c->given[Q], c->given[K], c->given[V], c->no_plan ? NULL : &c->plan);
}
static heed_status gemm(call *c) { return heed_gemm(context_of(c), &c->form, c->given[GEMM_A], c->given[GEMM_B], c->given[GEMM_C]); }

static heed_status rope(call *c) { return heed_rope_apply(context_of(c), &c->rope, c->given[ROPE_X], c->given[ROPE_OUT]); }
static heed_status rope_reference(call *c) { return heed_rope_reference(context_of(c), &c->rope, c->given[ROPE_X], c->given[ROPE_OUT]); }
static heed_status layer(call *c) {
  return heed_multi_head_forward(context_of(c), &c->layer, c->given[X], NULL, NULL, c->given[Y], &c->kept);
}
static heed_status layer_backward(call *c) {
  return heed_multi_head_backward(context_of(c), &c->layer, c->given[X], NULL, NULL, c->given[SAVED], c->given[DY], &c->slopes);
}
static heed_status layer_reference(call *c) {
  return heed_multi_head_reference(context_of(c), &c->layer, c->given[X], NULL, NULL, c->given[Y]);
}
static heed_status layer_backward_reference(call *c) {
  return heed_multi_head_backward_reference(context_of(c), &c->layer, c->given[X], NULL, NULL, c->given[DY], &c->slopes);
}

#define BIT(view)       ((uint64_t)1 << (view))
#define TERMS           (BIT(ATTEND) | BIT(BIAS) | BIT(SINK) | BIT(ALIBI))
#define LAYERS          (BIT(X) | BIT(W_Q) | BIT(W_K) | BIT(W_V) | BIT(W_O) | BIT(B_Q) | BIT(B_O))
#define LAYER_GRADIENTS (BIT(DX) | BIT(DW_Q) | BIT(DW_O) | BIT(DB_O))
#define DERIVED         (BIT(DQ) | BIT(DK) | BIT(DV) | BIT(DBIAS) | BIT(DSINK))
enum { ATTENTION = 1, EXTRAS = 2, GRADIENTS = 4, ROWS = 8, PLAN = 16, FORM = 32, ROPE = 64, LAYER = 128 };

static const struct function {
  const char *name;
  heed_status (*run)(call *c);
  uint64_t inputs, outputs, optional; /* views, as bits; optional ones may be NULL */
  int parts;                          /* descriptions that it takes */
} functions[] = {
    {"heed_attention_forward", forward, BIT(Q) | BIT(K) | BIT(V) | TERMS, BIT(OUT) | BIT(LSE), BIT(LSE) | TERMS, ATTENTION | EXTRAS},
    {"heed_attention_reference", reference, BIT(Q) | BIT(K) | BIT(V) | TERMS, BIT(OUT) | BIT(LSE), BIT(LSE) | TERMS, ATTENTION | EXTRAS},
    {"heed_attention_backward", backward, BIT(Q) | BIT(K) | BIT(V) | BIT(OUT) | BIT(LSE) | BIT(DOUT) | TERMS, DERIVED, DERIVED | TERMS,
     ATTENTION | GRADIENTS},
    {"heed_attention_backward_reference", backward_reference, BIT(Q) | BIT(K) | BIT(V) | BIT(DOUT) | TERMS, DERIVED, DERIVED | TERMS,
     ATTENTION | GRADIENTS},
    {"heed_attention_weights", weights, BIT(Q) | BIT(K) | TERMS, BIT(WEIGHTS), TERMS, ATTENTION | ROWS},
    {"heed_attention_weights_reference", weights_reference, BIT(Q) | BIT(K) | TERMS, BIT(WEIGHTS), TERMS, ATTENTION | ROWS},
    {"heed_attention_explain_plan", explain_plan, BIT(Q) | BIT(K) | BIT(V) | TERMS, 0, TERMS, ATTENTION | PLAN},
    {"heed_gemm", gemm, BIT(GEMM_A) | BIT(GEMM_B) | BIT(GEMM_BIAS), BIT(GEMM_C), BIT(GEMM_BIAS), FORM},
    {"heed_rope_apply", rope, BIT(ROPE_X) | BIT(ROPE_POSITIONS) | BIT(ROPE_FACTORS), BIT(ROPE_OUT), BIT(ROPE_POSITIONS) | BIT(ROPE_FACTORS),
     ROPE},
    {"heed_rope_reference", rope_reference, BIT(ROPE_X) | BIT(ROPE_POSITIONS) | BIT(ROPE_FACTORS), BIT(ROPE_OUT),
     BIT(ROPE_POSITIONS) | BIT(ROPE_FACTORS), ROPE},
    {"heed_multi_head_forward", layer, LAYERS, BIT(Y) | BIT(SAVED), BIT(B_Q) | BIT(B_O) | BIT(SAVED), LAYER},
    {"heed_multi_head_backward", layer_backward, LAYERS | BIT(SAVED) | BIT(DY), LAYER_GRADIENTS, BIT(B_Q) | BIT(B_O) | LAYER_GRADIENTS,
     LAYER},
    {"heed_multi_head_reference", layer_reference, LAYERS, BIT(Y), BIT(B_Q) | BIT(B_O), LAYER},
    {"heed_multi_head_backward_reference", layer_backward_reference, LAYERS | BIT(DY), LAYER_GRADIENTS,
     BIT(B_Q) | BIT(B_O) | LAYER_GRADIENTS, LAYER},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static uint64_t inputs_of(const struct function *f) {
  return f->inputs | (scored && f->parts & ATTENTION ? BIT(WQ) | BIT(WK) | BIT(WV) : 0);
}
static uint64_t outputs_of(const struct function *f) {
  return f->outputs | (scored && f->parts & GRADIENTS ? BIT(DWQ) | BIT(DWK) | BIT(DWV) : 0);
}
static uint64_t optional_of(const struct function *f) { return f->optional | (f->parts & GRADIENTS ? BIT(DWQ) | BIT(DWK) | BIT(DWV) : 0); }

/* The call as it stands returns that status, explains itself, and changes no byte of any array; then it is legal again. */
static void refused_as_it_stands(const struct function *f, call *c, heed_status want, const char *what) {
  static call before;
  memcpy(&before, c, sizeof before);
  heed_status got = f->run(c);
  if (got != want)
    fail_msg("%s, %s: %s where %s was due (%s)", f->name, what, heed_status_name(got), heed_status_name(want), heed_error(context));
  if (!c->no_context && !*heed_error(context)) fail_msg("%s, %s: refused without a word", f->name, what);
  if (memcmp(&before, c, sizeof before) != 0) fail_msg("%s, %s: refused, but something changed", f->name, what);
  legal(c);
}

/* The same after a change of views, which the descriptions must be told of. */
static void refused(const struct function *f, call *c, heed_status want, const char *what) {
  describe(c);
  refused_as_it_stands(f, c, want, what);
}

static void all_are_legal_once(void) {
  static call c;
  for (int i = 0; i < FUNCTIONS; i++) {
    legal(&c);
    heed_status status = functions[i].run(&c);
    if (status != HEED_OK) fail_msg("%s: %s", functions[i].name, heed_error(context));
  }
}

static void all_are_legal(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) scored = i, all_are_legal_once();
}

/* ---- wrong views ------------------------------------------------------------------------------------------------------------------------ */

static void wrong_type(call *c, int v) { c->view[v].type = v == ATTEND ? HEED_I32 : HEED_BOOL; }
static void unknown_type(call *c, int v) { c->view[v].type = (heed_type)42; }
static void negative_type(call *c, int v) { c->view[v].type = (heed_type)-1; }
static void null_data(call *c, int v) { c->view[v].data = NULL; }
static void null_view(call *c, int v) { c->given[v] = NULL; }
static void rank_zero(call *c, int v) { c->view[v].ndim = 0; }
static void rank_negative(call *c, int v) { c->view[v].ndim = -1; }
static void rank_seven(call *c, int v) { c->view[v].ndim = 7; }
static void dimension_negative(call *c, int v) { c->view[v].dim[0] = -1; }
static void count_overflows(call *c, int v) {
  c->view[v].ndim = 3;
  c->view[v].dim[0] = c->view[v].dim[1] = c->view[v].dim[2] = (int64_t)1 << 40;
  memset(c->view[v].stride, 0, sizeof c->view[v].stride);
}
static void strides_overflow(call *c, int v) { c->view[v].stride[0] = INT64_MAX; }
static void strides_overflow_below(call *c, int v) { c->view[v].stride[0] = INT64_MIN; }
static void misaligned(call *c, int v) { c->view[v].data = (char *)c->view[v].data + 1; }
static void wrong_last(call *c, int v) { c->view[v].dim[c->view[v].ndim - 1]++; }
static void wrong_first(call *c, int v) { c->view[v].dim[0]++; }
static void shares_elements(call *c, int v) { c->view[v].stride[0] = 0; }
static void shares_neighbours(call *c, int v) { c->view[v].stride[c->view[v].ndim - 2] = 1; }

enum { REQUIRED = 1, OUTPUTS = 2, BYTES = 4, ROWS_OF_OUTPUTS = 8 };

static const struct mistake {
  const char *name;
  void (*make)(call *c, int view);
  heed_status status;
  int only; /* REQUIRED: not where NULL is legal; OUTPUTS: outputs only, ROWS_OF_OUTPUTS: those with rows; BYTES: not for types of one byte */
} mistakes[] = {
    {"of a wrong type", wrong_type, HEED_E_TYPE, 0},
    {"of an unknown type", unknown_type, HEED_E_TYPE, 0},
    {"of a negative type", negative_type, HEED_E_TYPE, 0},
    {"without data", null_data, HEED_E_ARGUMENT, 0},
    {"null", null_view, HEED_E_ARGUMENT, REQUIRED},
    {"of rank 0", rank_zero, HEED_E_SHAPE, 0},
    {"of rank -1", rank_negative, HEED_E_SHAPE, 0},
    {"of rank 7", rank_seven, HEED_E_SHAPE, 0},
    {"with a negative dimension", dimension_negative, HEED_E_SHAPE, 0},
    {"of 2^120 elements", count_overflows, HEED_E_OVERFLOW, 0},
    {"with strides beyond 64 bits", strides_overflow, HEED_E_OVERFLOW, 0},
    {"with strides below 64 bits", strides_overflow_below, HEED_E_OVERFLOW, 0},
    {"at an odd address", misaligned, HEED_E_LAYOUT, BYTES},
    {"too long in the last dimension", wrong_last, HEED_E_SHAPE, 0},
    {"too long in the first dimension", wrong_first, HEED_E_SHAPE, 0},
    {"whose elements share memory", shares_elements, HEED_E_LAYOUT, OUTPUTS},
    {"whose rows share memory", shares_neighbours, HEED_E_LAYOUT, ROWS_OF_OUTPUTS},
};

static void wrong_views_once(void) {
  static call c;
  legal(&c);
  for (int f = 0; f < FUNCTIONS; f++)
    for (int v = 0; v < VIEWS; v++)
      for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
        const struct function *function = &functions[f];
        const struct mistake *mistake = &mistakes[m];
        if (!((inputs_of(function) | outputs_of(function)) & BIT(v))) continue;
        if (mistake->only == REQUIRED && optional_of(function) & BIT(v)) continue;
        if (mistake->only == OUTPUTS && !(outputs_of(function) & BIT(v))) continue;
        if (mistake->only == ROWS_OF_OUTPUTS && (!(outputs_of(function) & BIT(v)) || c.view[v].ndim < 2)) continue;
        if (mistake->only == BYTES && v == ATTEND) continue;
        if ((mistake->make == wrong_last || mistake->make == wrong_first) && v == SAVED) continue; // as much as it needs, or more
        if (mistake->make == wrong_last && v == V && function->parts & PLAN) continue; // nothing there has the width of the values
        char what[96];
        snprintf(what, sizeof what, "%s %s", shapes[v].name, mistake->name);
        mistake->make(&c, v);
        refused(function, &c, mistake->status, what);
      }
}

static void wrong_views(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) scored = i, wrong_views_once();
}

/* An output in the memory of anything else, at its start or in its midst. */
static void overlaps_once(void) {
  static call c;
  legal(&c);
  for (int f = 0; f < FUNCTIONS; f++)
    for (int v = 0; v < VIEWS; v++)
      for (int other = 0; other < VIEWS; other++)
        for (int shift = 0; shift < 2; shift++) {
          const struct function *function = &functions[f];
          if (!(outputs_of(function) & BIT(v)) || v == other || !((inputs_of(function) | outputs_of(function)) & BIT(other))) continue;
          if (v == ROPE_OUT && other == ROPE_X && !shift) continue; // in place is allowed
          char what[96];
          snprintf(what, sizeof what, "%s %s %s", shapes[v].name, shift ? "in the midst of" : "in the place of", shapes[other].name);
          c.view[v].data = (char *)c.view[other].data + (shift ? 4 : 0);
          refused(function, &c, HEED_E_OVERLAP, what);
        }
}

static void overlaps(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) scored = i, overlaps_once();
}

/* ---- wrong descriptions --------------------------------------------------------------------------------------------------------------- */

static void size_unset(call *c) { c->a.size = 0; }
static void scale_nan(call *c) { c->a.has_scale = true, c->a.scale = NAN; }
static void scale_infinite(call *c) { c->a.has_scale = true, c->a.scale = -INFINITY; }
static void softcap_negative(call *c) { c->a.softcap = -1; }
static void softcap_nan(call *c) { c->a.softcap = NAN; }
static void left_negative(call *c) { c->a.has_window_left = true, c->a.window_left = -1, c->a.align = HEED_ALIGN_START; }
static void right_negative(call *c) { c->a.has_window_right = true, c->a.window_right = INT64_MIN, c->a.align = HEED_ALIGN_START; }
static void align_unknown(call *c) { c->a.align = (heed_align)9; }
static void align_negative(call *c) { c->a.align = (heed_align)-1; }
static void align_open(call *c) { c->a.causal = true, c->a.align = HEED_ALIGN_UNSET; }
static void offset_alone(call *c) { c->a.offset = 1; }
static void offset_far(call *c) { c->a.align = HEED_ALIGN_GIVEN, c->a.offset = INT64_MAX; }
static void offsets_far(call *c) { c->a.align = HEED_ALIGN_GIVEN, c->list[1] = INT64_MIN, c->a.offsets = c->list; }
static void length_negative(call *c) { c->lengths[1] = -1, c->a.key_lengths = c->lengths; }
static void length_beyond(call *c) { c->lengths[0] = M + 1, c->a.key_lengths = c->lengths; }
static void packed(call *c, int64_t documents, const int64_t query[4], const int64_t key[4]) {
  c->a.documents = documents;
  memcpy(c->bounds, query, 4 * sizeof *query);
  memcpy(c->bounds + 4, key, 4 * sizeof *key);
  c->a.query_documents = c->bounds;
  c->a.key_documents = c->bounds + 4;
}
static void documents_negative(call *c) { packed(c, -1, (int64_t[4]){0, 2, N}, (int64_t[4]){0, 3, M}); }
static void documents_unnamed(call *c) { c->a.documents = 2; }
static void documents_begin_late(call *c) { packed(c, 2, (int64_t[4]){1, 2, N}, (int64_t[4]){0, 3, M}); }
static void documents_end_early(call *c) { packed(c, 2, (int64_t[4]){0, 2, N}, (int64_t[4]){0, 3, M - 1}); }
static void documents_fall(call *c) { packed(c, 3, (int64_t[4]){0, 4, 2, N}, (int64_t[4]){0, 3, 3, M}); }
static void documents_reach_beyond(call *c) { packed(c, 2, (int64_t[4]){0, INT64_MAX, N}, (int64_t[4]){0, 3, M}); }
static void documents_shared(call *c) {
  packed(c, 2, (int64_t[4]){0, 2, N}, (int64_t[4]){0, 3, M}), c->a.key_documents = NULL;
} // n is not m
static void dropout_negative(call *c) { c->a.dropout = -0.1; }
static void dropout_above(call *c) { c->a.dropout = 1.5; }
static void dropout_nan(call *c) { c->a.dropout = NAN; }
static void sink_of_two(call *c) { c->view[SINK].dim[0] = 2; }
static void alibi_of_rank_two(call *c) { c->view[ALIBI] = heed_view_of(c->data[ALIBI], HEED_F32, 2, (int64_t[]){1, H}); }
static void gradient_of_nothing(call *c) { c->given[BIAS] = NULL; }
static void gradient_of_no_sink(call *c) { c->given[SINK] = NULL; }
static void score_unsized(call *c) { c->score.size = 0, c->a.score = &c->score; }
static void score_unknown(call *c) { c->score = (heed_score){.size = sizeof c->score, .kind = (heed_score_kind)9}, c->a.score = &c->score; }
static void score_negative(call *c) {
  c->score = (heed_score){.size = sizeof c->score, .kind = (heed_score_kind)-1}, c->a.score = &c->score;
}
static void callback_missing(call *c) {
  c->score = (heed_score){.size = sizeof c->score, .kind = HEED_SCORE_CALLBACK}, c->a.score = &c->score;
}
static void extras_unsized(call *c) { c->extras.size = 0; }
static void gradients_unsized(call *c) { c->gradients.size = 0; }
static void gradients_missing(call *c) { c->no_gradients = true; }
static void plan_unsized(call *c) { c->plan.size = 0; }
static void plan_missing(call *c) { c->no_plan = true; }
static void rows_unsized(call *c) { c->rows.size = 0; }
static void rows_negative(call *c) { c->rows.n_rows = -1; }
static void heads_negative(call *c) { c->rows.n_heads = -1; }
static void rows_unnamed(call *c) { c->rows.n_rows = 2; }
static void heads_unnamed(call *c) { c->rows.n_heads = 2; }
static void row_beyond(call *c) { c->rows.n_rows = 1, c->list[0] = N, c->rows.rows = c->list, c->view[WEIGHTS].dim[2] = 1; }
static void row_below(call *c) { c->rows.n_rows = 1, c->list[0] = -1, c->rows.rows = c->list, c->view[WEIGHTS].dim[2] = 1; }
static void head_beyond(call *c) { c->rows.n_heads = 1, c->list[0] = H, c->rows.heads = c->list, c->view[WEIGHTS].dim[1] = 1; }
static void head_below(call *c) { c->rows.n_heads = 1, c->list[0] = INT64_MIN, c->rows.heads = c->list, c->view[WEIGHTS].dim[1] = 1; }
static void tap_unknown(call *c) { c->rows.tap = (heed_tap)77; }
static void form_unsized(call *c) { c->form.size = 0; }
static void no_context(call *c) { c->no_context = true; }

static const struct description {
  const char *name;
  void (*make)(call *c);
  heed_status status;
  int parts; /* for functions that take any of these; 0: for all */
  bool late; /* after the descriptions are filled in, which set every size */
} descriptions[] = {
    {"no context", no_context, HEED_E_ARGUMENT, 0, false},
    {"size of heed_attention unset", size_unset, HEED_E_ARGUMENT, ATTENTION, true},
    {"scale NaN", scale_nan, HEED_E_ARGUMENT, ATTENTION, false},
    {"scale infinite", scale_infinite, HEED_E_ARGUMENT, ATTENTION, false},
    {"softcap negative", softcap_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"softcap NaN", softcap_nan, HEED_E_ARGUMENT, ATTENTION, false},
    {"window_left negative", left_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"window_right negative", right_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"align unknown", align_unknown, HEED_E_ARGUMENT, ATTENTION, false},
    {"align negative", align_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"alignment left open", align_open, HEED_E_ARGUMENT, ATTENTION, false},
    {"an offset without HEED_ALIGN_GIVEN", offset_alone, HEED_E_ARGUMENT, ATTENTION, false},
    {"an offset beyond all keys", offset_far, HEED_E_ARGUMENT, ATTENTION, false},
    {"one of the offsets beyond all keys", offsets_far, HEED_E_ARGUMENT, ATTENTION, false},
    {"a negative key length", length_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"a key length beyond the keys", length_beyond, HEED_E_ARGUMENT, ATTENTION, false},
    {"a negative number of documents", documents_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"documents without their bounds", documents_unnamed, HEED_E_ARGUMENT, ATTENTION, false},
    {"documents that begin late", documents_begin_late, HEED_E_ARGUMENT, ATTENTION, false},
    {"documents that end early", documents_end_early, HEED_E_SHAPE, ATTENTION, false},
    {"documents that fall", documents_fall, HEED_E_ARGUMENT, ATTENTION, false},
    {"documents that reach beyond the queries", documents_reach_beyond, HEED_E_ARGUMENT, ATTENTION, false},
    {"documents of queries for more keys", documents_shared, HEED_E_SHAPE, ATTENTION, false},
    {"dropout below 0", dropout_negative, HEED_E_ARGUMENT, ATTENTION, false},
    {"dropout above 1", dropout_above, HEED_E_ARGUMENT, ATTENTION, false},
    {"dropout NaN", dropout_nan, HEED_E_ARGUMENT, ATTENTION, false},
    {"a sink for two of four heads", sink_of_two, HEED_E_SHAPE, ATTENTION, false},
    {"ALiBi of rank 2", alibi_of_rank_two, HEED_E_SHAPE, ATTENTION, false},
    {"the gradient of no bias", gradient_of_nothing, HEED_E_ARGUMENT, GRADIENTS, false},
    {"the gradient of no sink", gradient_of_no_sink, HEED_E_ARGUMENT, GRADIENTS, false},
    {"size of the score unset", score_unsized, HEED_E_ARGUMENT, ATTENTION, true},
    {"an unknown kind of score", score_unknown, HEED_E_ARGUMENT, ATTENTION, true},
    {"a negative kind of score", score_negative, HEED_E_ARGUMENT, ATTENTION, true},
    {"a callback without a function", callback_missing, HEED_E_ARGUMENT, ATTENTION, true},
    {"size of the extras unset", extras_unsized, HEED_E_ARGUMENT, EXTRAS, true},
    {"size of the gradients unset", gradients_unsized, HEED_E_ARGUMENT, GRADIENTS, true},
    {"no gradients", gradients_missing, HEED_E_ARGUMENT, GRADIENTS, false},
    {"size of the plan unset", plan_unsized, HEED_E_ARGUMENT, PLAN, true},
    {"no plan", plan_missing, HEED_E_ARGUMENT, PLAN, false},
    {"size of the rows unset", rows_unsized, HEED_E_ARGUMENT, ROWS, true},
    {"a negative number of rows", rows_negative, HEED_E_ARGUMENT, ROWS, false},
    {"a negative number of heads", heads_negative, HEED_E_ARGUMENT, ROWS, false},
    {"rows without their names", rows_unnamed, HEED_E_ARGUMENT, ROWS, false},
    {"heads without their names", heads_unnamed, HEED_E_ARGUMENT, ROWS, false},
    {"a row beyond the last", row_beyond, HEED_E_ARGUMENT, ROWS, false},
    {"a row below the first", row_below, HEED_E_ARGUMENT, ROWS, false},
    {"a head beyond the last", head_beyond, HEED_E_ARGUMENT, ROWS, false},
    {"a head below the first", head_below, HEED_E_ARGUMENT, ROWS, false},
    {"an unknown tap", tap_unknown, HEED_E_ARGUMENT, ROWS, false},
    {"size of the form unset", form_unsized, HEED_E_ARGUMENT, FORM, true},
};

static void wrong_descriptions_once(void) {
  static call c;
  legal(&c);
  for (int f = 0; f < FUNCTIONS; f++)
    for (size_t i = 0; i < sizeof descriptions / sizeof *descriptions; i++) {
      const struct description *d = &descriptions[i];
      if (d->parts && !(d->parts & functions[f].parts)) continue;
      d->make(&c);
      if (!d->late) describe(&c);
      refused_as_it_stands(&functions[f], &c, d->status, d->name);
    }
}

static void wrong_descriptions(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) scored = i, wrong_descriptions_once();
}

/* Shapes that contradict each other though each view is sound. */
static void shapes_that_disagree_once(void) {
  static call c;
  legal(&c);
  for (int f = 0; f < FUNCTIONS; f++) {
    if (!(functions[f].parts & ATTENTION)) continue;
    c.view[K].dim[1] = c.view[V].dim[1] = 3;
    refused(&functions[f], &c, HEED_E_SHAPE, "4 heads over 3");
    c.view[K].dim[1] = c.view[V].dim[1] = 0;
    refused(&functions[f], &c, HEED_E_SHAPE, "4 heads over 0");
    c.view[ATTEND].dim[3] = 2;
    refused(&functions[f], &c, HEED_E_SHAPE, "a mask that does not broadcast");
    c.view[BIAS].dim[2] = 2;
    refused(&functions[f], &c, HEED_E_SHAPE, "a bias that does not broadcast");
    c.view[BIAS].ndim = 1;
    refused(&functions[f], &c, HEED_E_SHAPE, "a bias of rank 1");
    c.view[ATTEND].type = HEED_F32;
    refused(&functions[f], &c, HEED_E_TYPE, "a float mask");
    c.view[BIAS].type = HEED_BOOL;
    refused(&functions[f], &c, HEED_E_TYPE, "a boolean bias");
  }
}

static void shapes_that_disagree(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) scored = i, shapes_that_disagree_once();
}

/* ---- functions without arrays ------------------------------------------------------------------------------------------------------------ */

static void *no_memory(void *user, size_t bytes, size_t alignment) {
  (void)user, (void)bytes, (void)alignment;
  return NULL;
}
static void no_release(void *user, void *memory, size_t bytes) { (void)user, (void)memory, (void)bytes; }

static void contexts(void **state) {
  (void)state;
  const struct {
    heed_options options;
    heed_status status;
  } wrong[] = {
      {{.size = 0}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_options), .threads = -1}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_options), .threads = INT32_MAX}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_options), .allocator = {.allocate = no_memory}}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_options), .allocator = {.release = no_release}}, HEED_E_ARGUMENT},
      {{.size = sizeof(heed_options), .allocator = {.allocate = no_memory, .release = no_release}}, HEED_E_MEMORY},
      {{.size = sizeof(heed_options), .level = (heed_level)99}, HEED_E_UNSUPPORTED},
      {{.size = sizeof(heed_options), .level = (heed_level)-1}, HEED_E_UNSUPPORTED},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    heed_context *made = (heed_context *)&made;
    assert_int_equal(heed_context_new(&wrong[i].options, &made), wrong[i].status);
    assert_null(made);
  }
  assert_int_equal(heed_context_new(NULL, NULL), HEED_E_ARGUMENT);
  heed_context_free(NULL);
  heed_context_set_progress(NULL, NULL, NULL);
  assert_string_equal(heed_error(NULL), "");
  assert_int_equal(heed_context_level(NULL), HEED_LEVEL_AUTO);
  assert_int_equal(heed_context_threads(NULL), 0);
}

static void names(void **state) {
  (void)state;
  const int outside[] = {-1, 1000, INT32_MIN, INT32_MAX};
  for (int i = 0; i < 4; i++) {
    assert_true(heed_status_name((heed_status)outside[i]) && *heed_status_name((heed_status)outside[i]));
    assert_true(heed_status_text((heed_status)outside[i]) && *heed_status_text((heed_status)outside[i]));
    assert_true(heed_level_name((heed_level)outside[i]) && *heed_level_name((heed_level)outside[i]));
    assert_true(heed_type_name((heed_type)outside[i]) && *heed_type_name((heed_type)outside[i]));
    assert_int_equal(heed_type_bytes((heed_type)outside[i]), 0);
    assert_false(heed_level_available((heed_level)outside[i]));
  }
  assert_int_equal(heed_level_from_name(NULL), HEED_LEVEL_AUTO);
  assert_int_equal(heed_level_from_name(""), HEED_LEVEL_AUTO);
}

static void views(void **state) {
  (void)state;
  const int64_t dim[] = {2, 3, 4, INT64_MAX, INT64_MAX, 7, 8};
  heed_view view = heed_view_of(NULL, HEED_F32, 7, dim); // the rank is refused where the view is used; here nothing may be written past it
  assert_int_equal(view.ndim, 7);
  assert_int_equal(heed_view_of(NULL, HEED_F32, -1, NULL).ndim, -1);
  view = heed_view_of(NULL, HEED_F32, 3, dim);
  const int axes[] = {-1, 3, 6, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 5; i++) {
    heed_view same = heed_view_swap(view, axes[i], 0), other = heed_view_swap(view, 0, axes[i]);
    assert_memory_equal(same.dim, view.dim, sizeof view.dim);
    assert_memory_equal(other.stride, view.stride, sizeof view.stride);
  }
}

static void machine(void **state) {
  (void)state;
  heed_machine m = {.size = sizeof m, .peak_flops = 7, .read_bytes = 7}, before = m;
  const double seconds[] = {-1, NAN, INFINITY, 1e9};
  for (int i = 0; i < 4; i++) assert_int_equal(heed_machine_measure(context, seconds[i], &m), HEED_E_ARGUMENT);
  assert_int_equal(heed_machine_measure(NULL, 0, &m), HEED_E_ARGUMENT);
  assert_int_equal(heed_machine_measure(context, 0, NULL), HEED_E_ARGUMENT);
  assert_memory_equal(&m, &before, sizeof m);
  m.size = 0;
  assert_int_equal(heed_machine_measure(context, 0, &m), HEED_E_ARGUMENT);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_are_legal),
      cmocka_unit_test(wrong_views),
      cmocka_unit_test(overlaps),
      cmocka_unit_test(wrong_descriptions),
      cmocka_unit_test(shapes_that_disagree),
      cmocka_unit_test(contexts),
      cmocka_unit_test(names),
      cmocka_unit_test(views),
      cmocka_unit_test(machine),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
