/*
 * NCCL's interface for network plugins, API versions 8 to 12, for 64-bit Linux.
 *
 * A plugin exports one constant table per version, ncclNetPlugin_v8 to ncclNetPlugin_v12. This
 * header declares the tables and everything that they mention, so that a C program can use a plugin
 * without NCCL's sources. Names are NCCL's; layouts are asserted below.
 *
 * Rules that hold for every function:
 *  - It returns at once. connect and accept leave *comm NULL, isend and irecv leave *request NULL,
 *    and test leaves *done 0 for "not yet: call again with the same arguments".
 *  - The logger, the profiler, the configuration, the context, profiler handles and the sizes of
 *    test may be NULL.
 *  - isend, irecv, iflush, test and the closing of one communicator belong to one thread at a time.
 *    regMr and deregMr of the same communicator may run on another one meanwhile.
 *  - Memory of a message stays untouched until test says done; registered memory stays mapped until
 *    deregMr.
 */
#ifndef NCCLNET_IBNET_H
#define NCCLNET_IBNET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define NCCLNET_ASSERT(condition, text) static_assert(condition, text)
#else
#define NCCLNET_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* ---- Constants ---- */

#define NCCL_NET_HANDLE_MAXSIZE 128
#define NCCL_NET_MAX_REQUESTS 32

#define NCCL_PTR_HOST 0x1
#define NCCL_PTR_CUDA 0x2
#define NCCL_PTR_DMABUF 0x4

/* Value that *request may have when irecv is called: nobody waits for the completion. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1

#define NCCL_NET_TRAFFIC_CLASS_UNDEF (-1)
#define NCCL_NET_ATTR_UNDEF (-1)
#define NCCL_NET_ID_UNDEF (-1)

#define NCCL_NET_MAX_DEVS_PER_NIC_V9 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6
} ncclResult_t;

typedef enum {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
  NCCL_LOG_ABORT = 4,
  NCCL_LOG_TRACE = 5
} ncclDebugLogLevel;

/* Subsystems, bits of the logger's flags. */
#define NCCL_INIT 0x1
#define NCCL_NET 0x10
#define NCCL_ENV 0x80
#define NCCL_REG 0x2000

typedef enum {
  NCCL_NET_DEVICE_HOST = 0,
  NCCL_NET_DEVICE_UNPACK = 1
} ncclNetDeviceType;

/* ---- What NCCL passes in ---- */

typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                  int line, const char *fmt, ...);

typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *pHandle,
                                               int64_t pluginId, void *extData);

/* One communicator's settings (API version 10 and later). */
typedef struct {
  int trafficClass;
} ncclNetCommConfig_t;

/* Hints of setNetAttr (API version 11 and later). */
typedef struct {
  int32_t maxConcurrentPeers;
  int32_t minConcurrentPeers;
  int32_t maxFlowsPerPeer;
  int32_t minFlowsPerPeer;
} ncclNetCommAttr_t;

typedef struct {
  ncclNetCommAttr_t sendCommAttr;
  ncclNetCommAttr_t recvCommAttr;
  uint32_t op;
  uint32_t algo;
  uint32_t proto;
} ncclNetAttr_t;

/* ---- What a plugin gives back ---- */

/* Networks that a GPU drives. Always absent here. */
typedef struct {
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  void *handle;
  size_t size;
  int needsProxyProgress;
} ncclNetDeviceHandle_t;

typedef struct {
  int ndevs;
  int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
} ncclNetVDeviceProps_v9_t; /* versions 9 to 11 */

typedef struct {
  int ndevs;
  int devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
} ncclNetVDeviceProps_v12_t;

