/* What every part of the driver needs: failing with a message, deadlines, and the logger. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <stdbool.h>

#include "ncclnet_ibnet.h"

/* Which end this thread is, for messages. */
extern _Thread_local const char *role;

/* Ends the program, after the end of the plugin's log (unless it was shown as it came). */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the program if the result is not success. */
void must(ncclResult_t result, const char *what);

/* Threads and open files of the whole process, and KiB of memory that it occupies. */
int count_threads(void);
int count_files(void);
long count_memory(void);

/* From now on, look_at_clock fails the program after so many seconds. */
void set_deadline(int seconds);
void look_at_clock(const char *what);
/* Milliseconds that are left. */
int time_left(void);

void sleep_a_millisecond(void);

/* A logger that remembers the text, and notes lines that do not begin as the plugin's lines must. It
 * prints to standard error if log_show was called. */
void log_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
              const char *format, ...);
void log_show(void);
bool log_contains(const char *text);
void log_forget(void);
/* Warnings about calls of this thread since its last log_forget. */
int log_warnings(void);
/* Fails the program if a line of the log was not as it must be. */
void log_check(void);

#endif
