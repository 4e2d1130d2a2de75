/* See support.h. */
#define _POSIX_C_SOURCE 200809L

#include "support.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local const char *role = "driver";

static bool log_shown;
/* The logger is called from the plugin's threads too. */
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static size_t log_length;
static char log_fault[256];
/* The plugin warns of a call in the thread of the call. */
static _Thread_local int warnings;

void fail(const char *format, ...) {
  /* Whoever has the lock may be the one who fails. */
  bool locked = !pthread_mutex_trylock(&log_mutex);
  if (!log_shown && log_length) fprintf(stderr, "---- the plugin's log ----\n%s----\n", log_text);
  if (locked) pthread_mutex_unlock(&log_mutex);
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "FAILED (%s): ", role);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  /* Not exit: other threads are in the middle of something. */
  fflush(NULL);
  _Exit(1);
}

void must(ncclResult_t result, const char *what) {
  if (result != ncclSuccess) fail("%s: result %d", what, result);
}

static int count_entries(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) fail("%s cannot be read", path);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.') count++;
  closedir(folder);
  return count;
}

int count_threads(void) { return count_entries("/proc/self/task"); }
/* One of them is that of the folder itself. */
int count_files(void) { return count_entries("/proc/self/fd") - 1; }

long count_memory(void) {
  FILE *status = fopen("/proc/self/status", "r");
  if (!status) fail("/proc/self/status cannot be read");
  char line[256];
  long kilobytes = -1;
  while (fgets(line, sizeof line, status))
    if (sscanf(line, "RssAnon: %ld kB", &kilobytes) == 1) break;
  fclose(status);
  if (kilobytes < 0) fail("/proc/self/status does not say how much memory there is");
  return kilobytes;
}

static struct timespec deadline;

void set_deadline(int seconds) {
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += seconds;
}

int time_left(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  long long left = (deadline.tv_sec - now.tv_sec) * 1000LL +
                   (deadline.tv_nsec - now.tv_nsec) / 1000000;
  return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void look_at_clock(const char *what) {
  if (time_left() == 0) fail("out of time: %s", what);
}

void sleep_a_millisecond(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

/* Adds a line to what is remembered; the oldest half goes when there is no room. */
static void remember(const char *line, size_t length) {
  if (length + 1 > sizeof log_text / 2) return;
  if (log_length + length + 1 > sizeof log_text) {
    size_t half = log_length / 2;
    memmove(log_text, log_text + half, log_length - half);
    log_length -= half;
  }
  memcpy(log_text + log_length, line, length);
  log_length += length;
  log_text[log_length] = 0;
}

void log_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
              const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  const char *name = (unsigned)level < 6 ? names[level] : "?";
  char whole[4096];
  int whole_length = snprintf(whole, sizeof whole, "[%s] %s %#lx %s:%d %s\n", role, name, flags,
                              file ? file : "?", line, text);

  pthread_mutex_lock(&log_mutex);
  if (strncmp(text, "NET/IBNET", 9) != 0)
    snprintf(log_fault, sizeof log_fault, "a line does not begin with NET/IBNET: %.150s", text);
  /* NCCL formats a line into 1024 bytes, with its own prefix. */
  if (length > 900) snprintf(log_fault, sizeof log_fault, "a line of %d bytes", length);
  if (!file || !*file) snprintf(log_fault, sizeof log_fault, "a line without its origin");
  if (level == NCCL_LOG_WARN) {
    warnings++;
    if (flags != ~0UL) snprintf(log_fault, sizeof log_fault, "a warning with flags %#lx", flags);
  }
  if (whole_length > 0 && (size_t)whole_length < sizeof whole)
    remember(whole, (size_t)whole_length);
  pthread_mutex_unlock(&log_mutex);
  if (log_shown) fputs(whole, stderr);
}

void log_show(void) { log_shown = true; }

bool log_contains(const char *text) {
  pthread_mutex_lock(&log_mutex);
  bool found = strstr(log_text, text) != NULL;
  pthread_mutex_unlock(&log_mutex);
  return found;
}

void log_forget(void) {
  pthread_mutex_lock(&log_mutex);
  log_length = 0;
  log_text[0] = 0;
  warnings = 0;
  pthread_mutex_unlock(&log_mutex);
}

int log_warnings(void) { return warnings; }

void log_check(void) {
  pthread_mutex_lock(&log_mutex);
  if (log_fault[0]) fail("the log: %s", log_fault);
  pthread_mutex_unlock(&log_mutex);
}
