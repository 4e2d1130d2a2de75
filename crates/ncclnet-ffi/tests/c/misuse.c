/* See misuse.h. */
#define _POSIX_C_SOURCE 200809L

#include "misuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls;

/* The call must fail. */
#define REFUSED(call)                                     \
  do {                                                    \
    calls++;                                              \
    if ((call) == ncclSuccess) fail("worked: %s", #call); \
  } while (0)

/* In addition it must write null to `out`. */
#define REFUSED_WITH_NULL(call)                       \
  do {                                                \
    out = (void *)-1;                                 \
    REFUSED(call);                                    \
    if (out != NULL) fail("left %p: %s", out, #call); \
  } while (0)

/* NCCL's own transport calls these a fault of its core. */
#define REFUSED_AS_INTERNAL(call)                                                    \
  do {                                                                               \
    int result;                                                                      \
    REFUSED_WITH_NULL(result = (call));                                              \
    if (result != ncclInternalError) fail("%d and not ncclInternalError: %s", result, #call); \
  } while (0)

/* Values that are no handles. None of them may be followed. */
static void *const garbage[] = {
    NULL,
    (void *)1,
    (void *)0x1000,
    (void *)0x7fffffffffffULL,
    (void *)~0ULL,
    (void *)0x0123456789abcdefULL,
    /* These look like handles of the plugin, of each kind, that were never given out. */
    (void *)0x1000000000000fffULL,
    (void *)0x2000000000000fffULL,
    (void *)0x3000000000000fffULL,
    (void *)0x4000000000000fffULL,
    (void *)0x5000000000000fffULL,
    (void *)0x6fffffff00000001ULL,
    (void *)0x7fffffff00000001ULL,
    (void *)0x3fffffffffffffffULL,
    (void *)0x4fffffffffffffffULL,
};
#define GARBAGE (sizeof garbage / sizeof *garbage)

static char memory[4096];

/* Every function with `value` in place of a communicator, a request or a context. */
static void wrong_objects(struct net *net, void *value) {
  void *out;
  void *data[8] = {memory}, *mhandles[8] = {value};
  size_t sizes[8] = {16};
  int tags[8] = {0}, done = 7, int_sizes[8] = {16};

  REFUSED_WITH_NULL(net_accept(net, value, &out));
  REFUSED_WITH_NULL(net_reg(net, value, memory, sizeof memory, NCCL_PTR_HOST, &out));
  REFUSED_WITH_NULL(net_reg_dmabuf(net, value, memory, sizeof memory, 0, &out));
  REFUSED(net_dereg(net, value, (void *)0x5000000000000000ULL));
  REFUSED_WITH_NULL(net_isend(net, value, memory, 16, 0, value, &out));
  REFUSED_WITH_NULL(net_irecv(net, value, 1, data, sizes, tags, mhandles, &out));
  REFUSED_WITH_NULL(net_iflush(net, value, 1, data, int_sizes, mhandles, &out));
  REFUSED(net_test(net, value, &done, int_sizes));
  if (done != 0) fail("test of %p left done = %d", value, done);
  if (value) {
    REFUSED(net_close_send(net, value));
    REFUSED(net_close_recv(net, value));
    REFUSED(net_close_listen(net, value));
  } else {
    must(net_close_send(net, NULL), "closeSend of null");
    must(net_close_recv(net, NULL), "closeRecv of null");
    must(net_close_listen(net, NULL), "closeListen of null");
    must(net_dereg(net, NULL, NULL), "deregMr of nothing");
  }
  if (net_has_contexts(net) && value) {
    struct net other = *net;
    char handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
    other.ctx = value;
    REFUSED_WITH_NULL(net_listen(&other, 0, handle, &out));
    REFUSED_WITH_NULL(net_connect(&other, 0, handle, &out));
    REFUSED(net_finalize(&other));
  }
}

/* Out-parameters that are null, devices that are none. */
static void wrong_values(struct net *net, int count) {
  void *out;
  char handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
  struct properties properties;
  const int devices[] = {-1, count, 1 << 20, -2147483647 - 1, 2147483647};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    REFUSED(net_properties(net, devices[i], &properties));
    REFUSED_WITH_NULL(net_listen(net, devices[i], handle, &out));
    REFUSED_WITH_NULL(net_connect(net, devices[i], handle, &out));
  }
  REFUSED(net_devices(net, NULL));
  REFUSED(net_listen(net, 0, handle, NULL));
  REFUSED_WITH_NULL(net_listen(net, 0, NULL, &out));
  REFUSED(net_connect(net, 0, handle, NULL));
  REFUSED_WITH_NULL(net_connect(net, 0, NULL, &out));
  REFUSED_AS_INTERNAL(net_connect(net, 0, handle, &out));
  REFUSED(net_accept(net, NULL, NULL));
  REFUSED(net_reg(net, NULL, memory, 1, NCCL_PTR_HOST, NULL));
  REFUSED(net_test(net, NULL, NULL, NULL));
  const int members[8] = {0, 99, -1, 0, 1, 2, 3, 4};
  const int counts[] = {-1, 0, 2, 3, 5, 9, 2147483647};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    int index = -5;
    REFUSED(net_make_vdevice(net, &index, counts[i], members));
    if (index != -5) fail("a makeVDevice that failed wrote %d", index);
  }
}

/* Right handles in the wrong place. */
static void wrong_places(struct net *net, int device) {
  void *out;
  void *listener, *sender, *receiver;
  net_join(net, device, device, &listener, &sender, &receiver);
  void *listener2, *sender2, *receiver2;
  net_join(net, device, device, &listener2, &sender2, &receiver2);

  void *sending, *receiving, *foreign;
  must(net_reg(net, sender, memory, sizeof memory, NCCL_PTR_HOST, &sending), "regMr");
  must(net_reg(net, receiver, memory, sizeof memory, NCCL_PTR_HOST, &receiving), "regMr");
  must(net_reg(net, receiver2, memory, sizeof memory, NCCL_PTR_HOST, &foreign), "regMr");

  void *data[9] = {memory, memory, memory, memory, memory, memory, memory, memory, memory};
  void *mhandles[9] = {receiving, receiving, receiving, receiving, receiving,
                       receiving, receiving, receiving, receiving};
  size_t sizes[9] = {16, 16, 16, 16, 16, 16, 16, 16, 16};
  int tags[9] = {0}, int_sizes[9] = {16}, done;

  /* Registration. */
  REFUSED_WITH_NULL(net_reg(net, sender, NULL, 16, NCCL_PTR_HOST, &out));
  REFUSED_WITH_NULL(net_reg(net, sender, memory, 0, NCCL_PTR_HOST, &out));
  REFUSED_WITH_NULL(net_reg(net, sender, memory, SIZE_MAX, NCCL_PTR_HOST, &out));
  REFUSED_WITH_NULL(net_reg(net, sender, memory, 16, 0, &out));
  REFUSED_WITH_NULL(net_reg(net, sender, memory, 16, 99, &out));
  REFUSED_WITH_NULL(net_reg(net, listener, memory, 16, NCCL_PTR_HOST, &out));
  REFUSED_WITH_NULL(net_reg_dmabuf(net, sender, memory, 16, -1, &out));
  REFUSED(net_dereg(net, receiver, sending));
  REFUSED(net_dereg(net, sender, foreign));
  REFUSED(net_dereg(net, sender, sender));

  /* Sending. */
  REFUSED_WITH_NULL(net_isend(net, receiver, memory, 16, 0, receiving, &out));
  REFUSED_WITH_NULL(net_isend(net, listener, memory, 16, 0, sending, &out));
  REFUSED_WITH_NULL(net_isend(net, sender, memory, 16, 0, NULL, &out));
  REFUSED_WITH_NULL(net_isend(net, sender, memory, 16, 0, receiving, &out));
  REFUSED_WITH_NULL(net_isend(net, sender, memory, 16, 0, sender, &out));
  REFUSED_WITH_NULL(net_isend(net, sender, NULL, 16, 0, sending, &out));
  REFUSED_WITH_NULL(net_isend(net, sender, memory, SIZE_MAX, 0, sending, &out));
  REFUSED_WITH_NULL(net_isend(net, sender, memory, (size_t)1 << 31, 0, sending, &out));
  REFUSED(net_isend(net, sender, memory, 16, 0, sending, NULL));

  /* Receiving (pitfall 83). */
  REFUSED_WITH_NULL(net_irecv(net, sender, 1, data, sizes, tags, mhandles, &out));
  if (net->abi >= 5) {
    REFUSED_AS_INTERNAL(net_irecv(net, receiver, 0, data, sizes, tags, mhandles, &out));
    REFUSED_AS_INTERNAL(net_irecv(net, receiver, -1, data, sizes, tags, mhandles, &out));
    REFUSED_AS_INTERNAL(net_irecv(net, receiver, 9, data, sizes, tags, mhandles, &out));
  }
  REFUSED_WITH_NULL(net_irecv(net, receiver, 1, NULL, sizes, tags, mhandles, &out));
  REFUSED_WITH_NULL(net_irecv(net, receiver, 1, data, NULL, tags, mhandles, &out));
  REFUSED_WITH_NULL(net_irecv(net, receiver, 1, data, sizes, NULL, mhandles, &out));
  REFUSED_WITH_NULL(net_irecv(net, receiver, 1, data, sizes, tags, NULL, &out));
  REFUSED(net_irecv(net, receiver, 1, data, sizes, tags, mhandles, NULL));
  mhandles[1] = foreign;
  REFUSED_WITH_NULL(net_irecv(net, receiver, 2, data, sizes, tags, mhandles, &out));
  mhandles[0] = foreign;
  REFUSED_WITH_NULL(net_irecv(net, receiver, 1, data, sizes, tags, mhandles, &out));
  mhandles[0] = sender;
  REFUSED_WITH_NULL(net_irecv(net, receiver, 1, data, sizes, tags, mhandles, &out));
  mhandles[0] = receiving;
  mhandles[1] = NULL;
  REFUSED_WITH_NULL(net_irecv(net, receiver, 2, data, sizes, tags, mhandles, &out));
  mhandles[1] = receiving;
  data[1] = NULL;
  REFUSED_WITH_NULL(net_irecv(net, receiver, 2, data, sizes, tags, mhandles, &out));
  data[1] = memory;
  sizes[1] = SIZE_MAX;
  REFUSED_WITH_NULL(net_irecv(net, receiver, 2, data, sizes, tags, mhandles, &out));
  sizes[1] = 16;

  /* Flushing. */
  REFUSED_WITH_NULL(net_iflush(net, sender, 1, data, int_sizes, mhandles, &out));
  REFUSED_WITH_NULL(net_iflush(net, receiver, 0, data, int_sizes, mhandles, &out));
  REFUSED(net_iflush(net, receiver, 1, data, int_sizes, mhandles, NULL));
  REFUSED_WITH_NULL(net_iflush(net, receiver, 1, NULL, int_sizes, mhandles, &out));
  REFUSED_WITH_NULL(net_iflush(net, receiver, 1, data, NULL, mhandles, &out));
  REFUSED_WITH_NULL(net_iflush(net, receiver, 1, data, int_sizes, NULL, &out));
  int_sizes[0] = -1;
  REFUSED_WITH_NULL(net_iflush(net, receiver, 1, data, int_sizes, mhandles, &out));
  int_sizes[0] = 16;
  mhandles[0] = foreign;
  REFUSED_WITH_NULL(net_iflush(net, receiver, 1, data, int_sizes, mhandles, &out));
  mhandles[0] = receiving;

  /* A request, and what is none. */
  void *request;
  do {
    /* Flags that nobody knows are ignored. */
    request = (void *)0x44;
    must(net_irecv(net, receiver, 1, data, sizes, tags, mhandles, &request), "irecv");
    look_at_clock("irecv");
  } while (!request);
  REFUSED(net_test(net, request, NULL, NULL));
  REFUSED(net_test(net, (void *)((uintptr_t)request ^ 1), &done, NULL));
  REFUSED(net_test(net, (void *)((uintptr_t)request ^ ((uintptr_t)1 << 31)), &done, NULL));
  REFUSED(net_test(net, (void *)((uintptr_t)request ^ ((uintptr_t)1 << 60)), &done, NULL));
  REFUSED(net_test(net, receiver, &done, NULL));
  REFUSED(net_dereg(net, receiver, request));
  must(net_test(net, request, &done, NULL), "test of a request that is right");
  if (done) fail("a receive is done that nobody sent anything for");

  /* Closing the wrong way round. */
  REFUSED(net_close_send(net, receiver));
  REFUSED(net_close_recv(net, sender));
  REFUSED(net_close_listen(net, sender));
  REFUSED(net_close_send(net, listener));

  /* After all that the connection must still work. */
  memcpy(memory, "still as good as", 16);
  void *send = NULL;
  while (!send) {
    must(net_isend(net, sender, memory, 16, 0, sending, &send), "isend after misuse");
    look_at_clock("isend after misuse");
  }
  int sizes_out[2];
  for (int end = 0; end < 2; end++) {
    for (done = 0; !done;) {
      must(net_test(net, end ? send : request, &done, sizes_out), "test after misuse");
      look_at_clock("test after misuse");
    }
    if (sizes_out[0] != 16) fail("%d bytes after misuse", sizes_out[0]);
  }
  REFUSED(net_test(net, request, &done, NULL));

  /* After the end. */
  must(net_dereg(net, sender, sending), "deregMr");
  REFUSED(net_dereg(net, sender, sending));
  REFUSED_WITH_NULL(net_isend(net, sender, memory, 16, 0, sending, &out));
  must(net_close_send(net, sender), "closeSend");
  must(net_close_recv(net, receiver), "closeRecv with a registration left");
  must(net_close_listen(net, listener), "closeListen");
  wrong_objects(net, sender);
  wrong_objects(net, receiver);
  wrong_objects(net, listener);
  wrong_objects(net, sending);
  wrong_objects(net, receiving);
  wrong_objects(net, request);

  must(net_dereg(net, receiver2, foreign), "deregMr");
  must(net_close_recv(net, receiver2), "closeRecv");
  must(net_close_send(net, sender2), "closeSend");
  must(net_close_listen(net, listener2), "closeListen");
}

void misuse(const char *plugin, int abi, const char *device) {
  struct net net;
  net_load(&net, plugin, abi);

  /* Before init. */
  net.ctx = NULL;
  for (size_t i = 0; i < GARBAGE; i++) wrong_objects(&net, garbage[i]);
  wrong_values(&net, 0);

  bool has_devices = net_init(&net, log_line) == ncclSuccess;
  if (!has_devices) net.ctx = NULL;
  int count = 0;
  if (has_devices) must(net_devices(&net, &count), "devices");
  for (size_t i = 0; i < GARBAGE; i++) wrong_objects(&net, garbage[i]);
  wrong_values(&net, count);
  if (has_devices) {
    wrong_places(&net, find_device(&net, device));
    void *ctx = net.ctx;
    must(net_finalize(&net), "finalize");
    if (net_has_contexts(&net)) {
      /* After finalize. */
      net.ctx = ctx;
      REFUSED(net_finalize(&net));
      wrong_objects(&net, ctx);
    }
  }
  log_check();
  printf("version %d: %d wrong calls, %s devices: all are errors\n", abi, calls,
         has_devices ? "with" : "without");
}
