/* attend_inputs.c: from the options of `heed attend` to a description of attention and its arrays. */
#include "attend.h"
#include "pattern_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what needs no file -------------------------------------------------------------------------------------------------- */

static int set_align(const char *option_name, const char *text, heed_attention *a) {
  if (!text) return EXIT_OK;
  heed_align before = a->align;
  int64_t offset = 0;
  if (strcmp(text, "top-left") == 0) a->align = HEED_ALIGN_START;
  else if (strcmp(text, "bottom-right") == 0) a->align = HEED_ALIGN_END;
  else if (parse_whole(text, &offset)) a->align = HEED_ALIGN_GIVEN;
  else
    return usage_error("%s: unknown alignment (got %s, allowed top-left, bottom-right or the key position of query 0)", option_name, text);
  if (before != HEED_ALIGN_UNSET && (before != a->align || a->offset != offset))
    return usage_error("--align: contradicts --causal (got %s; one of them is enough)", text);
  a->offset = offset;
  return EXIT_OK;
}

/* "L,R"; an empty side is unlimited. */
static int set_window(const char *text, heed_attention *a) {
  const char *comma = text ? strchr(text, ',') : NULL;
  if (!text) return EXIT_OK;
  char left[32] = "";
  if (comma) snprintf(left, sizeof left, "%.*s", (int)(comma - text), text);
  a->has_window_left = left[0] != 0;
  a->has_window_right = comma && comma[1] != 0;
  bool ok = comma && (!a->has_window_left || (parse_whole(left, &a->window_left) && a->window_left >= 0)) &&
            (!a->has_window_right || (parse_whole(comma + 1, &a->window_right) && a->window_right >= 0));
  if (!ok)
    return usage_error(
        "--window: not two sides (got %s, allowed L,R with keys before and after the query, such as 128,0; an empty side is unlimited)",
        text);
  return EXIT_OK;
}

int attend_describe(const attend_values *v, attend_job *j) {
  heed_attention *a = &j->attention;
  int code;
  *a = (heed_attention){
      .size = sizeof *a,
      .causal = v->causal != NULL,
      .softcap = v->softcap,
      .has_scale = !isnan(v->scale),
      .scale = isnan(v->scale) ? 0 : v->scale,
      .dropout = v->dropout,
      .seed = (uint64_t)v->common.seed,
      .stream = (uint32_t)v->stream,
  };
  TRY(set_align("--causal", v->causal, a));
  TRY(set_align("--align", v->align, a));
  TRY(set_window(v->window, a));
done:
  return code;
}

/* ---- lists: written out, or the name of a file --------------------------------------------------------------------------- */

/* Copies the word up to the next comma and moves past it; false at the end of the text. */
static bool next_item(const char **at, char item[64]) {
  size_t span = strcspn(*at, ",");
  if (!**at) return false;
  snprintf(item, 64, "%.*s", (int)(span < 64 ? span : 63), *at);
  *at += span + ((*at)[span] == ',');
  return true;
}

static int64_t items_of(const char *text) {
  int64_t count = text[0] != 0;
  for (; *text; text++) count += *text == ',';
  return count;
}

/* "0.5,-1,2" as f64, or any array from a file. */
static int load_numbers(attend_job *j, const char *text, array *out) {
  int64_t count = items_of(text), i = 0;
  char item[64];
  int code = array_new("a list of numbers", HEED_F64, 1, &count, out);
  if (code != EXIT_OK) return code;
  for (const char *at = text; next_item(&at, item) && parse_number(item, (double *)out->view.data + i);) i++;
  if (i == count) return EXIT_OK;
  array_free(out);
  return array_load(j->context, text, out);
}

