/* See sequence.h. */
#define _POSIX_C_SOURCE 200809L

#include "sequence.h"

#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of misuse.c: REFUSED, REFUSED_WITH_NULL, wrong_objects, calls. */
#include "misuse.h"

enum { CONTEXTS = 3, PAIRS_AT_A_TIME = 4, RECEIVES = 6, PARTS = 8, SLOT = 3000, DEAD = 64 };

/* ---- The model ---- */

/* A receive that is posted: its buffers, and what has been sent to each. */
struct receive {
  void *request;
  int n;
  int place; /* which part of the memory of both ends is its own */
  size_t capacity[PARTS];
  bool sent[PARTS];
  size_t size[PARTS];   /* as it was sent */
  void *sending[PARTS]; /* requests of the sends that are not done */
};

/* A connection, from before it is there until both ends are closed. */
struct connection {
  bool used;
  struct net *net;
  void *listener, *sender, *receiver;
  char *handle;
  int from, to;      /* devices */
  bool broken;       /* an end was closed: errors are allowed */
  unsigned char *out, *in;
  void *sending, *receiving, *extra; /* memory handles */
  struct receive receives[RECEIVES]; /* oldest first */
  int posted;
};

struct model {
  struct net nets[CONTEXTS];
  bool live[CONTEXTS];
  struct connection pairs[PAIRS_AT_A_TIME];
  void *dead[DEAD]; /* values that were handles once */
  int deaths;
  int from, to;
  ncclDebugLogger_t logger;
  unsigned long state; /* of the random numbers */
  unsigned messages;
};

static unsigned choose(struct model *model, unsigned choices) {
  model->state ^= model->state << 13;
  model->state ^= model->state >> 7;
  model->state ^= model->state << 17;
  return (unsigned)(model->state >> 33) % choices;
}

static void bury(struct model *model, void *value) {
  if (value) model->dead[model->deaths++ % DEAD] = value;
}

static struct net *any_net(struct model *model) {
  int first = (int)choose(model, CONTEXTS);
  for (int i = 0; i < CONTEXTS; i++)
    if (model->live[(first + i) % CONTEXTS]) return &model->nets[(first + i) % CONTEXTS];
  return NULL;
}

/* Where buffer `k` of a receive is, in the memory of either end. */
static size_t slot(const struct receive *receive, int k) {
  return (size_t)(receive->place * PARTS + k) * SLOT;
}

/* ---- What is allowed ---- */

static void begin_context(struct model *model) {
  int i = (int)choose(model, CONTEXTS);
  if (model->live[i]) return;
  must(net_init_class(&model->nets[i], model->logger, (int)choose(model, 257) - 1), "init");
  model->live[i] = true;
}

static void end_context(struct model *model) {
  int i = (int)choose(model, CONTEXTS);
  struct net *net = &model->nets[i];
  if (!model->live[i] || !net_has_contexts(net)) return;
  void *ctx = net->ctx;
  must(net_finalize(net), "finalize");
  bury(model, ctx);
  model->live[i] = false;
  /* Connections of the context go on; one that is being made does not. */
  for (int p = 0; p < PAIRS_AT_A_TIME; p++)
    if (model->pairs[p].used && model->pairs[p].net == net && !model->pairs[p].sender)
      model->pairs[p].broken = true;
}

static void begin_pair(struct model *model, struct connection *pair) {
  struct net *net = any_net(model);
  if (!net) return;
  memset(pair, 0, sizeof *pair);
  pair->used = true;
  pair->net = net;
  pair->from = choose(model, 2) ? model->from : model->to;
  pair->to = choose(model, 2) ? model->from : model->to;
  size_t size = (size_t)RECEIVES * PARTS * SLOT;
  pair->handle = malloc(net_handle_size(net));
  pair->out = malloc(size);
  pair->in = malloc(size);
  if (!pair->handle || !pair->out || !pair->in) fail("out of memory");
  must(net_listen(net, pair->to, pair->handle, &pair->listener), "listen");
}

static void register_both(struct connection *pair) {
  size_t size = (size_t)RECEIVES * PARTS * SLOT;
  must(net_reg(pair->net, pair->sender, pair->out, size, NCCL_PTR_HOST, &pair->sending), "regMr");
  must(net_reg(pair->net, pair->receiver, pair->in, size, NCCL_PTR_HOST, &pair->receiving),
       "regMr");
}

static void go_on_connecting(struct model *model, struct connection *pair) {
  bool first = choose(model, 2);
  for (int i = 0; i < 2; i++) {
    ncclResult_t result = ncclSuccess;
    if ((i == 0) == first || net_waits(pair->net)) {
      if (!pair->sender) result = net_connect(pair->net, pair->from, pair->handle, &pair->sender);
    }
    if (result == ncclSuccess && ((i == 0) != first || net_waits(pair->net))) {
      if (!pair->receiver) result = net_accept(pair->net, pair->listener, &pair->receiver);
    }
    if (result != ncclSuccess && !pair->broken) fail("connecting: result %d", result);
  }
  if (pair->sender && pair->receiver) register_both(pair);
}

