/*
 * The five tables behind one set of functions, and what every part of the driver needs: failing
 * with a message, deadlines, and the logger.
 */
#ifndef NET_H
#define NET_H

#include <stdbool.h>

#include "ncclnet_ibnet.h"

/* One loaded plugin, used through the table of one version. */
struct net {
  int abi;
  void *library; /* of dlopen */
  const void *table;
  void *ctx; /* of API version 11 and later, after net_init */
};

/* The properties that all versions have, and those that the newer ones add. */
struct properties {
  const char *name;
  const char *pci_path;
  uint64_t guid;
  int ptr_support;
  int speed;
  int port;
  int max_comms;
  int max_recvs;
  int device_type;
  int ndevs; /* 1 where the version has no virtual devices */
  int first_device;
  size_t max_p2p_bytes; /* 1 GiB, NCCL's own limit, where the version does not say */
};

/* Loads the plugin with dlopen, as NCCL does. Fails the program if that is not possible. */
void net_load(struct net *net, const char *path, int abi);
/* dlclose, as NCCL does with the last communicator. The plugin stays in memory, by its own wish. */
void net_unload(struct net *net);

ncclResult_t net_init(struct net *net, ncclDebugLogger_t logger);
/* Nothing before API version 11. */
ncclResult_t net_finalize(struct net *net);
ncclResult_t net_devices(const struct net *net, int *ndev);
ncclResult_t net_properties(const struct net *net, int dev, struct properties *properties);
ncclResult_t net_listen(const struct net *net, int dev, void *handle, void **comm);
ncclResult_t net_connect(const struct net *net, int dev, void *handle, void **comm);
ncclResult_t net_accept(const struct net *net, void *listen_comm, void **comm);
ncclResult_t net_reg(const struct net *net, void *comm, void *data, size_t size, int type,
                     void **mhandle);
ncclResult_t net_reg_dmabuf(const struct net *net, void *comm, void *data, size_t size, int fd,
                            void **mhandle);
ncclResult_t net_dereg(const struct net *net, void *comm, void *mhandle);
ncclResult_t net_isend(const struct net *net, void *comm, void *data, size_t size, int tag,
                       void *mhandle, void **request);
/* Up to 16 buffers are passed on, more than a plugin may accept. */
ncclResult_t net_irecv(const struct net *net, void *comm, int n, void **data, size_t *sizes,
                       int *tags, void **mhandles, void **request);
ncclResult_t net_iflush(const struct net *net, void *comm, int n, void **data, int *sizes,
                        void **mhandles, void **request);
ncclResult_t net_test(const struct net *net, void *request, int *done, int *sizes);
ncclResult_t net_close_send(const struct net *net, void *comm);
ncclResult_t net_close_recv(const struct net *net, void *comm);
ncclResult_t net_close_listen(const struct net *net, void *comm);
/* ncclInvalidUsage where the version has no such function. */
ncclResult_t net_make_vdevice(const struct net *net, int *index, int count, const int *devices);

/* ---- Support ---- */

/* Which end this thread is, for messages. */
extern _Thread_local const char *role;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the program if the result is not success. */
void must(ncclResult_t result, const char *what);

/* Threads and open files of the whole process. */
int count_threads(void);
int count_files(void);

/* From now on, look_at_clock fails the program after so many seconds. */
void set_deadline(int seconds);
void look_at_clock(const char *what);
/* Milliseconds that are left. */
int time_left(void);

/* A logger that prints to standard error, remembers the text, and notes lines that do not begin as
 * the plugin's lines must. */
void log_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
              const char *format, ...);
bool log_contains(const char *text);
void log_forget(void);
/* Warnings about calls of this thread since its last log_forget. */
int log_warnings(void);
/* Fails the program if a line of the log was not as it must be. */
void log_check(void);

#endif
