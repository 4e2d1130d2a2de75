/* Two processes move data between two devices, in every way that NCCL does. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "net.h"

/*
 * Runs one end. The ends talk to each other over `in` and `out` beside the network; `first` is true
 * for one of them. Both send and receive in turn. With `logs`, log_line is the plugin's logger.
 */
void transfer(const struct net *net, int device, bool first, int in, int out, bool logs);

#endif
