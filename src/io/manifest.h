/* manifest.h: what a directory of files says about itself: their sizes and checksums, and its own. */
#ifndef HD_MANIFEST_H
#define HD_MANIFEST_H

#include "json.h"

#define HD_MANIFEST "manifest.json"

typedef struct hd_manifest {
  int64_t step;
  json_t *files; /* name → {"bytes", "crc32"} */
} hd_manifest;

/* An empty one; release with hd_manifest_free. HEED_E_MEMORY. */
heed_status hd_manifest_new(heed_context *context, int64_t step, hd_manifest *out);
void hd_manifest_free(hd_manifest *manifest);
heed_status hd_manifest_add(heed_context *context, hd_manifest *manifest, const char *name, int64_t bytes, uint32_t crc);
/* As the text of its file; release with hd_release(context, text, bytes, 1). */
heed_status hd_manifest_text(heed_context *context, const hd_manifest *manifest, char **text, int64_t *bytes);

/* Reads DIRECTORY/manifest.json, which must be what hd_manifest_text writes to the byte, and the size of every file in it; `contents`: also all their bytes. HEED_E_FORMAT or
 * HEED_E_FILE where something is not as it says: the sentence begins with the file. HEED_E_UNSUPPORTED: a later format. */
heed_status hd_manifest_check(heed_context *context, const char *directory, bool contents, int64_t *step);

#endif
