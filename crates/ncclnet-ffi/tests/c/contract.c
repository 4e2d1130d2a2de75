/* See contract.h. */
#define _POSIX_C_SOURCE 200809L

#include "contract.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 3, SERVERS = 2, ROUNDS = 12, MESSAGE = 70000, REGISTERED = 1 << 18 };

/* Both ends of a connection, and their memory. */
struct pair {
  const struct net *net;
  void *listener, *sender, *receiver;
  unsigned char *from, *to;
  void *sending, *receiving; /* memory handles */
  atomic_bool stop;
  unsigned messages;
};

static void open_pair(struct pair *pair, const struct net *net, int device, int peer_device) {
  memset(pair, 0, sizeof *pair);
  pair->net = net;
  net_join(net, device, peer_device, &pair->listener, &pair->sender, &pair->receiver);
  /* As NCCL does, right after it has accepted. */
  must(net_close_listen(net, pair->listener), "closeListen");
  pair->from = malloc(MESSAGE);
  pair->to = malloc(MESSAGE);
  if (!pair->from || !pair->to) fail("out of memory");
  must(net_reg(net, pair->sender, pair->from, MESSAGE, NCCL_PTR_HOST, &pair->sending), "regMr");
  must(net_reg(net, pair->receiver, pair->to, MESSAGE, NCCL_PTR_HOST, &pair->receiving), "regMr");
}

static void close_pair(struct pair *pair) {
  must(net_dereg(pair->net, pair->sender, pair->sending), "deregMr");
  must(net_dereg(pair->net, pair->receiver, pair->receiving), "deregMr");
  must(net_close_send(pair->net, pair->sender), "closeSend");
  must(net_close_recv(pair->net, pair->receiver), "closeRecv");
  free(pair->from);
  free(pair->to);
}

/* One message from end to end, with a size and bytes that follow from its number. */
static void one_message(struct pair *pair, unsigned number) {
  size_t size = 1 + number * 7919u % MESSAGE, capacity = MESSAGE;
  int tag = 5, done[2] = {0, 0}, sizes[2] = {-1, -1};
  for (size_t i = 0; i < size; i++) pair->from[i] = (unsigned char)(number + i * 31);
  memset(pair->to, 0, MESSAGE);
  void *data = pair->to, *requests[2] = {NULL, NULL};
  while (!requests[0]) {
    must(net_irecv(pair->net, pair->receiver, 1, &data, &capacity, &tag, &pair->receiving,
                   &requests[0]),
         "irecv");
    look_at_clock("irecv");
  }
  while (!requests[1]) {
    must(net_isend(pair->net, pair->sender, pair->from, size, tag, pair->sending, &requests[1]),
         "isend");
    look_at_clock("isend");
  }
  while (!done[0] || !done[1]) {
    for (int end = 0; end < 2; end++)
      if (!done[end]) must(net_test(pair->net, requests[end], &done[end], &sizes[end]), "test");
    look_at_clock("test");
  }
  if (sizes[0] != (int)size || sizes[1] != (int)size)
    fail("%d bytes received and %d sent of %zu", sizes[0], sizes[1], size);
  if (memcmp(pair->from, pair->to, size)) fail("the message is not what was sent");
}

static void *make_progress(void *argument) {
  struct pair *pair = argument;
  role = "progress";
  while (!atomic_load(&pair->stop)) one_message(pair, pair->messages++);
  return NULL;
}

struct server {
  const struct net *net;
  struct pair *busy; /* driven by another thread */
  int device, peer_device;
};

static void *serve(void *argument) {
  struct server *server = argument;
  const struct net *net = server->net;
  role = "service";
  char *memory = malloc(REGISTERED);
  if (!memory) fail("out of memory");
  for (unsigned round = 0; round < ROUNDS; round++) {
    void *first = NULL, *second = NULL;
    must(net_reg(net, server->busy->sender, memory, REGISTERED, NCCL_PTR_HOST, &first),
         "regMr with a busy sender");
    must(net_reg(net, server->busy->receiver, memory, REGISTERED, NCCL_PTR_HOST, &second),
         "regMr with a busy receiver");
    struct properties properties;
    int count;
    must(net_devices(net, &count), "devices");
    must(net_properties(net, (int)round % count, &properties), "getProperties");
    struct pair pair;
    open_pair(&pair, net, server->device, server->peer_device);
    one_message(&pair, round);
    must(net_dereg(net, server->busy->receiver, second), "deregMr with a busy receiver");
    must(net_dereg(net, server->busy->sender, first), "deregMr with a busy sender");
    close_pair(&pair);
  }
  free(memory);
  return NULL;
}

void contract(const char *plugin, int abi, const char *device, const char *peer_device,
              ncclDebugLogger_t logger) {
  /* Two communicators; the first has connections of two others that were split from it. */
  struct net nets[2];
  net_load(&nets[0], plugin, abi);
  nets[1] = nets[0];
  must(net_init_class(&nets[0], logger, 32), "init");
  must(net_init_class(&nets[1], logger, 96), "a second init");
  if (net_has_contexts(&nets[0]) && logger &&
      (!log_contains("traffic class 32") || !log_contains("traffic class 96")))
    fail("the log does not name the traffic classes of both communicators");
  int from = find_device(&nets[0], device), to = find_device(&nets[0], peer_device);

  int threads = count_threads();
  struct pair pairs[PAIRS];
  pthread_t progress[PAIRS], service[SERVERS];
  struct server servers[SERVERS];
  for (int i = 0; i < PAIRS; i++) open_pair(&pairs[i], &nets[i == PAIRS - 1], from, to);
  for (int i = 0; i < PAIRS; i++)
    if (pthread_create(&progress[i], NULL, make_progress, &pairs[i])) fail("pthread_create");
  for (int i = 0; i < SERVERS; i++) {
    servers[i] = (struct server){&nets[0], &pairs[i], from, to};
    if (pthread_create(&service[i], NULL, serve, &servers[i])) fail("pthread_create");
  }
  for (int i = 0; i < SERVERS; i++) pthread_join(service[i], NULL);

  /* One communicator ends while the connections of the other go on. */
  atomic_store(&pairs[PAIRS - 1].stop, true);
  pthread_join(progress[PAIRS - 1], NULL);
  close_pair(&pairs[PAIRS - 1]);
  must(net_finalize(&nets[1]), "finalize beside a busy communicator");
  for (int i = 0; i < PAIRS - 1; i++) {
    atomic_store(&pairs[i].stop, true);
    pthread_join(progress[i], NULL);
  }
  for (int i = 0; i < PAIRS - 1; i++) {
    one_message(&pairs[i], 77);
    close_pair(&pairs[i]);
  }
  /* Whoever accepts in the background (versions 2 to 4) goes with the last listener. */
  int after;
  for (int look = 0; (after = count_threads()) != threads && look < 1000; look++)
    sleep_a_millisecond();
  if (after != threads) fail("%d threads before the first connection, %d after", threads, after);
  must(net_finalize(&nets[0]), "finalize");
  log_check();
  unsigned messages = 0;
  for (int i = 0; i < PAIRS; i++) {
    if (!pairs[i].messages) fail("connection %d moved nothing", i);
    messages += pairs[i].messages;
  }
  printf("version %d: %u messages beside registering and connecting\n", abi, messages);
}