static void post_receive(struct model *model, struct connection *pair) {
  if (pair->posted == RECEIVES || !pair->receiving) return;
  struct receive receive = {.n = 1 + (int)choose(model, (unsigned)net_group(pair->net))};
  /* The first place that no other receive has. */
  for (int i = 0; i < pair->posted; i++)
    if (pair->receives[i].place == receive.place) {
      receive.place++;
      i = -1;
    }
  void *data[PARTS], *mhandles[PARTS];
  size_t sizes[PARTS];
  int tags[PARTS];
  for (int k = 0; k < receive.n; k++) {
    data[k] = pair->in + slot(&receive, k);
    sizes[k] = receive.capacity[k] = choose(model, SLOT);
    mhandles[k] = sizes[k] || choose(model, 2) ? pair->receiving : NULL;
    tags[k] = 10 + k;
    memset(data[k], 0x11, SLOT);
  }
  ncclResult_t result = net_irecv(pair->net, pair->receiver, receive.n, data, sizes, tags,
                                  mhandles, &receive.request);
  if (result != ncclSuccess && !pair->broken) fail("irecv: result %d", result);
  if (result == ncclSuccess && receive.request) pair->receives[pair->posted++] = receive;
}

static void send_message(struct model *model, struct connection *pair) {
  if (!pair->sending) return;
  size_t size = choose(model, 3) ? choose(model, SLOT) : 0;
  /* The oldest receive that lacks a message takes the next one. */
  struct receive *receive = NULL;
  int part = 0;
  for (int i = 0; i < pair->posted && !receive; i++)
    for (int k = 0; k < pair->receives[i].n; k++)
      if (!pair->receives[i].sent[k]) {
        receive = &pair->receives[i];
        part = k;
        /* Not always the first of a group. */
        if (choose(model, 2)) break;
      }
  unsigned char *data = pair->out;
  if (receive) {
    unsigned seed = choose(model, 1u << 20);
    data += slot(receive, part);
    for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(seed + i * 7 + (i >> 8));
  }
  void *request = NULL;
  ncclResult_t result = net_isend(pair->net, pair->sender, data, size, 10 + part,
                                  size ? pair->sending : NULL, &request);
  if (result != ncclSuccess && !pair->broken) fail("isend: result %d", result);
  if (result != ncclSuccess || !request) return;
  if (!receive) {
    /* A receiver that was closed had announced more than the model still knows. */
    if (!pair->broken) fail("a send began, and there is no receive for it");
    return;
  }
  receive->sent[part] = true;
  receive->size[part] = size < receive->capacity[part] ? size : receive->capacity[part];
  receive->sending[part] = request;
  model->messages++;
}

static void check_received(const struct connection *pair, const struct receive *receive,
                           const int *sizes) {
  for (int k = 0; k < receive->n; k++) {
    const unsigned char *data = pair->in + slot(receive, k), *sent = pair->out + slot(receive, k);
    if (!receive->sent[k]) fail("a receive is done, and buffer %d of it was not sent to", k);
    if ((size_t)sizes[k] != receive->size[k])
      fail("%d bytes received of %zu", sizes[k], receive->size[k]);
    if (memcmp(data, sent, receive->size[k])) fail("buffer %d is not as it was sent", k);
    for (size_t i = receive->size[k]; i < SLOT; i++)
      if (data[i] != 0x11) fail("byte %zu behind %zu received ones was written", i, receive->size[k]);
  }
}

static void test_something(struct model *model, struct connection *pair) {
  if (!pair->posted) return;
  int i = (int)choose(model, (unsigned)pair->posted), done = 7, sizes[PARTS + 1];
  struct receive *receive = &pair->receives[i];
  int part = (int)choose(model, (unsigned)receive->n);
  void *sending = pair->sender ? receive->sending[part] : NULL;
  if (sending && choose(model, 2)) {
    ncclResult_t result = net_test(pair->net, sending, &done, sizes);
    if (result != ncclSuccess && !pair->broken) fail("test of a send: result %d", result);
    if (done != 0 && done != 1) fail("done is %d", done);
    if (done && (size_t)sizes[0] != receive->size[part])
      fail("%d bytes sent of %zu", sizes[0], receive->size[part]);
    if (done) {
      bury(model, sending);
      receive->sending[part] = NULL;
    }
    return;
  }
  if (!pair->receiver || !receive->request) return;
  memset(sizes, 0x5a, sizeof sizes);
  int canary = sizes[PARTS];
  ncclResult_t result = net_test(pair->net, receive->request, &done, sizes);
  if (result != ncclSuccess && !pair->broken) fail("test of a receive: result %d", result);
  if (done != 0 && done != 1) fail("done is %d", done);
  if (sizes[receive->n] != canary) fail("more sizes than buffers were written");
  if (!done) return;
  if (!pair->broken) {
    check_received(pair, receive, sizes);
    void *data[1] = {pair->in + slot(receive, 0)}, *flush = (void *)-1;
    must(net_iflush(pair->net, pair->receiver, 1, data, sizes, &pair->receiving, &flush), "iflush");
    if (flush) fail("iflush of host memory gave a request");
  }
  bury(model, receive->request);
  receive->request = NULL;
}

