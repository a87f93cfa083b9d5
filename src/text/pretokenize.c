/* pretokenize.c: cutting text with PCRE2, within bounds.
 *
 * A pattern from a file may take quadratic or exponential time. PCRE2 can be told to stop early, but not how much it has done; so every match is tried small first (few steps,
 * little text, one window of positions) and larger only where that was not enough, and what is larger is charged to a budget. Ordinary text never gets there; a bad pattern
 * ends in an error, not in a hang. */
#include "pretokenize.h"
#include "../io/json.h"

#include <stdio.h>

/* ---- PCRE2's memory ------------------------------------------------------------------------------------------------------- */

static void *pcre_allocate(size_t bytes, void *allocator) { return hd_sized_allocate(allocator, bytes); }
static void pcre_release(void *memory, void *allocator) { hd_sized_release(allocator, memory); }

/* ---- compiling ------------------------------------------------------------------------------------------------------------ */

static heed_status out_of_memory(heed_context *context) { return hd_fail(context, HEED_E_MEMORY, "out of memory: a regular expression"); }

/* Ruby's ^ and $, which files mean, are those of lines. */
enum { OPTIONS = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT };

/* What one pattern is compiled for. */
typedef struct compiling {
  heed_context *context;
  pcre2_general_context *memory;
  const char *pattern, *file;
  uint32_t more_options;
} compiling;

static heed_status compile_translated(const compiling *job, const char *pattern, int64_t length, pcre2_code **out) {
  int error;
  size_t offset;
  pcre2_compile_context *settings = pcre2_compile_context_create(job->memory);
  if (!settings) return out_of_memory(job->context);
  pcre2_set_newline(settings, PCRE2_NEWLINE_LF);
  *out = pcre2_compile((PCRE2_SPTR)pattern, (size_t)length, OPTIONS | job->more_options, &error, &offset, settings);
  pcre2_compile_context_free(settings);
  if (*out) return HEED_OK;
  if (error == PCRE2_ERROR_HEAP_FAILED) return out_of_memory(job->context);
  PCRE2_UCHAR reason[160] = "";
  char quoted[HD_QUOTE_LENGTH];
  size_t from = offset > 20 ? offset - 20 : 0; // what stands around the error
  return hd_fail(job->context, HEED_E_UNSUPPORTED, "%s: the pre-tokenizer's pattern is not understood: %s (near \"%s\")", job->file,
                 pcre2_get_error_message(error, reason, sizeof reason) < 0 ? "unknown error" : (const char *)reason,
                 hd_quote((heed_text){pattern + from, (size_t)length - from}, quoted));
}

static heed_status compile(const compiling *job, pcre2_code **out) {
  char *translated;
  char quoted[HD_QUOTE_LENGTH];
  heed_text given = {job->pattern, strlen(job->pattern)};
  int64_t length = hd_pattern_translate(given, NULL);
  HD_REQUIRE(length >= 0, job->context, HEED_E_UNSUPPORTED,
             "%s: the pre-tokenizer's pattern uses what heed does not know: a class or \\S in a class, \\h, \\Q, (?m) or more than %d "
             "bytes (got \"%s\")",
             job->file, HD_MAX_PATTERN_BYTES, hd_quote(given, quoted));
  HD_TRY(hd_allocate(job->context, "a regular expression", length, 1, &translated));
  hd_pattern_translate(given, translated);
  heed_status status = compile_translated(job, translated, length, out);
  hd_release(job->context, translated, length, 1);
  return status;
}

static heed_status ignore_piece(void *user, heed_text piece) {
  (void)user;
  (void)piece;
  return HEED_OK;
}

static heed_status run_probes(heed_context *context, const hd_splitter *splitter, const char *file) {
  static const char runs[] = "aA1 \n.'-_\"", ends[] = "\x01!a";
  char text[64];
  hd_split_session session;
  HD_TRY(hd_split_begin(&session, context, splitter, 0));
  heed_status status = HEED_OK;
  for (int i = 0; status == HEED_OK && i < (int)((sizeof runs - 1) * (sizeof ends - 1)); i++) {
    memset(text, runs[i / 3], sizeof text);
    text[sizeof text - 1] = ends[i % 3];
    session.budget = 100000; // a run of 64 needs some 64² steps where a pattern is quadratic
    status = hd_split(&session, (heed_text){text, sizeof text}, ignore_piece, NULL);
  }
  hd_split_end(&session);
  if (status == HEED_E_UNSUPPORTED)
    return hd_fail(context, status, "%s: the pre-tokenizer's pattern takes too many steps on a text of %zu characters", file, sizeof text);
  return status;
}

