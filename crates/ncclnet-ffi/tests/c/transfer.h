/* Two ends move data between two devices, in every way that NCCL does. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "memory.h"

/* The ways in which a connection ends, as bits. */
enum closing { SENDER_FIRST = 1, RECEIVER_FIRST = 2, TOGETHER = 4, WITH_REQUESTS = 8 };
#define ANY_CLOSING (SENDER_FIRST | RECEIVER_FIRST | TOGETHER | WITH_REQUESTS)

/*
 * Runs one end in this thread; `first` is true for one of the two. Both send and receive in turn, over a
 * connection for each of the `closings`. What is received is flushed unless it is in host memory. With
 * `logs`, log_line is the plugin's logger.
 */
void transfer(const struct net *net, int device, enum memory memory, int closings, bool first,
              bool logs);

#endif