/* From a file: i64 or i32 [wanted], [any] if that is negative. *list is allocated. */
static int load_whole_file(attend_job *j, const char *path, int64_t wanted, int64_t **list, int64_t *count) {
  array numbers = {0};
  const heed_view *view = &numbers.view;
  char shape[SHAPE_MAX], allowed[32] = "N";
  int code = array_load(j->context, path, &numbers);
  if (code != EXIT_OK) return code;
  if (wanted >= 0) snprintf(allowed, sizeof allowed, "%lld", (long long)wanted);
  if ((view->type != HEED_I64 && view->type != HEED_I32) || view->ndim != 1 || (wanted >= 0 && view->dim[0] != wanted)) {
    code = error_of(EXIT_FAILED, "%s: not a list of lengths (got %s %s, allowed i64 or i32 [%s])", path, heed_type_name(view->type),
                    shape_text(view->ndim, view->dim, shape), allowed);
  } else {
    *count = view->dim[0];
    *list = allocate("lengths", *count, sizeof **list);
    for (int64_t i = 0, step = view->stride[0]; i < *count; i++)
      (*list)[i] = view->type == HEED_I64 ? ((const int64_t *)view->data)[i * step] : ((const int32_t *)view->data)[i * step];
  }
  array_free(&numbers);
  return code;
}

/* "3,5,4", or a file. */
static int load_wholes(attend_job *j, const char *option_name, const char *text, int64_t wanted, int64_t **list, int64_t *count) {
  int64_t i = 0;
  char item[64];
  *count = items_of(text);
  *list = allocate("lengths", *count, sizeof **list);
  for (const char *at = text; next_item(&at, item) && parse_whole(item, *list + i);) i++;
  if (i < *count || *count == 0) {
    free(*list);
    *list = NULL;
    return load_whole_file(j, text, wanted, list, count);
  }
  if (wanted >= 0 && *count != wanted)
    return usage_error("%s: %lld numbers, allowed %lld (got %s)", option_name, (long long)*count, (long long)wanted, text);
  return EXIT_OK;
}

/* ---- arrays -------------------------------------------------------------------------------------------------------------- */

/* Into the type asked for; without one only f64 is rounded, to f32. The oracle takes every type as it is. */
static int load_input(const attend_values *v, attend_job *j, const char *path, array *a) {
  if (!path) return EXIT_OK;
  int code = array_load(j->context, path, a);
  if (code != EXIT_OK || j->reference || (!v->type && a->view.type != HEED_F64)) return code;
  return array_convert(a, j->stored);
}

static int load_key_lengths(const attend_values *v, attend_job *j) {
  int64_t batch = j->q.view.ndim >= 4 ? j->q.view.dim[0] : 1, count;
  int code = EXIT_OK;
  if (v->key_lengths) code = load_wholes(j, "--key-lengths", v->key_lengths, batch, &j->key_lengths, &count);
  j->attention.key_lengths = j->key_lengths;
  return code;
}

/* Lengths of documents become the places where they begin and end. `tokens` are what they must add up to. */
static int load_documents(attend_job *j, const char *option_name, const char *text, int64_t tokens, int64_t **places, int64_t *count) {
  int64_t *lengths = NULL, end = 0;
  int code = load_wholes(j, option_name, text, *count > 0 ? *count : -1, &lengths, count);
  if (code != EXIT_OK) goto done;
  *places = allocate("documents", *count + 1, sizeof **places);
  for (int64_t i = 0; i < *count; i++) {
    if (lengths[i] < 0 || lengths[i] > tokens - end) {
      code = usage_error("%s: lengths do not add up to the %lld rows (document %lld has %lld, %lld are left)", option_name,
                         (long long)tokens, (long long)i, (long long)lengths[i], (long long)(tokens - end));
      goto done;
    }
    (*places)[i + 1] = end += lengths[i];
  }
  if (end != tokens) code = usage_error("%s: lengths add up to %lld of the %lld rows", option_name, (long long)end, (long long)tokens);
done:
  free(lengths);
  return code;
}

static int load_packing(const attend_values *v, attend_job *j) {
  const heed_view *q = &j->q.view, *k = &j->k.view;
  int64_t count = 0;
  int code;
  if (!v->documents) return v->key_documents ? usage_error("--key-documents: needs --documents, the lengths in queries") : EXIT_OK;
  TRY(load_documents(j, "--documents", v->documents, q->dim[q->ndim - 2], &j->query_documents, &count));
  TRY(load_documents(j, "--key-documents", v->key_documents ? v->key_documents : v->documents, k->dim[k->ndim - 2], &j->key_documents,
                     &count));
  j->attention.documents = count;
  j->attention.query_documents = j->query_documents;
  j->attention.key_documents = j->key_documents;
done:
  return code;
}

static int64_t heads_of(const attend_job *j) {
  const heed_view *q = &j->q.view;
  return q->ndim >= 3 ? q->dim[q->ndim - 3] : 1;
}

