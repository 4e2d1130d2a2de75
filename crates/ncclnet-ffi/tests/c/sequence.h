/* Random sequences of calls, right and wrong, against a model of what is allowed. */
#ifndef SEQUENCE_H
#define SEQUENCE_H

#include "net.h"

/*
 * For `seconds`, in this process, with connections between two devices. The same seed makes the same
 * choices (what the plugin's threads do meanwhile is not in its hand); a failure names it.
 */
void sequence(const char *plugin, int abi, const char *device, const char *peer_device,
              ncclDebugLogger_t logger, unsigned long seed, int seconds);

#endif
