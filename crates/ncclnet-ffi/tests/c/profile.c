/* See profile.h. */
#define _POSIX_C_SOURCE 200809L

#include "profile.h"

#include <stdlib.h>
#include <string.h>

/* What NCCL's callback reads through a parent: whether events of this kind are wanted. */
struct parent {
  unsigned magic;
  bool wanted;
};

/* Each is memory of its own until it ends, so that a sanitizer sees what is wrong with its use. */
struct event {
  unsigned magic;
};

enum { PARENT = 0x9a7e, EVENT = 0xe7e4, OVER = 0xdead };

static const struct parent parents[] = {{PARENT, true}, {PARENT, false}, {PARENT, true}};
static _Thread_local unsigned next_parent;
/* The plugin tells of the work of a connection in the thread that has its data path. */
static _Thread_local struct profiled counts;

void *profile_parent(void) { return (void *)&parents[next_parent++ % 3]; }

struct profiled profile_counts(void) { return counts; }

void profile_forget(void) { memset(&counts, 0, sizeof counts); }

static void begin(void **event, const struct parent *parent,
                  const ncclProfilerNetIbDescr_v1_t *description) {
  if (*event) fail("the profiler: an event begins as %p", *event);
  if (!parent || parent->magic != PARENT) fail("the profiler: %p is no parent", (void *)parent);
  if (!description || description->type != NCCL_PROFILE_QP)
    fail("the profiler: an event of another kind than a queue pair's");
  int device = description->qp.device;
  if (device < 0 || device >= 128) fail("the profiler: an event on device %d", device);
  if (description->qp.qpNum < 1 || description->qp.qpNum > 0xffffff)
    fail("the profiler: an event on queue pair %#x", (unsigned)description->qp.qpNum);
  if (description->qp.length > (size_t)1 << 31)
    fail("the profiler: an event of %zu bytes", description->qp.length);
  /* IBV_WR_RDMA_WRITE, and that with immediate. */
  if (description->qp.opcode != 0 && description->qp.opcode != 1)
    fail("the profiler: opcode %d", description->qp.opcode);
  counts.devices[device / 64] |= (uint64_t)1 << device % 64;
  if (!parent->wanted) return;
  struct event *new = malloc(sizeof *new);
  if (!new) fail("out of memory");
  new->magic = EVENT;
  *event = new;
  counts.begun++;
}

static void end(struct event *event) {
  if (!event || event->magic != EVENT)
    fail("the profiler: what ends is no event, or has ended (%p)", (void *)event);
  event->magic = OVER;
  free(event);
  counts.ended++;
}

ncclResult_t profile(void **event, int type, void *parent, int64_t plugin, void *description) {
  if (plugin != NCCL_PROFILER_NET_IB_V1) fail("the profiler: plugin %lld", (long long)plugin);
  if (!event) fail("the profiler: no place for an event");
  switch (type) {
  case NCCL_PROFILER_NET_START: begin(event, parent, description); break;
  case NCCL_PROFILER_NET_STOP: end(*event); break;
  default: fail("the profiler: call %d", type);
  }
  return ncclSuccess;
}
