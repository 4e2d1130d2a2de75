/* See memory.h. */
#define _POSIX_C_SOURCE 200809L

#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file without a name. */
static int new_file(size_t size) {
  FILE *file = tmpfile();
  if (!file) fail("no temporary file");
  int fd = dup(fileno(file));
  fclose(file);
  if (fd < 0 || ftruncate(fd, (off_t)size)) fail("no temporary file of %zu bytes", size);
  return fd;
}

struct buffer buffer_new(enum memory memory, size_t size) {
  struct buffer buffer = {.memory = memory, .size = (size + 4095) & ~(size_t)4095, .fd = -1};
  if (memory == DMABUF_MEMORY) {
    buffer.fd = new_file(buffer.size);
    void *data = mmap(NULL, buffer.size, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.fd, 0);
    buffer.data = data == MAP_FAILED ? NULL : data;
  } else {
    buffer.data = aligned_alloc(4096, buffer.size);
  }
  if (!buffer.data) fail("out of memory");
  memset(buffer.data, CANARY, buffer.size);
  return buffer;
}

void buffer_free(struct buffer *buffer) {
  if (buffer->memory == DMABUF_MEMORY) munmap(buffer->data, buffer->size);
  else free(buffer->data);
  buffer->data = NULL;
}

void *buffer_register(struct buffer *buffer, const struct net *net, void *comm) {
  void *mhandle = NULL;
  if (buffer->memory == DMABUF_MEMORY) {
    must(net_reg_dmabuf(net, comm, buffer->data, buffer->size, buffer->fd, &mhandle),
         "regMrDmaBuf");
    close(buffer->fd);
  } else {
    int type = buffer->memory == GPU_MEMORY ? NCCL_PTR_CUDA : NCCL_PTR_HOST;
    must(net_reg(net, comm, buffer->data, buffer->size, type, &mhandle), "regMr");
  }
  if (!mhandle) fail("a registration without a handle");
  return mhandle;
}