typedef struct {
  char *name;
  char *pciPath;         /* NULL for a device that is not on a PCI bus */
  uint64_t guid;
  int ptrSupport;        /* NCCL_PTR_* bits */
  int regIsGlobal;
  int forceFlush;
  int speed;             /* Mb/s */
  int port;
  float latency;         /* microseconds, 0 is NCCL's default */
  int maxComms;
  int maxRecvs;          /* largest n of irecv */
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v12_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
} ncclNetProperties_v12_t;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v9_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
} ncclNetProperties_v11_t;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v9_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
} ncclNetProperties_v9_t; /* versions 9 and 10 */

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
} ncclNetProperties_v8_t;

/* ---- The tables, newest first ---- */

/* NCCL 2.30 and later: symbol ncclNetPlugin_v12. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_t *config,
                       ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
  ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm,
                          ncclNetDeviceHandle_t **sendDevComm);
  ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **recvDevComm);
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                              int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                        void *phandle, void **request);
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                        void **mhandles, void **phandles, void **request);
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                         void **request);
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* may be NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* may be NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props); /* may be NULL */
  ncclResult_t (*finalize)(void *ctx);
  ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_t *netAttr); /* may be NULL */
} ncclNet_v12_t;

/* NCCL 2.28 and 2.29: symbol ncclNetPlugin_v11. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_t *config,
                       ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
  ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm,
                          ncclNetDeviceHandle_t **sendDevComm);
  ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **recvDevComm);
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                              int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                        void *phandle, void **request);
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                        void **mhandles, void **phandles, void **request);
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                         void **request);
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* may be NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* may be NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* may be NULL */
  ncclResult_t (*finalize)(void *ctx);
  ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_t *netAttr); /* may be NULL */
} ncclNet_v11_t;

/* NCCL 2.26 and 2.27: symbol ncclNetPlugin_v10. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
  ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
  ncclResult_t (*connect)(int dev, ncclNetCommConfig_t *config, void *handle, void **sendComm,
                          ncclNetDeviceHandle_t **sendDevComm);
  ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **recvDevComm);
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                              int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                        void *phandle, void **request);
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                        void **mhandles, void **phandles, void **request);
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                         void **request);
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* may be NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* may be NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* may be NULL */
} ncclNet_v10_t;

/* NCCL 2.24 and 2.25: symbol ncclNetPlugin_v9. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(ncclDebugLogger_t logFunction);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
  ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
  ncclResult_t (*connect)(int dev, void *handle, void **sendComm,
                          ncclNetDeviceHandle_t **sendDevComm);
  ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **recvDevComm);
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                              int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                        void **request);
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                        void **mhandles, void **request);
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                         void **request);
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* may be NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* may be NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* may be NULL */
} ncclNet_v9_t;

/* NCCL 2.20 to 2.23: symbol ncclNetPlugin_v8. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(ncclDebugLogger_t logFunction);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v8_t *props);
  ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
  ncclResult_t (*connect)(int dev, void *handle, void **sendComm,
                          ncclNetDeviceHandle_t **sendDevComm);
  ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **recvDevComm);
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                              int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclResult_t (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle,
                        void **request);
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags,
                        void **mhandles, void **request);
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                         void **request);
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* may be NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* may be NULL */
} ncclNet_v8_t;

/* ---- Layout ---- */

