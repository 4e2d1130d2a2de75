/* Two ends move data between two devices, in every way that NCCL does. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "net.h"

/*
 * Runs one end in this thread. The ends, two processes or two threads of one, talk to each other over
 * `in` and `out` beside the network; `first` is true for one of them. Both send and receive in turn.
 * Memory is registered as `type`; where that is not host memory, what is received is flushed. With
 * `logs`, log_line is the plugin's logger.
 */
void transfer(const struct net *net, int device, int type, bool first, int in, int out, bool logs);

/* Both ends come here; `step` tells whether they agree where "here" is. After `transfer` has begun. */
void meet(int step);

#endif
