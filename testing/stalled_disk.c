// A disk that does not answer, as a process sees it: preloaded into a server,
// calls that reach files below EVERWARM_STALL_DIR wait, each for
// EVERWARM_STALL_SECONDS or until the file EVERWARM_STALL_WHILE is gone.
// Without that file nothing waits. Each call that waits adds a byte to
// EVERWARM_STALL_COUNT.
//
// Covered: what a store writes with, what it renames, syncs and removes, and
// reads by preadv and by io_uring.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int Exists(const char* path) {
  struct stat info;
  return path != NULL && stat(path, &info) == 0;
}

static void Count(void) {
  const char* path = getenv("EVERWARM_STALL_COUNT");
  const int fd =
      path == NULL ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (fd >= 0) {
    const char one = '.';
    if (write(fd, &one, 1) != 1) {
      perror("EVERWARM_STALL_COUNT");
    }
    close(fd);
  }
}

static void Stall(void) {
  const char* on = getenv("EVERWARM_STALL_WHILE");
  const char* seconds = getenv("EVERWARM_STALL_SECONDS");
  if (seconds == NULL || !Exists(on)) {
    return;
  }
  Count();
  const double end = Now() + atof(seconds);
  const struct timespec pause = {0, 20 * 1000 * 1000};
  while (Now() < end && Exists(on)) {
    nanosleep(&pause, NULL);
  }
}

static int IsBelow(const char* path) {
  const char* dir = getenv("EVERWARM_STALL_DIR");
  const size_t length = dir == NULL ? 0 : strlen(dir);
  return length > 0 && strncmp(path, dir, length) == 0 && path[length] == '/';
}

static void StallOn(const char* path) {
  if (IsBelow(path)) {
    Stall();
  }
}

static void StallOnFd(int fd) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length > 0) {
    path[length] = '\0';
    StallOn(path);
  }
}

// ISO C knows no way from an object pointer to a function.
#define REAL(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t offset) {
  StallOnFd(fd);
  return REAL(pwritev)(fd, parts, count, offset);
}
ssize_t pwritev64(int fd, const struct iovec* parts, int count,
                  off64_t offset) {
  StallOnFd(fd);
  return REAL(pwritev64)(fd, parts, count, offset);
}
ssize_t preadv(int fd, const struct iovec* parts, int count, off_t offset) {
  StallOnFd(fd);
  return REAL(preadv)(fd, parts, count, offset);
}
ssize_t preadv64(int fd, const struct iovec* parts, int count, off64_t offset) {
  StallOnFd(fd);
  return REAL(preadv64)(fd, parts, count, offset);
}
int fsync(int fd) {
  StallOnFd(fd);
  return REAL(fsync)(fd);
}
int fdatasync(int fd) {
  StallOnFd(fd);
  return REAL(fdatasync)(fd);
}
int rename(const char* from, const char* to) {
  StallOn(to);
  return REAL(rename)(from, to);
}
int unlink(const char* path) {
  StallOn(path);
  return REAL(unlink)(path);
}

// What liburing waits with; which files a ring reads is not looked at: only the
// store has one.
struct io_uring;
int io_uring_submit_and_wait(struct io_uring* ring, unsigned wait_for);
int io_uring_submit_and_wait(struct io_uring* ring, unsigned wait_for) {
  Stall();
  return REAL(io_uring_submit_and_wait)(ring, wait_for);
}