/* For the heads and keys that are there. */
static int load_pattern(const attend_values *v, attend_job *j) {
  const heed_view *k = &j->k.view;
  if (!v->pattern) return EXIT_OK;
  const int code = pattern_open(j->context, "--pattern: ", v->pattern, heads_of(j), k->dim[k->ndim - 2], &j->pattern);
  j->attention.pattern = j->pattern;
  return code;
}

static int load_alibi(const attend_values *v, attend_job *j) {
  int64_t heads = heads_of(j);
  if (!v->alibi) return EXIT_OK;
  j->attention.alibi = &j->alibi.view;
  if (strcmp(v->alibi, "auto") != 0) return load_numbers(j, v->alibi, &j->alibi);
  int code = array_new("slopes", HEED_F64, 1, &heads, &j->alibi);
  return code != EXIT_OK ? code : check(j->context, heed_alibi_slopes(j->context, heads, j->alibi.view.data));
}

/* Which weights each kind of score has, and so needs. */
static const struct {
  const char *name;
  heed_score_kind kind;
  bool wq, wk, wv;
} scores[] = {
    {"dot", HEED_SCORE_DOT, false, false, false},
    {"additive", HEED_SCORE_ADDITIVE, true, true, true},
    {"bilinear", HEED_SCORE_BILINEAR, true, false, false},
};

static int load_score(const attend_values *v, attend_job *j) {
  int i = 0, code;
  while (strcmp(scores[i].name, v->score) != 0) i++;
  const struct {
    const char *name, *path;
    bool has;
    array *loaded;
    const heed_view **place;
  } weights[] = {
      {"wq", v->wq, scores[i].wq, &j->wq, &j->score.wq},
      {"wk", v->wk, scores[i].wk, &j->wk, &j->score.wk},
      {"wv", v->wv, scores[i].wv, &j->wv, &j->score.wv},
  };
  j->score = (heed_score){.size = sizeof j->score, .kind = scores[i].kind};
  for (int w = 0; w < 3; w++) {
    if (weights[w].has && !weights[w].path) return usage_error("--score %s: needs --%s, its weights", v->score, weights[w].name);
    if (!weights[w].has && weights[w].path) return usage_error("--%s: --score %s has no such weights", weights[w].name, v->score);
    if (!weights[w].has) continue;
    TRY(load_input(v, j, weights[w].path, weights[w].loaded));
    *weights[w].place = &weights[w].loaded->view;
  }
  j->attention.score = &j->score;
  code = EXIT_OK;
done:
  return code;
}

static int check_ranks(const attend_values *v, const attend_job *j) {
  const heed_view *q = &j->q.view;
  char shape[SHAPE_MAX];
  if (q->ndim >= 2 && q->ndim <= 4 && j->k.view.ndim == q->ndim && j->v.view.ndim == q->ndim) return EXIT_OK;
  return error_of(EXIT_FAILED,
                  "%s: ranks do not fit (q is %s, k has %d dimensions, v %d; allowed [n,d], [H,n,d] or [B,H,n,d] for all three)", v->q,
                  shape_text(q->ndim, q->dim, shape), j->k.view.ndim, j->v.view.ndim);
}

int attend_load(const attend_values *v, attend_job *j) {
  heed_attention *a = &j->attention;
  int code;
  TRY(load_input(v, j, v->q, &j->q));
  TRY(load_input(v, j, v->k, &j->k));
  TRY(load_input(v, j, v->v, &j->v));
  TRY(load_input(v, j, v->grad_out, &j->dout));
  TRY(check_ranks(v, j));
  if (v->bias) TRY(array_load(j->context, v->bias, &j->bias));
  if (v->mask) TRY(array_load(j->context, v->mask, &j->mask));
  if (v->sink) TRY(load_numbers(j, v->sink, &j->sink));
  a->bias = v->bias ? &j->bias.view : NULL;
  a->attend = v->mask ? &j->mask.view : NULL;
  a->sink = v->sink ? &j->sink.view : NULL;
  TRY(load_score(v, j));
  TRY(load_pattern(v, j));
  TRY(load_alibi(v, j));
  TRY(load_key_lengths(v, j));
  TRY(load_packing(v, j));
done:
  return code;
}
