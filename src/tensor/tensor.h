/* tensor.h: values on a tape, their gradients, and what an operation is.
 *
 * A tensor is a contiguous row-major array in a buffer. Reshaped tensors share their buffer, hence value and gradient. Operations are tables of functions (hd_operation); the
 * tape knows none of them by name. Gradients accumulate: the first to reach a buffer writes it, whoever comes later adds, so no buffer is cleared beforehand. */
#ifndef HD_TENSOR_H
#define HD_TENSOR_H

#include "../base/base.h"
#include "../../include/heed/nn.h"

/* ---- memory that comes back step after step ---------------------------------------------------------------------------------- */

/* Arrays of floats by exact size, more or less: what is given back is handed out again to a request of the same size, or of at least half of it. A training step asks for the same
 * sizes as the one before, so after the first nothing is asked of the allocator. */
typedef struct hd_pool {
  heed_context *context;
  struct hd_pool_block *free;
  struct hd_pool_slab *slabs;
  char *slab; /* that arrays are cut from, its room and how much of it is used */
  int64_t room, used;
  bool plan;                   /* only counts: what is handed out has no room for numbers */
  int64_t bytes, in_use, peak; /* taken from the allocator; handed out now; the most that was handed out at once */
} hd_pool;

heed_status hd_pool_take(hd_pool *pool, const char *what, int64_t floats, float **out);
/* Given back; NULL is allowed. */
void hd_pool_give(hd_pool *pool, float *memory);
/* Everything given back goes to the allocator. */
void hd_pool_free(hd_pool *pool);

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */

typedef struct hd_buffer {
  int64_t count;
  void *value;         /* f32, or i32 indices */
  float *gradient;     /* NULL until backward reaches it (parameters: always there) */
  bool wants;          /* a gradient */
  bool begun;          /* the gradient holds something */
  bool kept;           /* value stays after backward */
  bool free_to_change; /* nobody has read the value, and the operation that made it will not: the next may change it in place */
} hd_buffer;

struct heed_tensor {
  hd_buffer *buffer;
  heed_type type; /* HEED_F32 or HEED_I32 */
  int ndim;
  int64_t dim[HEED_MAX_DIM];
  const char *name; /* of a parameter, otherwise of the operation that made it; borrowed */
  bool parameter, decays, frozen;
  const struct hd_matrix
      *stored; /* [stored_parts] a frozen matrix as a file stores it (kern/matrix.h); value is NULL then. NULL: numbers */
  int stored_parts;
  bool stale; /* an operation has changed the buffer in place: what this tensor meant is gone */
};

static inline int64_t hd_count(const heed_tensor *t) { return t->buffer->count; }
static inline float *hd_value(const heed_tensor *t) { return t->buffer->value; }
static inline const int32_t *hd_index(const heed_tensor *t) { return t->buffer->value; }
/* The last dimension, and all others as one. */
static inline int64_t hd_columns(const heed_tensor *t) { return t->dim[t->ndim - 1]; }
static inline int64_t hd_rows(const heed_tensor *t) { return hd_columns(t) ? hd_count(t) / hd_columns(t) : 0; }
/* "[12,64,128]" */
const char *hd_tensor_shape(const heed_tensor *t, char buffer[HD_SHAPE_LENGTH]);
/* Fills ndim, dim and a count that is checked. HEED_E_ARGUMENT, HEED_E_OVERFLOW. */
heed_status hd_shape_count(heed_context *context, const char *name, int ndim, const int64_t *dim, int64_t *count);
bool hd_tensor_same_shape(const heed_tensor *a, const heed_tensor *b);

/* ---- operations --------------------------------------------------------------------------------------------------------------- */

typedef struct hd_operation hd_operation;

/* One operation that was carried out. */
typedef struct hd_node {
  const hd_operation *operation;
  heed_tape *tape;
  int inputs;
  heed_tensor **in; /* [inputs]; NULL: an optional input that is not given */
  heed_tensor *out;
  float *saved; /* [saved_floats], from forward to backward; NULL where nothing is recorded */
  int64_t saved_floats;
  int64_t aside_floats; /* what backward takes of the allocator for a while: plans count it */
  const void *options;  /* the tape's own copy */
  uint64_t seed;        /* of what is random in this node */
  uint32_t stream;
  bool training;  /* dropout acts */
  int shares;     /* input + 1 whose buffer, value and gradient, the output shares; 0: it has its own */
  bool in_place;  /* and changes, so that the input is stale afterwards; forward and backward change value and gradient where they are */
  bool recorded;  /* backward may come */
  const char *at; /* where in the model: the tape's label at the time, or "" */
} hd_node;

