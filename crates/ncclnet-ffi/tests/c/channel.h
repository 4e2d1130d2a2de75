/* How two ends, processes or threads of one, talk beside the network. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "support.h"

/* The descriptors of this thread's channel to its partner. */
void use_channel(int in, int out);

void channel_write(const void *data, size_t size);
void channel_read(void *data, size_t size);

/* Both ends come here; `step` tells whether they agree where "here" is. */
void meet(int step);

#endif
