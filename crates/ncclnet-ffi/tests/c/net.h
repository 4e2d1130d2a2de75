/* The tables of all versions behind one set of functions, that of the newest version. */
#ifndef NET_H
#define NET_H

#include <stdbool.h>

#include "ncclnet_ibnet.h"
#include "support.h"

#define OLDEST 2
#define NEWEST 12

/* One loaded plugin, used through the table of one version. */
struct net {
  int abi;
  void *library; /* of dlopen */
  const void *table;
  void *ctx; /* of API version 11 and later, after net_init */
  bool profiled; /* whether messages have parents for the profiler (API version 10 and later) */
};

/* What a device is, with a default where a version does not say. */
struct properties {
  const char *name; /* of version 2: what version 3 says */
  const char *pci_path;
  uint64_t guid;
  int ptr_support;
  int speed;
  int port;
  int max_comms;
  int max_recvs;
  int device_type;
  int ndevs; /* 1 where the version has no virtual devices */
  int devices[NCCL_NET_MAX_DEVS_PER_NIC_V12];
  size_t max_p2p_bytes; /* 1 GiB, NCCL's own limit, where the version does not say */
  int reg_is_global;    /* -1 where the version does not say; so are those that follow */
  int force_flush;
  int max_multi_request_size;
  int rail, plane;
};

/* ---- What is different between versions ---- */

/* Whether connect and accept wait until they have a communicator. */
bool net_waits(const struct net *net);
/* Buffers of a receive, at most; where it is 1 there are no tags either. */
int net_group(const struct net *net);
/* Requests of one communicator that may be outstanding. */
int net_outstanding(const struct net *net);
/* Bytes of a handle. */
size_t net_handle_size(const struct net *net);
bool net_has_contexts(const struct net *net);
bool net_has_vdevices(const struct net *net);
bool net_has_profiler(const struct net *net);
/* Whether a receive may go without being waited for (NCCL_NET_OPTIONAL_RECV_COMPLETION). */
bool net_has_optional_receives(const struct net *net);

/* ---- The functions ---- */

/* Loads the plugin with dlopen, as NCCL does. Fails the program if that is not possible. */
void net_load(struct net *net, const char *path, int abi);
/* dlclose, as NCCL does with the last communicator. The plugin stays in memory, by its own wish. */
void net_unload(struct net *net);

ncclResult_t net_init(struct net *net, ncclDebugLogger_t logger);
/* With a traffic class for the communicator, where the version has contexts. */
ncclResult_t net_init_class(struct net *net, ncclDebugLogger_t logger, int traffic_class);
/* Nothing before API version 11. */
ncclResult_t net_finalize(struct net *net);
ncclResult_t net_devices(const struct net *net, int *ndev);
ncclResult_t net_properties(const struct net *net, int dev, struct properties *properties);
ncclResult_t net_listen(const struct net *net, int dev, void *handle, void **comm);
ncclResult_t net_connect(const struct net *net, int dev, void *handle, void **comm);
ncclResult_t net_accept(const struct net *net, void *listen_comm, void **comm);
ncclResult_t net_reg(const struct net *net, void *comm, void *data, size_t size, int type,
                     void **mhandle);
/* ncclInvalidUsage and null where the version has no such function. */
ncclResult_t net_reg_dmabuf(const struct net *net, void *comm, void *data, size_t size, int fd,
                            void **mhandle);
ncclResult_t net_dereg(const struct net *net, void *comm, void *mhandle);
ncclResult_t net_isend(const struct net *net, void *comm, void *data, size_t size, int tag,
                       void *mhandle, void **request);
/* Up to 16 buffers are passed on, more than a plugin may accept. Where there are no groups, more or
 * less than one is ncclInvalidArgument, and so is what such a version has no pointer for. */
ncclResult_t net_irecv(const struct net *net, void *comm, int n, void **data, size_t *sizes,
                       int *tags, void **mhandles, void **request);
/* As net_irecv. Where the function waits it leaves no request. */
ncclResult_t net_iflush(const struct net *net, void *comm, int n, void **data, int *sizes,
                        void **mhandles, void **request);
ncclResult_t net_test(const struct net *net, void *request, int *done, int *sizes);
ncclResult_t net_close_send(const struct net *net, void *comm);
ncclResult_t net_close_recv(const struct net *net, void *comm);
ncclResult_t net_close_listen(const struct net *net, void *comm);
/* ncclInvalidUsage where the version has no such function. */
ncclResult_t net_make_vdevice(const struct net *net, int *index, int count, const int *devices);

/* ---- What is always done in the same way ---- */

/*
 * The index of a device given by name or index. Several of them joined by + are made into one device,
 * or found to be one already.
 */
int find_device(const struct net *net, const char *wanted);

/* Both ends of a connection from `from` to `to`, made in one thread, as NCCL's GPU-direct probe does. */
void net_join(const struct net *net, int from, int to, void **listener, void **sender,
              void **receiver);

#endif
