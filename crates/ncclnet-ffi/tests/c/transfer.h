/* Two ends move data between two devices, in every way that NCCL does. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "net.h"

/*
 * Runs one end in this thread. The ends, two processes or two threads of one, talk to each other over
 * `in` and `out` beside the network; `first` is true for one of them. Both send and receive in turn. With `logs`, log_line is the plugin's logger.
 */
void transfer(const struct net *net, int device, bool first, int in, int out, bool logs);

#endif