/* Runs of one character, with something different at the end, are what makes a pattern with nested repeats backtrack exponentially. PCRE2 would see that some such texts
 * cannot match without trying, so the probes run without its optimisations. */
static heed_status probe(const compiling *job) {
  compiling trial = *job;
  hd_splitter splitter = {.count = 1};
  trial.more_options = PCRE2_NO_START_OPTIMIZE;
  HD_TRY(compile(&trial, &splitter.code[0]));
  heed_status status = run_probes(job->context, &splitter, job->file);
  pcre2_code_free(splitter.code[0]);
  return status;
}

heed_status hd_splitter_init(heed_context *context, hd_splitter *splitter, const hd_pre_tokenizer *pre_tokenizer, const char *file) {
  *splitter = (hd_splitter){.allocator = context->allocator, .name = pre_tokenizer->name};
  splitter->memory = pcre2_general_context_create(pcre_allocate, pcre_release, &splitter->allocator);
  if (!splitter->memory) return out_of_memory(context);
  heed_status status = HEED_OK;
  for (int i = 0; i < pre_tokenizer->count && status == HEED_OK; i++) {
    const compiling job = {.context = context, .memory = splitter->memory, .pattern = pre_tokenizer->pattern[i], .file = file};
    splitter->drops_rest[i] = pre_tokenizer->drops_rest[i];
    splitter->pattern[i] = pre_tokenizer->pattern[i];
    status = compile(&job, &splitter->code[i]);
    if (status == HEED_OK) splitter->count = i + 1;
    if (status == HEED_OK) status = probe(&job);
  }
  if (status != HEED_OK) hd_splitter_free(splitter);
  return status;
}

void hd_splitter_free(hd_splitter *splitter) {
  for (int i = 0; i < splitter->count; i++) pcre2_code_free(splitter->code[i]);
  pcre2_general_context_free(splitter->memory);
  splitter->count = 0;
  splitter->memory = NULL;
}

/* ---- matching ------------------------------------------------------------------------------------------------------------- */

/* A step, or a byte looked at, takes nanoseconds. What is easy costs little at each position and is free; what is difficult comes out of the budget. Together that is a few
 * seconds a megabyte for the worst of patterns. */
enum {
  FIRST_STEPS = 200,         /* at one position; a word needs a few dozen */
  FIRST_REACH = 256,         /* bytes that a match may look at */
  FIRST_WINDOW = 63,         /* positions; a match usually begins where the last one ended */
  BUDGET = 20 * 1000 * 1000, /* steps and bytes for difficult matches */
  BUDGET_PER_BYTE = 100,     /* and more for long texts: a run of n characters may take a few n */
  HEAP_KIBIBYTES = 64 * 1024,
};

heed_status hd_split_begin(hd_split_session *session, heed_context *context, const hd_splitter *splitter, size_t bytes) {
  *session = (hd_split_session){.context = context, .splitter = splitter};
  session->budget = BUDGET + (int64_t)bytes * BUDGET_PER_BYTE;
  session->memory = pcre2_general_context_create(pcre_allocate, pcre_release, &context->allocator);
  if (session->memory) {
    session->limits = pcre2_match_context_create(session->memory);
    session->match = pcre2_match_data_create(1, session->memory); // only the whole match is of interest
  }
  if (!session->limits || !session->match) {
    hd_split_end(session);
    return out_of_memory(context);
  }
  pcre2_set_heap_limit(session->limits, HEAP_KIBIBYTES);
  return HEED_OK;
}

void hd_split_end(hd_split_session *session) {
  pcre2_match_data_free(session->match);
  pcre2_match_context_free(session->limits);
  pcre2_general_context_free(session->memory);
  *session = (hd_split_session){.context = session->context};
}

typedef struct span {
  size_t begin, end;
} span;

/* The first place at or after `at` where a character begins, or the end. */
static size_t character_from(heed_text text, size_t at) {
  if (at >= text.length) return text.length;
  while (at < text.length && ((unsigned char)text.data[at] & 0xC0) == 0x80) at++;
  return at;
}

/* One search for a match: it moves through the text in windows of positions. */
typedef struct search {
  heed_text text;
  size_t from;   /* no position before this one matches */
  size_t reach;  /* bytes from there that PCRE2 is shown */
  size_t window; /* positions after `from` that it may try */
  int64_t steps; /* that it may take at each of them */
  size_t last;   /* position that the last trial could decide */
} search;

