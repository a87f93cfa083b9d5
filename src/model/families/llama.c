/* llama.c: Llama 1 to 3 and the many models of that shape: RMS norm before, rotary positions, gated SiLU, grouped heads. GGUF files of this architecture store queries and keys with
 * interleaved rotary pairs, Hugging Face directories with split halves. */
#include "../family.h"

static const hd_field fields[] = {
    HD_LLAMA_FIELDS,
    {".expert_count", NULL, HD_FIELD_ZERO, 0, 0, UINT32_MAX, false, 0, NULL}, // Mixtral's files call themselves llama
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},
    {NULL, "mlp_bias", HD_FIELD_BOOL, HD_AT(bias_feed_forward), 0, 1, false, 0, NULL},
};

const hd_family hd_family_llama = {
    .name = "llama",
    .base = {.norm = HD_NORM_RMS, .feed_forward_kind = HD_FEED_FORWARD_GATED, .activation = HEED_ACTIVATION_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .class_names = {"LlamaForCausalLM"},
    .gguf = {.architecture = "llama", .positions = HD_POSITIONS_ROTARY_INTERLEAVED, .tensors = HD_GGUF_LLAMA_TENSORS},
    .json = {.architecture = "llama", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = HD_JSON_LLAMA_TENSORS},
};