/* A legal random call, for the tests that hold every operation to its reference. */
enum { HD_SAMPLE_INPUTS = 12, HD_SAMPLE_OPTIONS = 1024 };
typedef struct hd_sample_input {
  bool absent;
  int ndim; /* 0: a scalar has rank 1 and dim 1 */
  int64_t dim[HEED_MAX_DIM];
  int64_t below;         /* > 0: indices in [floor, below) instead of numbers */
  int64_t floor;         /* may be −1: ignored */
  double offset, spread; /* numbers are offset + spread · normal; spread 0: 1 */
  double apart;          /* > 0: numbers keep this far from 0, where the operation has a kink */
  int stored;            /* > 0: a matrix of random blocks of hd_storage stored − 1 */
} hd_sample_input;
typedef struct hd_sample {
  uint64_t seed, draws;
  int inputs;
  hd_sample_input in[HD_SAMPLE_INPUTS];
  _Alignas(16) unsigned char options[HD_SAMPLE_OPTIONS];
} hd_sample;
/* A whole number in [low, high]. */
int64_t hd_sample_pick(hd_sample *sample, int64_t low, int64_t high);
/* A matrix becomes one as a file stores it, of any type, its rows as long as blocks ask for. */
void hd_sample_store(hd_sample *sample, hd_sample_input *in);
/* Rank from 1 to 3 and dimensions in [1, most] of an input. */
void hd_sample_shape(hd_sample *sample, hd_sample_input *in, int64_t most);

struct hd_operation {
  const char *name;
  size_t options; /* bytes of its options */
  /* Checks shapes and options; sets out's ndim and dim (type is f32), saved_floats, shares. Nothing is computed, and no value is read: there may be none (hd_tape_set_plan). */
  heed_status (*shape)(heed_context *context, hd_node *node);
  heed_status (*forward)(heed_context *context, const hd_node *node);
  heed_status (*backward)(heed_context *context, const hd_node *node); /* NULL: there is no gradient, see why_not */
  const char *why_not;
  bool output_unread; /* backward does not look at out's value */
  bool checks_types;  /* shape does; otherwise the tape refuses inputs that are not f32 */
  uint32_t stored;    /* bit i: input i may be a matrix as a file stores it */
  /* The formula by plain loops. in[i] is NULL for absent inputs and indices. */
  void (*reference)(const hd_node *node, const double *const *in, double *out);
  void (*sample)(hd_sample *sample);
};

/* Whether the operation may change input i in place: its buffer is nobody else's. */
static inline bool hd_may_change(const hd_node *node, int i) { return node->in[i]->buffer->free_to_change; }
/* Where backward puts the gradient of input i: NULL if nobody wants it. *accumulate: add to what is there, otherwise write every element. To be called once for each place of an input. */
float *hd_gradient(const hd_node *node, int i, bool *accumulate);
static inline const float *hd_upstream(const hd_node *node) { return node->out->buffer->gradient; }

/* A frozen parameter [rows of all parts, inputs] that is read where it lies. The parts, one below the other, are borrowed for the life of the set; `bytes` is what they take. */
heed_status hd_parameters_add_stored(heed_parameters *parameters, const char *name, const int64_t dim[2], const struct hd_matrix *part,
                                     int parts, int64_t bytes, heed_tensor **out);
/* Where such matrices may be packed; goes with the set. */
hd_arena *hd_parameters_arena(heed_parameters *parameters);
heed_context *hd_parameters_context(const heed_parameters *parameters);

/* Keeps the tape's first error; true if status, and everything before, is ok. */
bool hd_tape_note(heed_tape *tape, heed_status status);
/* Carries an operation out. NULL if it fails, or if an input is NULL that must not be, or if the tape has failed before: heed_tape_status tells. Inputs up to `optional` must be there. */
heed_tensor *hd_tape_apply(heed_tape *tape, const hd_operation *operation, int inputs, heed_tensor *const *in, int optional,
                           const void *options);
/* From now on operations are checked and recorded but not carried out, forward and backward, and no memory is taken for numbers. */
void hd_tape_set_plan(heed_tape *tape);
/* Whether it is so: values must not be looked at then. */
bool hd_tape_plans(const heed_tape *tape);
/* Whether it learns: it is neither for inference only nor without dropout. */
bool hd_tape_learns(const heed_tape *tape);
/* For draws that are no operation's: a stream of its own under the tape's seed. */
uint64_t hd_tape_draw(heed_tape *tape, uint32_t *stream);
/* What the tape has taken from the allocator for numbers, or would have. */
int64_t hd_tape_bytes(const heed_tape *tape);
/* Memory that stays until reset, for what an operation's options point at. */
heed_status hd_tape_keep(heed_tape *tape, const char *what, int64_t count, size_t size, void *out);
heed_context *hd_tape_context(const heed_tape *tape);
/* The node carried out last; NULL: none yet. */
const hd_node *hd_tape_last(const heed_tape *tape);

#endif
