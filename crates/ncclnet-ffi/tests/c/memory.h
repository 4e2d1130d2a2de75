/* Memory of the kinds that NCCL has. */
#ifndef MEMORY_H
#define MEMORY_H

#include "net.h"

enum memory {
  HOST_MEMORY,
  /* Host memory that plays a GPU's, which the plugin cannot tell from it. */
  GPU_MEMORY,
  /* A file that plays a GPU's memory as DMA-BUF, for devices that take any file for one. */
  DMABUF_MEMORY
};

/* What is in fresh memory. */
#define CANARY 0x5c

struct buffer {
  enum memory memory;
  unsigned char *data;
  size_t size;
  int fd; /* of a DMA-BUF; else -1 */
};

struct buffer buffer_new(enum memory memory, size_t size);
void buffer_free(struct buffer *buffer);

/* Registers all of it. Of a DMA-BUF the descriptor is closed then, as NCCL does: once. */
void *buffer_register(struct buffer *buffer, const struct net *net, void *comm);

#endif
