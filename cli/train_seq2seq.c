/* train_seq2seq.c: `heed train seq2seq`: models that read one sentence and write another. */
#include "train_options.h"

#include <string.h>

/* What each --arch is. A recurrent decoder that looks back scores as Bahdanau's does unless --score says otherwise. */
static const struct arch {
  const char *name;
  heed_learner_kind kind;
} archs[] = {{"transformer", HEED_LEARNER_SEQ2SEQ}};

static int run_seq2seq(const void *pointer) {
  const values *v = pointer;
  heed_learner_options form = {.encoder_layers = v->encoder_layers, .learned = v->learned};
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    if (!strcmp(archs[i].name, v->arch)) form.kind = archs[i].kind;
  if (!v->data && !v->pair_task) return usage_error("--pairs: pairs to learn from are missing (or --task: %s)", PAIR_TASKS);
  if (v->data && v->pair_task) return usage_error("--pairs: given together with --task (one of them is enough)");
  if (v->targets && !v->data) return usage_error("--targets: goes with --pairs, which names the sources");
  if (v->validation && !v->data) return usage_error("--validation: goes with --pairs");
  if (v->validation_targets && !v->validation) return usage_error("--validation-targets: goes with --validation, which names the sources");
  if (v->validation && !v->targets != !v->validation_targets)
    return usage_error("--validation-targets: sides lie in files of their own for training and validation, or for neither");
  if (v->examples && v->data) return usage_error("--examples: goes with --task");
  values filled = *v;
  if (!filled.tokens) filled.tokens = v->pair_task ? heed_pair_task_tokens(v->pair_task) : "bpe:4096";
  return train(&filled, &form);
}

static const option options[] = {
    OPTION("arch", 0, CHOICE, NULL, arch, "what the model is (default transformer)", .choices = "transformer"),
    OPTION("task", 0, CHOICE, NULL, pair_task, "pairs that are made on the spot (`heed pairs` shows them)", .choices = PAIR_TASKS),
    PAIR_TASK_OPTIONS(pair_values),
    OPTION("examples", 0, WHOLE, "N", examples, "pairs of a task to learn from (default 100000)", .low = 1, .high = 1e8),
    OPTION("pairs", 0, TEXT, "FILE", data, "pairs: SOURCE, tab, TARGET a line; every tenth is for validation; with --targets the sources"),
    OPTION("targets", 0, TEXT, "FILE", targets, "the targets, a line each"),
    OPTION("validation", 0, TEXT, "FILE", validation, "pairs for validation, of the same form"),
    OPTION("validation-targets", 0, TEXT, "FILE", validation_targets, "their targets, a line each"),
    OPTION("tokens", 0, TEXT, "KIND", tokens,
           "char, byte, bpe:N, word, word:N (made from the pairs), or a tokenizer's file (default: what suits the task; bpe:4096)"),
    OPTION("separate", 0, FLAG, NULL, separate, "a vocabulary for each side instead of one for both"),
    OPTION("source-context", 0, WHOLE, "N", source_context, "tokens of a source (default: the longest, at most 512)", .low = 1,
           .high = 1e6),
    OPTION("context", 0, WHOLE, "N", context, "tokens of a target, its end token too (default: the longest, at most 512)", .low = 1,
           .high = 1e6),
    OPTION("on-long", 0, CHOICE, NULL, on_long, "what to do with a pair that is longer", .choices = "stop|skip"),
    SIZE_OPTIONS,
    OPTION("encoder-layers", 0, WHOLE, "N", encoder_layers, "layers of the encoder (default: as many as the decoder has)", .low = 1,
           .high = 10000),
    OPTION("pre-norm", 0, FLAG, NULL, norm_before, "norms before the sublayers instead of after them"),
    OPTION("learned", 0, FLAG, NULL, learned, "learned instead of sinusoidal positions, as many as the longest sentences have"),
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    OPTION("smoothing", 0, NUMBER, "P", smoothing, "share of a target that goes to all other tokens while it learns (default 0)", .low = 0,
           .high = 0.99),
    RUN_OPTIONS,
};

const command command_train_seq2seq = {
    .name = "train seq2seq",
    .summary = "train a model that reads one sentence and writes another",
    .about = "Trains an encoder and a decoder on pairs of sentences, from nothing: those of a file, or of a task. A tokenizer is made from "
             "both sides; a source ends with </s>, a target begins with <pad> and ends with </s>. Pairs of nearly one length are learned "
             "from together. `heed translate` applies the model, `heed eval` measures it on pairs that training has not seen, `heed align` "
             "shows what it looked at. " TRAIN_ABOUT,
    .examples = "  heed train seq2seq --task dates --out dates\n  echo \"jeudi 4 mars 2021\" | heed translate dates\n"
                "  heed train seq2seq --pairs en-es.tsv --tokens bpe:8000 --out en-es\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .arch = "transformer", .on_long = "stop"},
    .run = run_seq2seq,
};