/* PCRE2 stops with PCRE2_ERROR_PARTIAL as soon as it would look behind what it is shown; so every other answer holds for the whole text. */
static int try_match(hd_split_session *session, const pcre2_code *code, search *s) {
  size_t end = character_from(s->text, s->text.length - s->from > s->reach ? s->from + s->reach : s->text.length);
  bool all = end == s->text.length;
  s->last = HD_MIN(s->from + s->window, all ? end : end - 1);
  pcre2_set_match_limit(session->limits, (uint32_t)HD_MIN(s->steps, UINT32_MAX));
  pcre2_set_offset_limit(session->limits, s->last);
  return pcre2_match(code, (PCRE2_SPTR)s->text.data, end, s->from, PCRE2_NO_UTF_CHECK | (all ? 0 : PCRE2_PARTIAL_HARD), session->match,
                     session->limits);
}

static heed_status charge(hd_split_session *session, int64_t cost) {
  HD_REQUIRE(session->budget >= cost, session->context, HEED_E_UNSUPPORTED,
             "the pre-tokenizer's pattern takes too many steps on this text");
  session->budget -= cost;
  return HEED_OK;
}

/* After a trial that found nothing: where and how to try next. The limit of steps is one a position and PCRE2 does not say at which it was reached, so windows shrink to one
 * position before that one is given more. */
static heed_status widen(hd_split_session *session, search *s, int result) {
  switch (result) {
  case PCRE2_ERROR_NOMATCH:
    s->from = s->last < s->text.length ? character_from(s->text, s->last + 1) : s->text.length + 1;
    s->reach = FIRST_REACH;
    s->window = HD_MIN(2 * s->window + 1, FIRST_REACH);
    s->steps = FIRST_STEPS;
    return HEED_OK;
  case PCRE2_ERROR_PARTIAL:
    s->from = HD_MAX(s->from, pcre2_get_startchar(session->match));
    s->reach *= 4;
    return charge(session, (int64_t)s->reach);
  case PCRE2_ERROR_MATCHLIMIT:
    if (s->window > 0) {
      s->window = 0;
      return HEED_OK;
    }
    s->steps *= 10;
    return charge(session, s->steps);
  case PCRE2_ERROR_NOMEMORY: return out_of_memory(session->context);
  default: return charge(session, INT64_MAX); // the heap limit, or recursion without end
  }
}

/* The first match at or after `from`, if there is one. */
static heed_status next_match(hd_split_session *session, const pcre2_code *code, heed_text text, size_t from, bool *found, span *out) {
  search s = {.text = text, .from = from, .reach = FIRST_REACH, .window = FIRST_WINDOW, .steps = FIRST_STEPS};
  *found = false;
  while (!*found && s.from <= text.length) {
    int result = try_match(session, code, &s);
    *found = result >= 0;
    if (!*found) HD_TRY(widen(session, &s, result));
  }
  if (*found) {
    const size_t *bounds = pcre2_get_ovector_pointer(session->match);
    *out = (span){bounds[0], bounds[1]};
  }
  return HEED_OK;
}

typedef struct split_run {
  hd_split_session *session;
  hd_piece piece;
  void *user;
} split_run;

/* Cuts text with pattern `level` and hands the parts to the next one; the last hands them to the caller. */
static heed_status split_level(const split_run *run, int level, heed_text text) {
  const hd_splitter *splitter = run->session->splitter;
  if (text.length == 0) return HEED_OK;
  if (level == splitter->count) return run->piece(run->user, text);
  size_t done = 0;
  for (size_t from = 0; from <= text.length;) {
    bool found;
    span match;
    HD_TRY(next_match(run->session, splitter->code[level], text, from, &found, &match));
    if (!found || match.begin < done || match.end < match.begin) break; // the latter two: old PCRE2 lets \K in a look-ahead do that
    if (!splitter->drops_rest[level]) HD_TRY(split_level(run, level + 1, (heed_text){text.data + done, match.begin - done}));
    HD_TRY(split_level(run, level + 1, (heed_text){text.data + match.begin, match.end - match.begin}));
    done = from = match.end;
    if (match.end == match.begin) from = match.end < text.length ? character_from(text, match.end + 1) : text.length + 1;
  }
  return splitter->drops_rest[level] ? HEED_OK : split_level(run, level + 1, (heed_text){text.data + done, text.length - done});
}

heed_status hd_split(hd_split_session *session, heed_text text, hd_piece piece, void *user) {
  const split_run run = {session, piece, user};
  return split_level(&run, 0, text);
}
