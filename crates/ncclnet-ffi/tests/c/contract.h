/* What NCCL promises of its threads, and relies on. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "net.h"

/*
 * Connections between two devices in this process, each driven by a progress thread of its own, some of
 * which share a context, while service threads register memory with the same communicators and make,
 * use and close others. Every byte is checked.
 */
void contract(const char *plugin, int abi, const char *device, const char *peer_device,
              ncclDebugLogger_t logger);

#endif
