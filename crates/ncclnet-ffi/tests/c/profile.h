/* A profiler, as NCCL is one to the plugin. */
#ifndef PROFILE_H
#define PROFILE_H

#include "support.h"

/* The callback for init. Fails the program over a call that breaks the contract: an event that is ended
 * twice or was never begun, a parent that is none, a description that makes no sense. */
ncclResult_t profile(void **event, int type, void *parent, int64_t plugin, void *description);

/* A parent for a message; the profiler is interested in the events of most of them. */
void *profile_parent(void);

/* What was told in this thread since profile_forget. */
struct profiled {
  long begun, ended;
  uint64_t devices[2]; /* a bit for each device that an event was on */
};
struct profiled profile_counts(void);
void profile_forget(void);

#endif
