/* levels: says which instruction set levels this machine runs. `levels` prints two lines for people; `levels --names` the names alone, for scripts;
 * `levels --native` the name of the level that heed chooses by itself. */
#include "../include/heed/heed.h"

#include <stdio.h>
#include <string.h>

static void print_levels(bool available) {
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    if (heed_level_available(level) == available) printf(" %s", heed_level_name(level));
  printf("\n");
}

int main(int argc, char **argv) {
  heed_context *context;
  if (heed_context_new(NULL, &context) != HEED_OK) return 1;
  const char *native = heed_level_name(heed_context_level(context));
  heed_context_free(context);
  if (argc > 1 && strcmp(argv[1], "--native") == 0) {
    printf("%s\n", native);
  } else if (argc > 1 && strcmp(argv[1], "--names") == 0) {
    print_levels(true);
  } else {
    printf("levels that ran natively:");
    print_levels(true);
    printf("levels this processor lacks:");
    print_levels(false);
    printf("level that heed chooses here: %s\n", native);
  }
  return 0;
}
