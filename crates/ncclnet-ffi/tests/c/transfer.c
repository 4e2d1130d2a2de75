/* See transfer.h. */
#define _POSIX_C_SOURCE 200809L

#include "transfer.h"

#include "channel.h"
#include "profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 8
#define OUTSTANDING NCCL_NET_MAX_REQUESTS /* of the versions that allow most */

/* ---- Data ---- */

/* Each message has a seed: its bytes are different from those of every other. */
static void fill(unsigned char *data, size_t size, unsigned seed) {
  unsigned state = seed * 2654435761u + 1;
  for (size_t i = 0; i < size; i++) {
    state = state * 1664525u + 1013904223u;
    data[i] = (unsigned char)(state >> 24);
  }
}

/* The first byte that is wrong, or `size`. */
static size_t find_wrong(const unsigned char *data, size_t size, unsigned seed) {
  unsigned state = seed * 2654435761u + 1;
  for (size_t i = 0; i < size; i++) {
    state = state * 1664525u + 1013904223u;
    if (data[i] != (unsigned char)(state >> 24)) return i;
  }
  return size;
}

static void verify(const unsigned char *data, size_t size, unsigned seed, const char *what) {
  size_t wrong = find_wrong(data, size, seed);
  if (wrong < size) fail("%s: byte %zu of %zu is wrong: %#x", what, wrong, size, data[wrong]);
}

/* Everything behind the received bytes must be as it was. */
static void verify_untouched(const unsigned char *data, size_t from, size_t to, const char *what) {
  for (size_t i = from; i < to; i++)
    if (data[i] != CANARY) fail("%s: byte %zu behind the message was written", what, i);
}

static char *allocate_exactly(size_t size) {
  char *data = malloc(size);
  if (!data) fail("out of memory");
  return data;
}

/* ---- One end of a connection ---- */

struct end {
  const struct net *net;
  void *comm;
  enum memory memory;
  struct buffer whole;
  unsigned char *buffer; /* its data */
  void *mhandle;         /* of all of it */
};

/* The request in `*request`; NULL is written in every case, so garbage in it must not survive. */
static void *start_send(struct end *end, size_t offset, size_t size, int tag, const char *what) {
  for (;;) {
    void *request = (void *)-1;
    must(net_isend(end->net, end->comm, end->buffer + offset, size, tag, end->mhandle, &request),
         what);
    if (request) return request;
    look_at_clock(what);
  }
}

