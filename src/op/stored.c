/* stored.c: parameters that stay as a file stores them (kern/matrix.h). */
#include "../kern/matrix.h"
#include "../tensor/tensor.h"

heed_status heed_parameters_add_stored(heed_parameters *set, const char *name, const char *type, int64_t outputs, int64_t inputs,
                                       const void *rows, heed_tensor **out) {
  hd_matrix *matrix;
  if (!set) return HEED_E_ARGUMENT;
  heed_context *context = hd_parameters_context(set);
  HD_REQUIRE(out && name && type && rows, context, HEED_E_ARGUMENT, "heed_parameters_add_stored: null");
  *out = NULL;
  const hd_storage storage = hd_storage_from_name(type);
  HD_REQUIRE(storage != HD_STORAGE_COUNT, context, HEED_E_TYPE, "%s: there is no type %s, allowed %s", name, type, hd_storage_known());
  HD_REQUIRE(!heed_parameters_find(set, name), context, HEED_E_ARGUMENT, "parameter %s: there is one of that name", name);
  HD_TRY(hd_arena_allocate(hd_parameters_arena(set), context, name, 1, sizeof *matrix, &matrix));
  HD_TRY(hd_matrix_pack(context, hd_parameters_arena(set), storage, outputs, inputs, rows, matrix));
  return hd_parameters_add_stored(set, name, (int64_t[]){outputs, inputs}, matrix, 1, matrix->bytes, out);
}