/* Receives of which nothing is outstanding any more are forgotten. */
static void tidy(struct connection *pair) {
  for (int i = 0; i < pair->posted; i++) {
    bool over = !pair->receives[i].request;
    for (int k = 0; k < pair->receives[i].n; k++)
      if (pair->receives[i].sending[k]) over = false;
    if (!over) continue;
    memmove(&pair->receives[i], &pair->receives[i + 1],
            (size_t)(--pair->posted - i) * sizeof *pair->receives);
    i--;
  }
}

static void register_more(struct model *model, struct connection *pair) {
  void *comm = pair->sender;
  if (!comm) return;
  if (pair->extra) {
    must(net_dereg(pair->net, comm, pair->extra), "deregMr");
    bury(model, pair->extra);
    pair->extra = NULL;
  } else {
    size_t from = choose(model, SLOT), size = 1 + choose(model, SLOT);
    ncclResult_t result =
        net_reg(pair->net, comm, pair->out + from, size, NCCL_PTR_HOST, &pair->extra);
    if (result != ncclSuccess && !pair->broken) fail("regMr: result %d", result);
  }
}

static void close_something(struct model *model, struct connection *pair) {
  switch (choose(model, 3)) {
  case 0:
    if (!pair->listener) break;
    must(net_close_listen(pair->net, pair->listener), "closeListen");
    bury(model, pair->listener);
    pair->listener = NULL;
    if (!pair->receiver) pair->broken = true;
    break;
  case 1:
    if (!pair->sender) break;
    must(net_close_send(pair->net, pair->sender), "closeSend");
    bury(model, pair->sender);
    bury(model, pair->sending);
    bury(model, pair->extra);
    pair->sender = pair->sending = pair->extra = NULL;
    for (int i = 0; i < pair->posted; i++)
      for (int k = 0; k < pair->receives[i].n; k++) {
        bury(model, pair->receives[i].sending[k]);
        pair->receives[i].sending[k] = NULL;
      }
    pair->broken = true;
    break;
  default:
    if (!pair->receiver) break;
    must(net_close_recv(pair->net, pair->receiver), "closeRecv");
    bury(model, pair->receiver);
    bury(model, pair->receiving);
    pair->receiver = pair->receiving = NULL;
    for (int i = 0; i < pair->posted; i++) {
      bury(model, pair->receives[i].request);
      pair->receives[i].request = NULL;
    }
    pair->broken = true;
  }
  if (pair->broken && !pair->listener && !pair->sender && !pair->receiver) {
    free(pair->handle);
    free(pair->out);
    free(pair->in);
    pair->used = false;
  }
}

/* ---- What is not ---- */

/* Values that are right somewhere else. */
static void wrong_kinds(struct model *model, struct connection *pair) {
  struct net *net = pair->net;
  /* One more than a group may have. */
  void *out, *data[9] = {pair->out}, *mhandles[9] = {pair->receiving};
  size_t sizes[9] = {16};
  int tags[9] = {0}, done, few[9] = {16};
  if (pair->sender) {
    REFUSED_WITH_NULL(net_accept(net, pair->sender, &out));
    REFUSED_WITH_NULL(net_irecv(net, pair->sender, 1, data, sizes, tags, mhandles, &out));
    REFUSED_WITH_NULL(net_iflush(net, pair->sender, 1, data, few, mhandles, &out));
    REFUSED_WITH_NULL(net_isend(net, pair->sender, pair->out, 16, 0, pair->receiving, &out));
    REFUSED_WITH_NULL(net_isend(net, pair->sender, NULL, 16, 0, pair->sending, &out));
    REFUSED(net_test(net, pair->sender, &done, NULL));
    REFUSED(net_close_recv(net, pair->sender));
    REFUSED(net_close_listen(net, pair->sender));
  }
  if (pair->receiver) {
    REFUSED_WITH_NULL(net_accept(net, pair->receiver, &out));
    REFUSED_WITH_NULL(net_isend(net, pair->receiver, pair->in, 16, 0, pair->receiving, &out));
    mhandles[0] = pair->sending;
    REFUSED_WITH_NULL(net_irecv(net, pair->receiver, 1, data, sizes, tags, mhandles, &out));
    mhandles[0] = pair->receiving;
    REFUSED_WITH_NULL(net_irecv(net, pair->receiver, 9, data, sizes, tags, mhandles, &out));
    REFUSED_WITH_NULL(net_irecv(net, pair->receiver, 0, data, sizes, tags, mhandles, &out));
    REFUSED(net_test(net, pair->receiver, &done, NULL));
    REFUSED(net_close_send(net, pair->receiver));
  }
  if (pair->listener) {
    REFUSED_WITH_NULL(net_reg(net, pair->listener, pair->out, 16, NCCL_PTR_HOST, &out));
    REFUSED_WITH_NULL(net_isend(net, pair->listener, pair->out, 16, 0, pair->sending, &out));
    REFUSED(net_close_send(net, pair->listener));
    REFUSED(net_close_recv(net, pair->listener));
  }
  struct connection *other = &model->pairs[choose(model, PAIRS_AT_A_TIME)];
  if (other != pair && other->used && other->sender && pair->sender && other->sending) {
    /* Memory of the same device, registered for the same use (pitfall 65). */
    REFUSED_WITH_NULL(net_isend(net, pair->sender, other->out, 16, 0, other->sending, &out));
    REFUSED(net_dereg(net, pair->sender, other->sending));
  }
}

