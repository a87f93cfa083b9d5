/* storage.c: the table of storage types. */
#include "storage.h"

static const struct {
  const char *name;
  uint32_t number;
  int64_t elements, bytes;
} table[] = {
#define ROW(name, number, elements, bytes) [HD_##name] = {#name, number, elements, bytes},
    HD_STORAGE_LIST(ROW)};

const char *hd_storage_name(hd_storage type) { return table[type].name; }
int64_t hd_storage_block(hd_storage type) { return table[type].elements; }
int64_t hd_storage_bytes(hd_storage type) { return table[type].bytes; }

hd_storage hd_storage_from_gguf(uint32_t number) {
  for (int i = 0; i < HD_STORAGE_COUNT; i++)
    if (table[i].number == number) return (hd_storage)i;
  return HD_STORAGE_COUNT;
}

hd_storage hd_storage_from_name(const char *name) {
  int i = 0;
  while (i < HD_STORAGE_COUNT && strcmp(table[i].name, name) != 0) i++;
  return (hd_storage)i;
}

#define COMMA_NAME(name, number, elements, bytes) ", " #name
static const char known[] = HD_STORAGE_LIST(COMMA_NAME);
const char *hd_storage_known(void) { return known + 2; }
