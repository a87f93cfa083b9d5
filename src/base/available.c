/* available.c: how much memory this process can still get. Linux hands out more than it has and ends the process that uses it, so that who is about to take much asks first.
 *
 * Three limits, of which the least counts: what the machine has free, the control groups that the process is in (version 1 and 2), its address space. */
#include "base.h"

#include <stdio.h>

#if defined(__linux__)
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

static int64_t lesser(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : HD_MIN(a, b); }

/* The number behind a name in lines of "NAME number"; a file of one number has the name "". −1: there is none, also where it says "max". */
static int64_t number_in(const char *path, const char *name) {
  char line[256];
  long long number = -1;
  FILE *file = fopen(path, "re");
  if (!file) return -1;
  while (number < 0 && fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%lld", &number) != 1) number = -1;
  fclose(file);
  return number;
}

static int64_t of_machine(void) {
  int64_t available = number_in("/proc/meminfo", "MemAvailable:"), swap = number_in("/proc/meminfo", "SwapFree:");
  return available < 0 ? -1 : (available + HD_MAX(swap, 0)) * 1024;
}

static int64_t of_address_space(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  int64_t pages = number_in("/proc/self/statm", "");
  return pages < 0 ? -1 : HD_MAX((int64_t)HD_MIN(limit.rlim_cur, (rlim_t)INT64_MAX) - pages * (int64_t)sysconf(_SC_PAGESIZE), 0);
}

/* How the two versions of control groups name things. */
typedef struct group_files {
  const char *root, *line, *limit, *used, *reclaimable;
} group_files;

static const group_files versions[] = {
    {"/sys/fs/cgroup", "0::", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory:", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

static int64_t of_folder(const group_files *files, const char *group) {
  char path[PATH_BYTES + 64];
  snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->limit);
  int64_t limit = number_in(path, "");
  snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->used);
  int64_t used = number_in(path, "");
  if (limit < 0 || used < 0) return -1;
  // Cached files count as used and go when memory is wanted.
  snprintf(path, sizeof path, "%s%s/memory.stat", files->root, group);
  return HD_MAX(limit - used + HD_MAX(number_in(path, files->reclaimable), 0), 0);
}

/* The group of the process and those around it; the root's files are all that a container sees of its own group. */
static int64_t of_groups(const group_files *files) {
  char line[PATH_BYTES], group[PATH_BYTES] = "";
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return -1;
  while (fgets(line, sizeof line, file)) { // "4:memory:/a/b"
    const char *at = strstr(line, files->line);
    if (at) snprintf(group, sizeof group, "%s", at + strlen(files->line));
  }
  fclose(file);
  group[strcspn(group, "\n")] = 0;
  int64_t least = of_folder(files, "");
  for (char *end; *group == '/' && group[1]; *end = 0) {
    least = lesser(least, of_folder(files, group));
    end = strrchr(group, '/');
  }
  return least;
}

int64_t hd_memory_available(void) {
  int64_t least = lesser(of_machine(), of_address_space());
  for (int64_t i = 0; i < HD_COUNT(versions); i++) least = lesser(least, of_groups(&versions[i]));
  return least;
}
#else
int64_t hd_memory_available(void) { return -1; }
#endif

heed_status hd_memory_check(heed_context *context, const char *what, int64_t bytes) {
  int64_t available = hd_memory_available();
  HD_REQUIRE(available < 0 || bytes <= available, context, HEED_E_MEMORY, "%s takes %.1f GB of memory, %.1f GB are available", what,
             (double)bytes / 1e9, (double)available / 1e9);
  return HEED_OK;
}
