/* train_seq2seq.c: `heed train seq2seq`: models that read one sentence and write another. */
#include "train_options.h"

#include <string.h>

/* What each --arch is. A recurrent decoder that looks back scores as Bahdanau's does unless --score says otherwise. */
static const struct arch {
  const char *name;
  heed_learner_kind kind;
  heed_learner_score score;
} archs[] = {{"rnn", HEED_LEARNER_RECURRENT, HEED_LEARNER_NONE},
             {"bahdanau", HEED_LEARNER_RECURRENT, HEED_LEARNER_ADDITIVE},
             {"transformer", HEED_LEARNER_SEQ2SEQ, HEED_LEARNER_ADDITIVE}};

static const char scores[] = "additive|dot|scaled|bilinear", outputs[] = "state|tanh|maxout"; // in the order of their enumerations

/* Options that say nothing of the architecture asked for. */
static int check_arch(const values *v, bool recurrent) {
  const struct {
    const char *option;
    bool given, of_recurrent;
  } options[] = {{"score", v->score != NULL, true},
                 {"output", v->output != NULL, true},
                 {"sampling", v->sampling > 0, true},
                 {"layers", v->layers > 0, false},
                 {"heads", v->heads > 0, false},
                 {"kv-heads", v->kv_heads > 0, false},
                 {"feed-forward", v->feed_forward > 0, false},
                 {"pre-norm", v->norm_before, false},
                 {"learned", v->learned, false},
                 {"positions", v->positions != NULL, false},
                 {"attention", v->attention != NULL, false},
                 {"encoder-layers", v->encoder_layers > 0, false},
                 {"untied", v->untied, false}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].given && options[i].of_recurrent != recurrent)
      return usage_error("--%s: --arch %s has no use for it", options[i].option, v->arch);
  if (v->learned && v->positions) return usage_error("--positions: given together with --learned (one of them is enough)");
  if (v->score && !strcmp(v->arch, "rnn")) return usage_error("--score: --arch rnn does not look back, bahdanau does");
  return EXIT_OK;
}

static int fill_form(const values *v, heed_learner_options *form) {
  const struct arch *arch = archs;
  while (strcmp(arch->name, v->arch) != 0) arch++; // the option has let no other through
  *form = (heed_learner_options){.kind = arch->kind,
                                 .encoder_layers = v->encoder_layers,
                                 .learned = v->learned,
                                 .score = v->score ? (heed_learner_score)choice_place(scores, v->score) : arch->score,
                                 .output = v->output ? (heed_learner_output)choice_place(outputs, v->output) : HEED_LEARNER_STATE,
                                 .sampling = v->sampling};
  return check_arch(v, arch->kind == HEED_LEARNER_RECURRENT);
}

static int run_seq2seq(const void *pointer) {
  const values *v = pointer;
  heed_learner_options form;
  int code = fill_form(v, &form);
  if (code != EXIT_OK) return code;
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
    OPTION("arch", 0, CHOICE, NULL, arch,
           "what the model is: a fixed vector, one that looks back, or without recurrence (default transformer)",
           .choices = "rnn|bahdanau|transformer"),
    OPTION("score", 0, CHOICE, NULL, score, "bahdanau: how the decoder's state and a state of the encoder are scored (default additive)",
           .choices = scores),
    OPTION("output", 0, CHOICE, NULL, output, "rnn, bahdanau: what the head reads (default state)", .choices = outputs),
    OPTION("sampling", 0, NUMBER, "P", sampling,
           "rnn, bahdanau: share of the decoder's tokens that are its own guesses while it learns (default 0)", .low = 0, .high = 1),
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
    POSITION_OPTION,
    ATTENTION_OPTION,
    OPTION("learned", 0, FLAG, NULL, learned, "learned instead of sinusoidal positions, as many as the longest sentences have"),
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    OPTION("smoothing", 0, NUMBER, "P", smoothing, "share of a target that goes to all other tokens while it learns (default 0)", .low = 0,
           .high = 0.99),
    RUN_OPTIONS,
};

const command command_train_seq2seq = {
    .name = "train seq2seq",
    .summary = "train a model that reads one sentence and writes another",
    .about =
        "Trains an encoder and a decoder on pairs of sentences, from nothing: those of a file, or of a task. --arch rnn has gated "
        "recurrent "
        "units and gives the decoder one vector of the source (Cho et al. 2014); bahdanau looks at all states of the encoder at each step "
        "(Bahdanau et al. 2015); transformer does without recurrence (Vaswani et al. 2017). A tokenizer is made from "
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