static void *start_receive(struct end *end, int n, const size_t *offsets, size_t *capacities,
                           int *tags, const char *what) {
  void *data[GROUP], *mhandles[GROUP];
  for (int i = 0; i < n; i++) {
    data[i] = end->buffer + offsets[i];
    mhandles[i] = end->mhandle;
  }
  /* A mark without a meaning in this version, and one that is none. Both must be overwritten. */
  bool has_marks = net_has_optional_receives(end->net);
  void *left = n == 1 && !has_marks ? (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION : (void *)-1;
  for (;;) {
    void *request = left;
    must(net_irecv(end->net, end->comm, n, data, capacities, tags, mhandles, &request), what);
    if (request == left) fail("%s: %p is still in the place of the request", what, left);
    if (request) return request;
    look_at_clock(what);
  }
}

/* Waits for a request. `sizes` has one more element than the request may write, or is NULL. */
static void finish(struct end *end, void *request, int n, int *sizes, const char *what) {
  if (sizes) memset(sizes, CANARY, (size_t)(n + 1) * sizeof *sizes);
  int canary;
  memset(&canary, CANARY, sizeof canary);
  for (;;) {
    int done = -1;
    must(net_test(end->net, request, &done, sizes), what);
    if (done != 0 && done != 1) fail("%s: done is %d", what, done);
    if (sizes && sizes[n] != canary) fail("%s: more than %d sizes were written", what, n);
    if (done) break;
    look_at_clock(what);
  }
  for (int i = 0; sizes && i < n; i++)
    if (sizes[i] == canary) fail("%s: size %d was not written", what, i);
  /* A request that is done is no request any more. */
  int done = -1;
  if (net_test(end->net, request, &done, NULL) == ncclSuccess || done != 0)
    fail("%s: the finished request could be tested again", what);
}

/* Flushes what was received. Host memory needs none, which is said by a null request. */
static void flush(struct end *end, int n, const size_t *offsets, int *sizes) {
  void *data[GROUP], *mhandles[GROUP], *request = (void *)-1;
  int total = 0;
  for (int i = 0; i < n; i++) {
    data[i] = end->buffer + offsets[i];
    mhandles[i] = end->mhandle;
    total += sizes[i];
  }
  must(net_iflush(end->net, end->comm, n, data, sizes, mhandles, &request), "iflush");
  if (end->memory == HOST_MEMORY && request) fail("iflush of host memory gave a request");
  /* Versions 2 and 3 have waited already. */
  if (end->memory != HOST_MEMORY && total > 0 && end->net->abi >= 4 && !request)
    fail("%d bytes in GPU memory were not flushed", total);
  if (request) finish(end, request, 0, NULL, "flush");
}

/* ---- Another thread registers memory while data moves, as NCCL's service thread does ---- */

struct registering {
  struct end *end;
  atomic_bool stop;
  atomic_uint rounds;
  pthread_t thread;
};

static void *keep_registering(void *argument) {
  struct registering *registering = argument;
  struct end *end = registering->end;
  enum memory memory = end->memory == GPU_MEMORY ? GPU_MEMORY : HOST_MEMORY;
  int type = memory == GPU_MEMORY ? NCCL_PTR_CUDA : NCCL_PTR_HOST;
  struct buffer buffer = buffer_new(memory, 1 << 20);
  while (!atomic_load(&registering->stop)) {
    void *first = NULL, *second = NULL;
    must(net_reg(end->net, end->comm, buffer.data, buffer.size, type, &first),
         "regMr beside data");
    must(net_reg(end->net, end->comm, buffer.data + 100, 5000, type, &second),
         "regMr of a part beside data");
    if (!first || !second || first == second) fail("regMr gave %p and %p", first, second);
    must(net_dereg(end->net, end->comm, first), "deregMr beside data");
    must(net_dereg(end->net, end->comm, second), "deregMr beside data");
    atomic_fetch_add(&registering->rounds, 1);
    sleep_a_millisecond();
  }
  buffer_free(&buffer);
  return NULL;
}

static void begin_registering(struct registering *registering, struct end *end) {
  registering->end = end;
  atomic_init(&registering->stop, false);
  atomic_init(&registering->rounds, 0);
  if (pthread_create(&registering->thread, NULL, keep_registering, registering))
    fail("pthread_create");
  while (atomic_load(&registering->rounds) == 0) look_at_clock("the first registration");
}

static void end_registering(struct registering *registering) {
  atomic_store(&registering->stop, true);
  pthread_join(registering->thread, NULL);
}

/* ---- What is sent ---- */

static const size_t group_sizes[GROUP] = {65537, 0, 1, 127, 128, 1 << 20, 4096, 12345};
static const int receive_tags[GROUP] = {3, -1, 77, 0, 2147483647, 5, 6, 4};
/* The order in which the sender sends the buffers of the group. */
static const int send_order[GROUP] = {5, 1, 7, 0, 3, 2, 6, 4};

enum { OVERSIZE_SENT = 5000, OVERSIZE_POSTED = 1000, OUTSTANDING_SIZE = 65536, LOW_LATENCY = 8192 };

static size_t group_offset(int index) {
  size_t offset = 0;
  /* A gap behind each, to see what is written there. Odd offsets too. */
  for (int i = 0; i < index; i++) offset += group_sizes[i] + 333;
  return offset;
}

static size_t buffer_size(void) {
  size_t group = group_offset(GROUP);
  size_t outstanding = (size_t)OUTSTANDING * OUTSTANDING_SIZE;
  return group > outstanding ? group : outstanding;
}

/* A receive of all buffers, whose messages are sent in another order. */
static void send_group(struct end *end) {
  int sizes[2];
  void *requests[GROUP];
  for (int i = 0; i < GROUP; i++) {
    int k = send_order[i];
    requests[k] =
        start_send(end, group_offset(k), group_sizes[k], receive_tags[k], "isend in a group");
  }
  for (int k = 0; k < GROUP; k++) {
    finish(end, requests[k], 1, sizes, "send in a group");
    if ((size_t)sizes[0] != group_sizes[k])
      fail("sent %d bytes of %zu", sizes[0], group_sizes[k]);
  }
}

static void receive_group(struct end *end, size_t *offsets, size_t *capacities, int *tags) {
  int sizes[GROUP + 1];
  void *request = start_receive(end, GROUP, offsets, capacities, tags, "irecv of a group");
  finish(end, request, GROUP, sizes, "receive of a group");
  for (int k = 0; k < GROUP; k++)
    if ((size_t)sizes[k] != group_sizes[k])
      fail("received %d bytes of %zu with tag %d", sizes[k], group_sizes[k], tags[k]);
  flush(end, GROUP, offsets, sizes);
}

/* The same messages one by one. */
static void send_singly(struct end *end) {
  int sizes[2];
  for (int k = 0; k < GROUP; k++) {
    finish(end, start_send(end, group_offset(k), group_sizes[k], receive_tags[k], "isend"), 1,
           sizes, "send");
    if ((size_t)sizes[0] != group_sizes[k])
      fail("sent %d bytes of %zu", sizes[0], group_sizes[k]);
  }
}

static void receive_singly(struct end *end, size_t *offsets, size_t *capacities, int *tags) {
  int sizes[2];
  for (int k = 0; k < GROUP; k++) {
    void *request = start_receive(end, 1, offsets + k, capacities + k, tags + k, "irecv");
    finish(end, request, 1, sizes, "receive");
    if ((size_t)sizes[0] != group_sizes[k])
      fail("received %d bytes of %zu", sizes[0], group_sizes[k]);
    flush(end, 1, offsets + k, sizes);
  }
}

/* Receives that nobody waits for: whoever looks at the data itself sees it come, as in NCCL's protocols
 * LL and LL128. */
static void send_unawaited(struct end *end) {
  int sizes[2];
  for (unsigned i = 0; i < 4; i++) {
    fill(end->buffer + i * LOW_LATENCY, LOW_LATENCY, 300 + i);
    void *request = start_send(end, i * LOW_LATENCY, LOW_LATENCY, 13, "isend to whom looks");
    finish(end, request, 1, sizes, "send to whom looks");
  }
}

/* Whether a message is there, in memory that the device may be writing. */
static bool has_come(unsigned char *data, size_t size, unsigned seed) {
  unsigned char seen[LOW_LATENCY];
  for (size_t i = 0; i < size; i++)
    seen[i] = atomic_load_explicit((_Atomic unsigned char *)&data[i], memory_order_acquire);
  return find_wrong(seen, size, seed) == size;
}

static void receive_unawaited(struct end *end) {
  int sizes[2], tag = 13;
  size_t capacity = LOW_LATENCY;
  memset(end->buffer, CANARY, 4 * LOW_LATENCY);
  for (unsigned i = 0; i < 4; i++) {
    void *data = end->buffer + i * LOW_LATENCY, *request = NULL;
    while (!request) {
      request = (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION;
      must(net_irecv(end->net, end->comm, 1, &data, &capacity, &tag, &end->mhandle, &request),
           "irecv that is not awaited");
      if (request == (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION)
        fail("the mark of an optional completion is still there");
      look_at_clock("irecv that is not awaited");
    }
    /* The sender waits for the last of these: nothing has been sent yet. */
    int done = 0;
    must(net_test(end->net, request, &done, sizes), "test of a receive that is not awaited");
    if (!done) fail("a receive that nobody waits for is not done");
    if (i == 3) meet(10);
  }
  for (unsigned i = 0; i < 4; i++)
    while (!has_come(end->buffer + i * LOW_LATENCY, LOW_LATENCY, 300 + i))
      look_at_clock("data that comes by itself");
}

static void send_everything(struct end *end, bool logs) {
  int sizes[2];

  /* Nothing is posted at the other end yet: not ready, and not an error. */
  void *request = (void *)-1;
  must(net_isend(end->net, end->comm, end->buffer, 8, 1, end->mhandle, &request), "early isend");
  if (request) fail("a send began before there was a receive for it");
  meet(1);

  for (int k = 0; k < GROUP; k++)
    fill(end->buffer + group_offset(k), group_sizes[k], (unsigned)k);
  if (net_group(end->net) == GROUP) send_group(end);
  else send_singly(end);
  meet(2);

  /* No bytes, no memory handle. */
  void *mhandle = end->mhandle;
  end->mhandle = NULL;
  finish(end, start_send(end, 0, 0, 9, "isend of nothing"), 1, sizes, "send of nothing");
  if (sizes[0] != 0) fail("sent %d bytes of none", sizes[0]);
  end->mhandle = mhandle;

  /* More than is posted, twice. It is worth one warning for the whole connection; `finish` asks for
   * each request once more than it may, which is worth one each time. */
  int before = log_warnings();
  for (unsigned i = 0; i < 2; i++) {
    fill(end->buffer, OVERSIZE_SENT, 100 + i);
    finish(end, start_send(end, 0, OVERSIZE_SENT, 10, "isend of too much"), 1, sizes,
           "send of too much");
    if (sizes[0] != OVERSIZE_POSTED) fail("%d bytes of too much were sent", sizes[0]);
  }
  if (logs && log_warnings() - before != 1 + 2)
    fail("sending too much twice was worth %d warnings", log_warnings() - before - 2);
  meet(3);

  /* As many as may be outstanding, sizes not asked for. */
  void *outstanding[OUTSTANDING];
  int count = net_outstanding(end->net);
  for (int i = 0; i < count; i++) {
    size_t offset = (size_t)i * OUTSTANDING_SIZE;
    fill(end->buffer + offset, OUTSTANDING_SIZE, 200 + (unsigned)i);
    outstanding[i] = start_send(end, offset, OUTSTANDING_SIZE, 11, "isend of many");
  }
  for (int i = 0; i < count; i++) finish(end, outstanding[i], 1, NULL, "send of many");
  meet(4);
  if (!net_has_optional_receives(end->net)) return;
  meet(10);
  send_unawaited(end);
}

static void receive_everything(struct end *end) {
  int sizes[2];
  meet(1);

  size_t offsets[GROUP], capacities[GROUP];
  int tags[GROUP];
  for (int k = 0; k < GROUP; k++) {
    offsets[k] = group_offset(k);
    capacities[k] = group_sizes[k] + (k % 2 ? 100 : 0);
    tags[k] = receive_tags[k];
  }
  if (net_group(end->net) == GROUP) receive_group(end, offsets, capacities, tags);
  else receive_singly(end, offsets, capacities, tags);
  for (int k = 0; k < GROUP; k++) {
    verify(end->buffer + offsets[k], group_sizes[k], (unsigned)k, "a group");
    verify_untouched(end->buffer, offsets[k] + group_sizes[k], group_offset(k + 1), "a group");
  }
  meet(2);

  size_t offset = 0, capacity = 64;
  int tag = 9;
  memset(end->buffer, CANARY, end->whole.size);
  void *request = start_receive(end, 1, &offset, &capacity, &tag, "irecv of nothing");
  finish(end, request, 1, sizes, "receive of nothing");
  if (sizes[0] != 0) fail("received %d bytes of none", sizes[0]);

  for (unsigned i = 0; i < 2; i++) {
    capacity = OVERSIZE_POSTED;
    tag = 10;
    request = start_receive(end, 1, &offset, &capacity, &tag, "irecv of too much");
    finish(end, request, 1, sizes, "receive of too much");
    if (sizes[0] != OVERSIZE_POSTED) fail("received %d bytes of too much", sizes[0]);
    flush(end, 1, &offset, sizes);
    verify(end->buffer, OVERSIZE_POSTED, 100 + i, "too much");
    verify_untouched(end->buffer, OVERSIZE_POSTED, OVERSIZE_SENT, "too much");
  }
  meet(3);

  void *outstanding[OUTSTANDING];
  int count = net_outstanding(end->net);
  for (int i = 0; i < count; i++) {
    offset = (size_t)i * OUTSTANDING_SIZE;
    capacity = OUTSTANDING_SIZE;
    tag = 11;
    outstanding[i] = start_receive(end, 1, &offset, &capacity, &tag, "irecv of many");
  }
  for (int i = 0; i < count; i++) {
    finish(end, outstanding[i], 1, i % 2 ? NULL : sizes, "receive of many");
    offset = (size_t)i * OUTSTANDING_SIZE;
    if (i % 2 == 0) flush(end, 1, &offset, sizes);
    verify(end->buffer + offset, OUTSTANDING_SIZE, 200 + (unsigned)i, "many");
  }
  meet(4);
  if (net_has_optional_receives(end->net)) receive_unawaited(end);
}

/* ---- Connections ---- */

/* The memory that an end sends from or receives into. */
static void give_memory(struct end *end, enum memory memory) {
  end->memory = memory;
  end->whole = buffer_new(memory, buffer_size());
  end->buffer = end->whole.data;
  end->mhandle = buffer_register(&end->whole, end->net, end->comm);
}

static void send_round(const struct net *net, int device, enum memory memory, enum closing closing,
                       bool logs) {
  /* No longer than NCCL's own, so that a sanitizer sees what is read behind it. */
  char *handle = allocate_exactly(net_handle_size(net));
  channel_read(handle, net_handle_size(net));
  struct end end = {.net = net};
  while (!end.comm) {
    end.comm = (void *)-1;
    must(net_connect(net, device, handle, &end.comm), "connect");
    if (net_waits(net) && !end.comm) fail("connect did not wait for a communicator");
    look_at_clock("connect");
  }
  free(handle);
  give_memory(&end, memory);

  struct registering registering;
  begin_registering(&registering, &end);
  send_everything(&end, logs);
  end_registering(&registering);

  if (closing == WITH_REQUESTS) {
    /* Some of the receives that are posted get a message, and nobody waits for it. */
    meet(5);
    for (int i = 0; i < 4; i++)
      (void)start_send(&end, (size_t)i * OUTSTANDING_SIZE, OUTSTANDING_SIZE, 12, "last isend");
    meet(6);
  } else {
    must(net_dereg(net, end.comm, end.mhandle), "deregMr");
    if (net_dereg(net, end.comm, end.mhandle) == ncclSuccess) fail("deregMr worked twice");
  }
  must(net_dereg(net, end.comm, NULL), "deregMr of null");
  if (closing == RECEIVER_FIRST) meet(6);
  must(net_close_send(net, end.comm), "closeSend");
  if (closing == SENDER_FIRST) meet(6);
  if (net_close_send(net, end.comm) == ncclSuccess) fail("closeSend worked twice");
  must(net_close_send(net, NULL), "closeSend of null");
  meet(7);
  buffer_free(&end.whole);
}

static void receive_round(const struct net *net, int device, enum memory memory,
                          enum closing closing) {
  char *handle = allocate_exactly(net_handle_size(net));
  memset(handle, 0xaa, net_handle_size(net));
  void *listener = NULL;
  must(net_listen(net, device, handle, &listener), "listen");
  if (!listener) fail("listen gave no communicator");
  if (!net_waits(net)) {
    void *nobody = (void *)-1;
    must(net_accept(net, listener, &nobody), "early accept");
    if (nobody) fail("accepted somebody before anybody could know of it");
  }
  channel_write(handle, net_handle_size(net));
  free(handle);
  struct end end = {.net = net};
  while (!end.comm) {
    end.comm = (void *)-1;
    must(net_accept(net, listener, &end.comm), "accept");
    if (net_waits(net) && !end.comm) fail("accept did not wait for a communicator");
    look_at_clock("accept");
  }
  bool close_listener_last = closing == RECEIVER_FIRST;
  if (!close_listener_last) must(net_close_listen(net, listener), "closeListen");
  give_memory(&end, memory);

  struct registering registering;
  begin_registering(&registering, &end);
  receive_everything(&end);
  end_registering(&registering);

  if (closing == WITH_REQUESTS) {
    for (int i = 0; i < net_outstanding(net); i++) {
      size_t offset = (size_t)i * OUTSTANDING_SIZE, capacity = OUTSTANDING_SIZE;
      int tag = 12;
      (void)start_receive(&end, 1, &offset, &capacity, &tag, "last irecv");
    }
    meet(5);
    meet(6);
  } else {
    if (closing == SENDER_FIRST) {
      /* What has arrived can be flushed, although the sender is gone. */
      size_t offset = 0;
      int size = OUTSTANDING_SIZE;
      meet(6);
      flush(&end, 1, &offset, &size);
    }
    must(net_dereg(net, end.comm, end.mhandle), "deregMr");
  }
  must(net_dereg(net, end.comm, NULL), "deregMr of null");
  must(net_close_recv(net, end.comm), "closeRecv");
  if (closing == RECEIVER_FIRST) meet(6);
  if (net_close_recv(net, end.comm) == ncclSuccess) fail("closeRecv worked twice");
  must(net_close_recv(net, NULL), "closeRecv of null");
  if (close_listener_last) must(net_close_listen(net, listener), "closeListen");
  if (net_close_listen(net, listener) == ncclSuccess) fail("closeListen worked twice");
  must(net_close_listen(net, NULL), "closeListen of null");
  meet(7);
  buffer_free(&end.whole);
}

/* What the profiler was told of a connection that is closed: everything that began has ended, and it
 * was on the devices that the connection has. */
static void check_profile(const struct net *net, int device, bool sends) {
  struct profiled counts = profile_counts();
  if (counts.begun != counts.ended)
    fail("the profiler: %ld events began, %ld ended", counts.begun, counts.ended);
  if (!net->profiled) {
    if (counts.begun || counts.devices[0] || counts.devices[1])
      fail("the profiler: %ld events without a parent", counts.begun);
    return;
  }
  if (!counts.begun) fail("the profiler heard of nothing");
  struct properties properties;
  must(net_properties(net, device, &properties), "getProperties");
  uint64_t own[2] = {0, 0};
  for (int i = 0; i < properties.ndevs; i++)
    own[properties.devices[i] / 64] |= (uint64_t)1 << properties.devices[i] % 64;
  /* Messages are cut over all devices; what is announced takes one of them. */
  for (int half = 0; half < 2; half++)
    if (sends ? counts.devices[half] != own[half] : (counts.devices[half] & ~own[half]) != 0)
      fail("the profiler: events on devices %#llx of %#llx",
           (unsigned long long)counts.devices[half], (unsigned long long)own[half]);
}

void transfer(const struct net *net, int device, enum memory memory, int closings, bool first,
              bool logs) {
  struct net here = *net;
  for (int closing = SENDER_FIRST; closing <= WITH_REQUESTS; closing *= 2) {
    if (!(closings & closing)) continue;
    for (int turn = 0; turn < 2; turn++) {
      bool sends = (turn == 0) != first;
      /* With and without parents: the profiler has nothing to do with the data. */
      here.profiled = net_has_profiler(net) && closing != RECEIVER_FIRST;
      profile_forget();
      if (sends) send_round(&here, device, memory, (enum closing)closing, logs);
      else receive_round(&here, device, memory, (enum closing)closing);
      check_profile(&here, device, sends);
    }
  }
}