static void wrong_call(struct model *model, struct connection *pair) {
  /* A table is the same for all contexts; this one need not be live for calls that must fail. */
  struct net net = model->nets[0];
  void *value = model->dead[choose(model, DEAD)];
  if (value && choose(model, 4)) wrong_objects(&net, value);
  else if (pair->used) wrong_kinds(model, pair);
  if (choose(model, 16) == 0) {
    int count = 0;
    bool live = any_net(model) != NULL;
    if ((net_devices(&net, &count) == ncclSuccess) != live)
      fail("devices and init do not agree: %d contexts are live", live);
  }
}

/* ---- The sequence ---- */

static void step(struct model *model) {
  struct connection *pair = &model->pairs[choose(model, PAIRS_AT_A_TIME)];
  unsigned what = choose(model, 200);
  if (what == 0) end_context(model);
  else if (what <= 3) begin_context(model);
  else if (what <= 24) wrong_call(model, pair);
  else if (!pair->used) begin_pair(model, pair);
  else if (what == 25 || pair->broken) {
    if (choose(model, 3) == 0) close_something(model, pair);
    else if (choose(model, 2)) test_something(model, pair);
    else if (choose(model, 2)) send_message(model, pair);
    else post_receive(model, pair);
  } else if (!pair->sender || !pair->receiver) go_on_connecting(model, pair);
  else if (what <= 60) post_receive(model, pair);
  else if (what <= 110) send_message(model, pair);
  else if (what <= 120) register_more(model, pair);
  else test_something(model, pair);
  tidy(pair);
}

void sequence(const char *plugin, int abi, const char *device, const char *peer_device,
              ncclDebugLogger_t logger, unsigned long seed, int seconds) {
  static struct model model;
  static char where[64];
  memset(&model, 0, sizeof model);
  /* Zero would stay zero. */
  model.state = seed * 2 + 1;
  model.logger = logger;
  role = where;
  snprintf(where, sizeof where, "seed %lu", seed);
  net_load(&model.nets[0], plugin, abi);
  for (int i = 1; i < CONTEXTS; i++) model.nets[i] = model.nets[0];
  /* Messages of one context have parents for the profiler. */
  model.nets[1].profiled = net_has_profiler(&model.nets[1]);
  profile_forget();
  must(net_init(&model.nets[0], logger), "init");
  model.live[0] = true;
  model.from = find_device(&model.nets[0], device);
  model.to = find_device(&model.nets[0], peer_device);

  struct timespec begun, now;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  unsigned long steps = 0;
  do {
    for (int i = 0; i < 100; i++, steps++) {
      snprintf(where, sizeof where, "seed %lu, step %lu", seed, steps);
      step(&model);
    }
    look_at_clock("a step");
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begun.tv_sec < seconds);

  for (int p = 0; p < PAIRS_AT_A_TIME; p++)
    while (model.pairs[p].used) close_something(&model, &model.pairs[p]);
  for (int i = 0; i < CONTEXTS; i++)
    if (model.live[i]) must(net_finalize(&model.nets[i]), "finalize");
  log_check();
  struct profiled counts = profile_counts();
  if (counts.begun != counts.ended)
    fail("the profiler: %ld events began, %ld ended", counts.begun, counts.ended);
  if (!model.messages) fail("not one message was sent");
  printf("version %d, seed %lu: %lu steps, %u messages, %d wrong calls\n", abi, seed, steps,
         model.messages, calls);
}
