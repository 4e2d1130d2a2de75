/* See channel.h. */
#define _POSIX_C_SOURCE 200809L

#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static _Thread_local int channel_in, channel_out;

void channel_write(const void *data, size_t size) {
  for (const char *from = data; size > 0;) {
    ssize_t written = write(channel_out, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("the other end is gone");
    from += written;
    size -= (size_t)written;
  }
}

void channel_read(void *data, size_t size) {
  for (char *to = data; size > 0;) {
    struct pollfd ready = {.fd = channel_in, .events = POLLIN};
    if (poll(&ready, 1, time_left()) == 0) fail("out of time: waiting for the other end");
    ssize_t count = read(channel_in, to, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("the other end is gone");
    to += count;
    size -= (size_t)count;
  }
}

void use_channel(int in, int out) {
  channel_in = in;
  channel_out = out;
}

void meet(int step) {
  int theirs = -1;
  channel_write(&step, sizeof step);
  channel_read(&theirs, sizeof theirs);
  if (theirs != step) fail("step %d here, step %d there", step, theirs);
}