#define NCCLNET_AT(type, field, offset) \
  NCCLNET_ASSERT(offsetof(type, field) == (offset), #type "." #field)
#define NCCLNET_SIZE(type, size) NCCLNET_ASSERT(sizeof(type) == (size), "size of " #type)

NCCLNET_SIZE(ncclResult_t, 4);

NCCLNET_SIZE(ncclNetDeviceType, 4);

NCCLNET_SIZE(ncclNetCommConfig_t, 4);
NCCLNET_AT(ncclNetCommConfig_t, trafficClass, 0);

NCCLNET_SIZE(ncclNetCommAttr_t, 16);
NCCLNET_AT(ncclNetCommAttr_t, maxConcurrentPeers, 0);
NCCLNET_AT(ncclNetCommAttr_t, minConcurrentPeers, 4);
NCCLNET_AT(ncclNetCommAttr_t, maxFlowsPerPeer, 8);
NCCLNET_AT(ncclNetCommAttr_t, minFlowsPerPeer, 12);

NCCLNET_SIZE(ncclNetAttr_t, 44);
NCCLNET_AT(ncclNetAttr_t, sendCommAttr, 0);
NCCLNET_AT(ncclNetAttr_t, recvCommAttr, 16);
NCCLNET_AT(ncclNetAttr_t, op, 32);
NCCLNET_AT(ncclNetAttr_t, algo, 36);
NCCLNET_AT(ncclNetAttr_t, proto, 40);

NCCLNET_SIZE(ncclNetDeviceHandle_t, 32);
NCCLNET_AT(ncclNetDeviceHandle_t, netDeviceType, 0);
NCCLNET_AT(ncclNetDeviceHandle_t, netDeviceVersion, 4);
NCCLNET_AT(ncclNetDeviceHandle_t, handle, 8);
NCCLNET_AT(ncclNetDeviceHandle_t, size, 16);
NCCLNET_AT(ncclNetDeviceHandle_t, needsProxyProgress, 24);

NCCLNET_SIZE(ncclNetVDeviceProps_v9_t, 20);
NCCLNET_AT(ncclNetVDeviceProps_v9_t, ndevs, 0);
NCCLNET_AT(ncclNetVDeviceProps_v9_t, devs, 4);

NCCLNET_SIZE(ncclNetVDeviceProps_v12_t, 36);
NCCLNET_AT(ncclNetVDeviceProps_v12_t, ndevs, 0);
NCCLNET_AT(ncclNetVDeviceProps_v12_t, devs, 4);

NCCLNET_SIZE(ncclNetProperties_v12_t, 128);
NCCLNET_AT(ncclNetProperties_v12_t, name, 0);
NCCLNET_AT(ncclNetProperties_v12_t, pciPath, 8);
NCCLNET_AT(ncclNetProperties_v12_t, guid, 16);
NCCLNET_AT(ncclNetProperties_v12_t, ptrSupport, 24);
NCCLNET_AT(ncclNetProperties_v12_t, regIsGlobal, 28);
NCCLNET_AT(ncclNetProperties_v12_t, forceFlush, 32);
NCCLNET_AT(ncclNetProperties_v12_t, speed, 36);
NCCLNET_AT(ncclNetProperties_v12_t, port, 40);
NCCLNET_AT(ncclNetProperties_v12_t, latency, 44);
NCCLNET_AT(ncclNetProperties_v12_t, maxComms, 48);
NCCLNET_AT(ncclNetProperties_v12_t, maxRecvs, 52);
NCCLNET_AT(ncclNetProperties_v12_t, netDeviceType, 56);
NCCLNET_AT(ncclNetProperties_v12_t, netDeviceVersion, 60);
NCCLNET_AT(ncclNetProperties_v12_t, vProps, 64);
NCCLNET_AT(ncclNetProperties_v12_t, maxP2pBytes, 104);
NCCLNET_AT(ncclNetProperties_v12_t, maxCollBytes, 112);
NCCLNET_AT(ncclNetProperties_v12_t, maxMultiRequestSize, 120);
NCCLNET_AT(ncclNetProperties_v12_t, railId, 124);
NCCLNET_AT(ncclNetProperties_v12_t, planeId, 126);

NCCLNET_SIZE(ncclNetProperties_v11_t, 112);
NCCLNET_AT(ncclNetProperties_v11_t, name, 0);
NCCLNET_AT(ncclNetProperties_v11_t, pciPath, 8);
NCCLNET_AT(ncclNetProperties_v11_t, guid, 16);
NCCLNET_AT(ncclNetProperties_v11_t, ptrSupport, 24);
NCCLNET_AT(ncclNetProperties_v11_t, regIsGlobal, 28);
NCCLNET_AT(ncclNetProperties_v11_t, forceFlush, 32);
NCCLNET_AT(ncclNetProperties_v11_t, speed, 36);
NCCLNET_AT(ncclNetProperties_v11_t, port, 40);
NCCLNET_AT(ncclNetProperties_v11_t, latency, 44);
NCCLNET_AT(ncclNetProperties_v11_t, maxComms, 48);
NCCLNET_AT(ncclNetProperties_v11_t, maxRecvs, 52);
NCCLNET_AT(ncclNetProperties_v11_t, netDeviceType, 56);
NCCLNET_AT(ncclNetProperties_v11_t, netDeviceVersion, 60);
NCCLNET_AT(ncclNetProperties_v11_t, vProps, 64);
NCCLNET_AT(ncclNetProperties_v11_t, maxP2pBytes, 88);
NCCLNET_AT(ncclNetProperties_v11_t, maxCollBytes, 96);
NCCLNET_AT(ncclNetProperties_v11_t, maxMultiRequestSize, 104);

NCCLNET_SIZE(ncclNetProperties_v9_t, 104);
NCCLNET_AT(ncclNetProperties_v9_t, name, 0);
NCCLNET_AT(ncclNetProperties_v9_t, pciPath, 8);
NCCLNET_AT(ncclNetProperties_v9_t, guid, 16);
NCCLNET_AT(ncclNetProperties_v9_t, ptrSupport, 24);
NCCLNET_AT(ncclNetProperties_v9_t, regIsGlobal, 28);
NCCLNET_AT(ncclNetProperties_v9_t, forceFlush, 32);
NCCLNET_AT(ncclNetProperties_v9_t, speed, 36);
NCCLNET_AT(ncclNetProperties_v9_t, port, 40);
NCCLNET_AT(ncclNetProperties_v9_t, latency, 44);
NCCLNET_AT(ncclNetProperties_v9_t, maxComms, 48);
NCCLNET_AT(ncclNetProperties_v9_t, maxRecvs, 52);
NCCLNET_AT(ncclNetProperties_v9_t, netDeviceType, 56);
NCCLNET_AT(ncclNetProperties_v9_t, netDeviceVersion, 60);
NCCLNET_AT(ncclNetProperties_v9_t, vProps, 64);
NCCLNET_AT(ncclNetProperties_v9_t, maxP2pBytes, 88);
NCCLNET_AT(ncclNetProperties_v9_t, maxCollBytes, 96);

NCCLNET_SIZE(ncclNetProperties_v8_t, 64);
NCCLNET_AT(ncclNetProperties_v8_t, name, 0);
NCCLNET_AT(ncclNetProperties_v8_t, pciPath, 8);
NCCLNET_AT(ncclNetProperties_v8_t, guid, 16);
NCCLNET_AT(ncclNetProperties_v8_t, ptrSupport, 24);
NCCLNET_AT(ncclNetProperties_v8_t, regIsGlobal, 28);
NCCLNET_AT(ncclNetProperties_v8_t, speed, 32);
NCCLNET_AT(ncclNetProperties_v8_t, port, 36);
NCCLNET_AT(ncclNetProperties_v8_t, latency, 40);
NCCLNET_AT(ncclNetProperties_v8_t, maxComms, 44);
NCCLNET_AT(ncclNetProperties_v8_t, maxRecvs, 48);
NCCLNET_AT(ncclNetProperties_v8_t, netDeviceType, 52);
NCCLNET_AT(ncclNetProperties_v8_t, netDeviceVersion, 56);

NCCLNET_SIZE(ncclNet_v12_t, 176);
NCCLNET_AT(ncclNet_v12_t, name, 0);
NCCLNET_AT(ncclNet_v12_t, init, 8);
NCCLNET_AT(ncclNet_v12_t, devices, 16);
NCCLNET_AT(ncclNet_v12_t, getProperties, 24);
NCCLNET_AT(ncclNet_v12_t, listen, 32);
NCCLNET_AT(ncclNet_v12_t, connect, 40);
NCCLNET_AT(ncclNet_v12_t, accept, 48);
NCCLNET_AT(ncclNet_v12_t, regMr, 56);
NCCLNET_AT(ncclNet_v12_t, regMrDmaBuf, 64);
NCCLNET_AT(ncclNet_v12_t, deregMr, 72);
NCCLNET_AT(ncclNet_v12_t, isend, 80);
NCCLNET_AT(ncclNet_v12_t, irecv, 88);
NCCLNET_AT(ncclNet_v12_t, iflush, 96);
NCCLNET_AT(ncclNet_v12_t, test, 104);
NCCLNET_AT(ncclNet_v12_t, closeSend, 112);
NCCLNET_AT(ncclNet_v12_t, closeRecv, 120);
NCCLNET_AT(ncclNet_v12_t, closeListen, 128);
NCCLNET_AT(ncclNet_v12_t, getDeviceMr, 136);
NCCLNET_AT(ncclNet_v12_t, irecvConsumed, 144);
NCCLNET_AT(ncclNet_v12_t, makeVDevice, 152);
NCCLNET_AT(ncclNet_v12_t, finalize, 160);
NCCLNET_AT(ncclNet_v12_t, setNetAttr, 168);

NCCLNET_SIZE(ncclNet_v11_t, 176);
NCCLNET_AT(ncclNet_v11_t, name, 0);
NCCLNET_AT(ncclNet_v11_t, init, 8);
NCCLNET_AT(ncclNet_v11_t, devices, 16);
NCCLNET_AT(ncclNet_v11_t, getProperties, 24);
NCCLNET_AT(ncclNet_v11_t, listen, 32);
NCCLNET_AT(ncclNet_v11_t, connect, 40);
NCCLNET_AT(ncclNet_v11_t, accept, 48);
NCCLNET_AT(ncclNet_v11_t, regMr, 56);
NCCLNET_AT(ncclNet_v11_t, regMrDmaBuf, 64);
NCCLNET_AT(ncclNet_v11_t, deregMr, 72);
NCCLNET_AT(ncclNet_v11_t, isend, 80);
NCCLNET_AT(ncclNet_v11_t, irecv, 88);
NCCLNET_AT(ncclNet_v11_t, iflush, 96);
NCCLNET_AT(ncclNet_v11_t, test, 104);
NCCLNET_AT(ncclNet_v11_t, closeSend, 112);
NCCLNET_AT(ncclNet_v11_t, closeRecv, 120);
NCCLNET_AT(ncclNet_v11_t, closeListen, 128);
NCCLNET_AT(ncclNet_v11_t, getDeviceMr, 136);
NCCLNET_AT(ncclNet_v11_t, irecvConsumed, 144);
NCCLNET_AT(ncclNet_v11_t, makeVDevice, 152);
NCCLNET_AT(ncclNet_v11_t, finalize, 160);
NCCLNET_AT(ncclNet_v11_t, setNetAttr, 168);

NCCLNET_SIZE(ncclNet_v10_t, 160);
NCCLNET_AT(ncclNet_v10_t, name, 0);
NCCLNET_AT(ncclNet_v10_t, init, 8);
NCCLNET_AT(ncclNet_v10_t, devices, 16);
NCCLNET_AT(ncclNet_v10_t, getProperties, 24);
NCCLNET_AT(ncclNet_v10_t, listen, 32);
NCCLNET_AT(ncclNet_v10_t, connect, 40);
NCCLNET_AT(ncclNet_v10_t, accept, 48);
NCCLNET_AT(ncclNet_v10_t, regMr, 56);
NCCLNET_AT(ncclNet_v10_t, regMrDmaBuf, 64);
NCCLNET_AT(ncclNet_v10_t, deregMr, 72);
NCCLNET_AT(ncclNet_v10_t, isend, 80);
NCCLNET_AT(ncclNet_v10_t, irecv, 88);
NCCLNET_AT(ncclNet_v10_t, iflush, 96);
NCCLNET_AT(ncclNet_v10_t, test, 104);
NCCLNET_AT(ncclNet_v10_t, closeSend, 112);
NCCLNET_AT(ncclNet_v10_t, closeRecv, 120);
NCCLNET_AT(ncclNet_v10_t, closeListen, 128);
NCCLNET_AT(ncclNet_v10_t, getDeviceMr, 136);
NCCLNET_AT(ncclNet_v10_t, irecvConsumed, 144);
NCCLNET_AT(ncclNet_v10_t, makeVDevice, 152);

NCCLNET_SIZE(ncclNet_v9_t, 160);
NCCLNET_AT(ncclNet_v9_t, name, 0);
NCCLNET_AT(ncclNet_v9_t, init, 8);
NCCLNET_AT(ncclNet_v9_t, devices, 16);
NCCLNET_AT(ncclNet_v9_t, getProperties, 24);
NCCLNET_AT(ncclNet_v9_t, listen, 32);
NCCLNET_AT(ncclNet_v9_t, connect, 40);
NCCLNET_AT(ncclNet_v9_t, accept, 48);
NCCLNET_AT(ncclNet_v9_t, regMr, 56);
NCCLNET_AT(ncclNet_v9_t, regMrDmaBuf, 64);
NCCLNET_AT(ncclNet_v9_t, deregMr, 72);
NCCLNET_AT(ncclNet_v9_t, isend, 80);
NCCLNET_AT(ncclNet_v9_t, irecv, 88);
NCCLNET_AT(ncclNet_v9_t, iflush, 96);
NCCLNET_AT(ncclNet_v9_t, test, 104);
NCCLNET_AT(ncclNet_v9_t, closeSend, 112);
NCCLNET_AT(ncclNet_v9_t, closeRecv, 120);
NCCLNET_AT(ncclNet_v9_t, closeListen, 128);
NCCLNET_AT(ncclNet_v9_t, getDeviceMr, 136);
NCCLNET_AT(ncclNet_v9_t, irecvConsumed, 144);
NCCLNET_AT(ncclNet_v9_t, makeVDevice, 152);

NCCLNET_SIZE(ncclNet_v8_t, 152);
NCCLNET_AT(ncclNet_v8_t, name, 0);
NCCLNET_AT(ncclNet_v8_t, init, 8);
NCCLNET_AT(ncclNet_v8_t, devices, 16);
NCCLNET_AT(ncclNet_v8_t, getProperties, 24);
NCCLNET_AT(ncclNet_v8_t, listen, 32);
NCCLNET_AT(ncclNet_v8_t, connect, 40);
NCCLNET_AT(ncclNet_v8_t, accept, 48);
NCCLNET_AT(ncclNet_v8_t, regMr, 56);
NCCLNET_AT(ncclNet_v8_t, regMrDmaBuf, 64);
NCCLNET_AT(ncclNet_v8_t, deregMr, 72);
NCCLNET_AT(ncclNet_v8_t, isend, 80);
NCCLNET_AT(ncclNet_v8_t, irecv, 88);
NCCLNET_AT(ncclNet_v8_t, iflush, 96);
NCCLNET_AT(ncclNet_v8_t, test, 104);
NCCLNET_AT(ncclNet_v8_t, closeSend, 112);
NCCLNET_AT(ncclNet_v8_t, closeRecv, 120);
NCCLNET_AT(ncclNet_v8_t, closeListen, 128);
NCCLNET_AT(ncclNet_v8_t, getDeviceMr, 136);
NCCLNET_AT(ncclNet_v8_t, irecvConsumed, 144);

#ifdef __cplusplus
}
#endif

#endif /* NCCLNET_IBNET_H */
