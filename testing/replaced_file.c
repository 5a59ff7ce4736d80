// A file that somebody replaces at the worst moment, as a process sees it:
// preloaded into a server, the file EVERWARM_REPLACED_PATH becomes
// EVERWARM_REPLACED_BY just before it is opened for the time
// EVERWARM_REPLACED_AT (1 is the first).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void Opening(const char* path) {
  static atomic_int opened;
  const char* watched = getenv("EVERWARM_REPLACED_PATH");
  const char* by = getenv("EVERWARM_REPLACED_BY");
  const char* at = getenv("EVERWARM_REPLACED_AT");
  if (watched == NULL || by == NULL || at == NULL ||
      strcmp(path, watched) != 0) {
    return;
  }
  if (atomic_fetch_add(&opened, 1) + 1 == atoi(at) && rename(by, path) != 0) {
    perror(by);
    abort();
  }
}

// ISO C knows no way from an object pointer to a function.
#define REAL(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static mode_t ModeOf(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  Opening(path);
  return REAL(open)(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  Opening(path);
  return REAL(open64)(path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  Opening(path);
  return REAL(fopen)(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  Opening(path);
  return REAL(fopen64)(path, mode);
}
