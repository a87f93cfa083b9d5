/* attend.c: `heed attend`: exact attention on arrays from files. The fused kernel never stores the matrix of weights; --weights asks for it by name. */
#include "attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef attend_values values;
typedef attend_job job;

/* A gradient is shaped like its input and written to PREFIX-name.npy; one whose input is not given is left out. */
static const struct {
  const char *name;
  size_t input, gradient; /* in job */
  size_t asked;           /* in heed_attention_gradients */
  bool exact;             /* never stored in halves */
} gradients[] = {
#define GRADIENT(name, exact)                                                                                                              \
  { #name, offsetof(job, name), offsetof(job, d##name), offsetof(heed_attention_gradients, d##name), exact }
    GRADIENT(q, false),    GRADIENT(k, false), GRADIENT(v, false), GRADIENT(bias, false),
    GRADIENT(sink, false), GRADIENT(wq, true), GRADIENT(wk, true), GRADIENT(wv, true),
#undef GRADIENT
};
enum { GRADIENT_COUNT = sizeof gradients / sizeof gradients[0] };

static array *array_at(job *j, size_t offset) { return (array *)((char *)j + offset); }

static void job_free(job *j) {
  array *all[] = {&j->q,  &j->k,  &j->v,  &j->mask, &j->bias, &j->alibi, &j->sink,
                  &j->wq, &j->wk, &j->wv, &j->dout, &j->out,  &j->lse,   &j->weights};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) array_free(all[i]);
  for (int i = 0; i < GRADIENT_COUNT; i++) array_free(array_at(j, gradients[i].gradient));
  free(j->key_lengths);
  free(j->query_documents);
  free(j->key_documents);
  heed_pattern_free(j->pattern);
  heed_context_free(j->context);
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

static int make_gradients(job *j) {
  int code = EXIT_OK;
  for (int i = 0; i < GRADIENT_COUNT; i++) {
    const heed_view *input = &array_at(j, gradients[i].input)->view;
    heed_type type = j->reference || !gradients[i].exact ? j->stored : HEED_F32;
    if (input->data) TRY(array_new("a gradient", type, input->ndim, input->dim, array_at(j, gradients[i].gradient)));
  }
done:
  return code;
}

/* The outputs have q's leading dimensions: out [..., n, dv], lse [..., n], weights [..., n, m]. */
static int make_outputs(job *j, const values *v) {
  const heed_view *q = &j->q.view;
  heed_type exact = j->reference ? HEED_F64 : HEED_F32;
  int rank = q->ndim, code;
  int64_t dim[HEED_MAX_DIM];
  memcpy(dim, q->dim, sizeof dim);
  if (v->lse || v->grads) TRY(array_new("lse", exact, rank - 1, dim, &j->lse));
  dim[rank - 1] = j->v.view.dim[rank - 1];
  TRY(array_new("out", j->stored, rank, dim, &j->out));
  dim[rank - 1] = j->k.view.dim[rank - 2];
  if (v->weights) TRY(array_new("weights (the whole n × m matrix of every head)", exact, rank, dim, &j->weights));
  if (v->grads) TRY(make_gradients(j));
done:
  return code;
}

/* ---- computing ----------------------------------------------------------------------------------------------------------- */

#define TAPS "weights|scores|capped|biased|dropped" /* in the order of heed_tap */

static int compute_weights(job *j, const char *tap) {
  heed_attention_rows asked = {.size = sizeof asked, .tap = (heed_tap)choice_place(TAPS, tap)};
  return check(j->context, (j->reference ? heed_attention_weights_reference : heed_attention_weights)(
                               j->context, &j->attention, &j->q.view, &j->k.view, &asked, &j->weights.view));
}

static int compute_gradients(job *j) {
  heed_attention_gradients asked = {.size = sizeof asked};
  for (int i = 0; i < GRADIENT_COUNT; i++) {
    const array *gradient = array_at(j, gradients[i].gradient);
    if (gradient->view.data) *(const heed_view **)((char *)&asked + gradients[i].asked) = &gradient->view;
  }
  if (j->reference)
    return check(j->context,
                 heed_attention_backward_reference(j->context, &j->attention, &j->q.view, &j->k.view, &j->v.view, &j->dout.view, &asked));
  return check(j->context, heed_attention_backward(j->context, &j->attention, &j->q.view, &j->k.view, &j->v.view, &j->out.view,
                                                   &j->lse.view, &j->dout.view, &asked));
}

static int compute(job *j, const values *v) {
  heed_attention_extras extras = {.size = sizeof extras, .lse = j->lse.view.data ? &j->lse.view : NULL};
  int code;
  TRY(check(j->context, (j->reference ? heed_attention_reference : heed_attention_forward)(j->context, &j->attention, &j->q.view,
                                                                                           &j->k.view, &j->v.view, &j->out.view, &extras)));
  if (v->weights) TRY(compute_weights(j, v->tap));
  if (v->grads) TRY(compute_gradients(j));
done:
  return code;
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static int save_gradients(job *j, const char *prefix) {
  size_t size = strlen(prefix) + 32;
  char *path = allocate("a file name", (int64_t)size, 1);
  int code = EXIT_OK;
  for (int i = 0; i < GRADIENT_COUNT && code == EXIT_OK; i++) {
    const array *gradient = array_at(j, gradients[i].gradient);
    snprintf(path, size, "%s-%s.npy", prefix, gradients[i].name);
    if (gradient->view.data) code = array_save(j->context, path, &gradient->view);
  }
  free(path);
  return code;
}

static int check_options(const values *v) {
  if (!v->output && !v->weights && !v->lse && !v->grads)
    return usage_error("attend: nothing to write (give -o, --weights, --lse or --grads a file)");
  if (v->grads && !v->grad_out) return usage_error("--grads: needs --grad-out, the gradient of the loss with respect to the result");
  if (v->grad_out && !v->grads) return usage_error("--grad-out: needs --grads, the beginning of the names of the files to write");
  if (v->type && v->reference) return usage_error("--type: contradicts --reference, whose results are f64 (got %s)", v->type);
  return EXIT_OK;
}

static heed_type stored_type(const values *v) {
  if (v->reference) return HEED_F64;
  return !v->type || strcmp(v->type, "f32") == 0 ? HEED_F32 : strcmp(v->type, "f16") == 0 ? HEED_F16 : HEED_BF16;
}

static int run(const void *pointer) {
  const values *v = pointer;
  job j = {.reference = v->reference, .stored = stored_type(v)};
  int code;
  TRY(check_options(v));
  TRY(attend_describe(v, &j));
  TRY(context_open(&v->common, &j.context));
  TRY(attend_load(v, &j));
  TRY(make_outputs(&j, v));
  TRY(compute(&j, v));
  if (v->output) TRY(array_save(j.context, v->output, &j.out.view));
  if (v->weights) TRY(array_save(j.context, v->weights, &j.weights.view));
  if (v->lse) TRY(array_save(j.context, v->lse, &j.lse.view));
  if (v->grads) TRY(save_gradients(&j, v->grads));
done:
  job_free(&j);
  return code;
}

static const option options[] = {
    OPTION("q", 0, TEXT, "FILE", q, "queries [B,H,n,d], [H,n,d] or [n,d] (.npy, or file.npz:name)", .required = true),
    OPTION("k", 0, TEXT, "FILE", k, "keys, same rank; H may be a multiple of their heads", .required = true),
    OPTION("v", 0, TEXT, "FILE", v, "values, as the keys; another width is fine", .required = true),
    OPTION("output", 'o', TEXT, "FILE", output, "the result (.npy; - is standard output)"),
    OPTION("weights", 0, TEXT, "FILE", weights, "the attention weights, which a plain run never stores (f32; f64 with --reference)"),
    OPTION("tap", 0, CHOICE, "WHERE", tap,
           "what --weights writes: weights, scores before or after the softcap, or with bias, weights after dropout", .choices = TAPS),
    OPTION("lse", 0, TEXT, "FILE", lse, "log-sum-exp of every row's scores"),
    OPTION("grad-out", 0, TEXT, "FILE", grad_out, "the gradient of a loss with respect to the result, shaped like it"),
    OPTION("grads", 0, TEXT, "PREFIX", grads,
           "write that loss's gradients to PREFIX-q.npy, -k, -v, and -bias, -sink, -wq, -wk, -wv where these are given"),
    OPTION("causal", 0, TEXT, "ALIGN", causal,
           "query i sees keys up to its own position: top-left (i), bottom-right (i + m - n) or a number N (i + N)"),
    OPTION("window", 0, TEXT, "L,R", window, "see L keys before and R after the own position; an empty side is unlimited"),
    OPTION("align", 0, TEXT, "ALIGN", align, "the same alignments, for --window and --pattern without --causal"),
    OPTION("pattern", 0, TEXT, "PATTERN", pattern,
           "who may look at whom, such as window:256+global:4 (kinds: `heed pattern --help`); positions are those of --causal or --align"),
    OPTION("key-lengths", 0, TEXT, "LIST", key_lengths, "how many keys of each batch entry count: numbers such as 5,9, or a file of them"),
    OPTION("mask", 0, TEXT, "FILE", mask, "booleans [n,m], [H,n,m] or [B,H,n,m]; true may look; any dimension may be 1"),
    OPTION("bias", 0, TEXT, "FILE", bias, "numbers added to the scores, shaped as a mask"),
    OPTION("alibi", 0, TEXT, "LIST", alibi,
           "lower scores by slope * distance: a slope a head, a file of them, or auto (powers of 2^(-8/H))"),
    OPTION("sink", 0, TEXT, "LIST", sink, "a score a head that joins every row's sum and adds nothing: numbers, or a file of them"),
    OPTION("documents", 0, TEXT, "LIST", documents, "lengths of documents packed one after another; no query sees another document"),
    OPTION("key-documents", 0, TEXT, "LIST", key_documents, "their lengths in keys, where these differ"),
    OPTION("score", 0, CHOICE, "KIND", score, "how a query and a key make a score: q k', wv' tanh(wq q + wk k), q' wq k",
           .choices = "dot|additive|bilinear"),
    OPTION("wq", 0, TEXT, "FILE", wq, "weights of an additive score [h,d_q], of a bilinear one [d_q,d_k]"),
    OPTION("wk", 0, TEXT, "FILE", wk, "weights of an additive score [h,d_k]"),
    OPTION("wv", 0, TEXT, "FILE", wv, "weights of an additive score [h]"),
    OPTION("scale", 0, NUMBER, "S", scale, "factor of the scores (default 1/sqrt(d), 1 unless --score is dot)"),
    OPTION("softcap", 0, NUMBER, "C", softcap, "squash scores to C tanh(score / C)", .low = 0, .high = 1e30),
    OPTION("dropout", 0, NUMBER, "P", dropout, "drop each weight with this probability, by --seed and --stream", .low = 0, .high = 1),
    OPTION("stream", 0, WHOLE, "N", stream, "which of a seed's streams of dropout (layers take different ones)", .low = 0,
           .high = 4294967295.0),
    OPTION("type", 0, CHOICE, "TYPE", type, "convert the arrays to it; results are stored in it (.npy keeps bf16 as f32)",
           .choices = "f32|f16|bf16"),
    OPTION("reference", 0, FLAG, NULL, reference, "the naive formula in double precision: slow, the oracle; all results f64"),
    {0},
};

const command command_attend = {
    .name = "attend",
    .summary = "run exact attention on arrays",
    .about = "Computes softmax(scale * q k' + bias over the visible keys) v on arrays, without storing the matrix of weights. "
             "Arrays are f16, bf16, f32 or f64; arithmetic is f32, and so are results unless --type says otherwise (all f64 with "
             "--reference). The bits of a row depend on nothing but that row.",
    .examples = "  heed attend --q q.npy --k k.npy --v v.npy --causal bottom-right -o out.npy\n"
                "  heed attend --q a.npz:q --k a.npz:k --v a.npz:v --window 128,0 --align top-left -o out.npy --lse lse.npy\n"
                "  heed attend --q q.npy --k k.npy --v v.npy --grad-out g.npy --grads grad\n"
                "  heed attend --q q.npy --k k.npy --v v.npy --causal top-left --pattern strided:64 -o out.npy\n"
                "  heed attend --q q.npy --k k.npy --v v.npy --causal top-left --documents 100,28 --alibi auto -o out.npy\n"
                "  heed attend --q q.npy --k k.npy --v v.npy --score additive --wq wq.npy --wk wk.npy --wv wv.npy -o out.npy\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.scale = NAN, .tap = "weights", .score = "dot"},
    .run = run,
};
