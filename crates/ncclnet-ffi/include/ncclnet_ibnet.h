/*
 * NCCL's interface for network plugins, API versions 2 to 12, for 64-bit Linux.
 *
 * A plugin exports one constant table per version, ncclNetPlugin_v2 to ncclNetPlugin_v12. This
 * header declares the tables and everything that they mention, so that a C program can use a plugin
 * without NCCL's sources. Names are NCCL's; layouts are asserted (ncclnet_ibnet_layout.h). What has
 * changed between versions is named for the version that introduced it.
 *
 * Rules that hold for every function:
 *  - It returns at once: connect and accept leave *comm NULL, isend and irecv leave *request NULL,
 *    and test leaves *done 0 for "not yet: call again with the same arguments". Up to version 4
 *    connect and accept wait instead, until they have a communicator; up to version 3 flush waits.
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
#endif

/* ---- Constants ---- */

#define NCCL_NET_HANDLE_MAXSIZE 128
#define NCCL_NET_HANDLE_MAXSIZE_V4 64 /* versions 2 to 4 */

/* Outstanding requests of one communicator. */
#define NCCL_NET_MAX_REQUESTS 32   /* version 7 and later */
#define NCCL_NET_MAX_REQUESTS_V6 8 /* versions 4 to 6 */
#define NCCL_NET_MAX_REQUESTS_V3 16

#define NCCL_PTR_HOST 0x1
#define NCCL_PTR_CUDA 0x2
#define NCCL_PTR_DMABUF 0x4

/* Value that *request may have when irecv is called: nobody waits for the completion. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1
#define NCCL_NET_MULTI_REQUEST 0x2

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

/* What the profiler's callback is called for; pluginId and extData of an InfiniBand network. */
#define NCCL_PROFILER_NET_START 0
#define NCCL_PROFILER_NET_STOP 1
#define NCCL_PROFILER_NET_IB_V1 ((int64_t)0x10001)
#define NCCL_PROFILE_QP 1

typedef struct {
  uint8_t type; /* NCCL_PROFILE_QP */
  union {
    struct {
      int device;
      uint64_t wr_id;
      int opcode;
      int qpNum;
      size_t length;
    } qp;
  };
} ncclProfilerNetIbDescr_v1_t;

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

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
} ncclNetProperties_v7_t;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
} ncclNetProperties_v5_t; /* versions 5 and 6 */

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  int maxComms;
} ncclNetProperties_v3_t; /* versions 3 and 4 */

/* ---- The functions whose signature has changed ---- */

typedef ncclResult_t (*ncclNetInit_v11_t)(void **ctx, uint64_t commId, ncclNetCommConfig_t *config,
                                          ncclDebugLogger_t logFunction,
                                          ncclProfilerCallback_t profFunction);
typedef ncclResult_t (*ncclNetInit_v10_t)(ncclDebugLogger_t logFunction,
                                          ncclProfilerCallback_t profFunction);
typedef ncclResult_t (*ncclNetInit_v2_t)(ncclDebugLogger_t logFunction);

typedef ncclResult_t (*ncclNetListen_v11_t)(void *ctx, int dev, void *handle, void **listenComm);
typedef ncclResult_t (*ncclNetListen_v2_t)(int dev, void *handle, void **listenComm);

typedef ncclResult_t (*ncclNetConnect_v11_t)(void *ctx, int dev, void *handle, void **sendComm,
                                             ncclNetDeviceHandle_t **sendDevComm);
typedef ncclResult_t (*ncclNetConnect_v10_t)(int dev, ncclNetCommConfig_t *config, void *handle,
                                             void **sendComm, ncclNetDeviceHandle_t **sendDevComm);
typedef ncclResult_t (*ncclNetConnect_v7_t)(int dev, void *handle, void **sendComm,
                                            ncclNetDeviceHandle_t **sendDevComm);
typedef ncclResult_t (*ncclNetConnect_v2_t)(int dev, void *handle, void **sendComm);

typedef ncclResult_t (*ncclNetAccept_v7_t)(void *listenComm, void **recvComm,
                                           ncclNetDeviceHandle_t **recvDevComm);
typedef ncclResult_t (*ncclNetAccept_v2_t)(void *listenComm, void **recvComm);

typedef ncclResult_t (*ncclNetRegMr_v8_t)(void *comm, void *data, size_t size, int type,
                                          void **mhandle);
typedef ncclResult_t (*ncclNetRegMr_v2_t)(void *comm, void *data, int size, int type,
                                          void **mhandle);
typedef ncclResult_t (*ncclNetRegMrDmaBuf_t)(void *comm, void *data, size_t size, int type,
                                             uint64_t offset, int fd, void **mhandle);

typedef ncclResult_t (*ncclNetIsend_v10_t)(void *sendComm, void *data, size_t size, int tag,
                                           void *mhandle, void *phandle, void **request);
typedef ncclResult_t (*ncclNetIsend_v9_t)(void *sendComm, void *data, size_t size, int tag,
                                          void *mhandle, void **request);
typedef ncclResult_t (*ncclNetIsend_v5_t)(void *sendComm, void *data, int size, int tag,
                                          void *mhandle, void **request);
typedef ncclResult_t (*ncclNetIsend_v2_t)(void *sendComm, void *data, int size, void *mhandle,
                                          void **request);

typedef ncclResult_t (*ncclNetIrecv_v10_t)(void *recvComm, int n, void **data, size_t *sizes,
                                           int *tags, void **mhandles, void **phandles,
                                           void **request);
typedef ncclResult_t (*ncclNetIrecv_v9_t)(void *recvComm, int n, void **data, size_t *sizes,
                                          int *tags, void **mhandles, void **request);
typedef ncclResult_t (*ncclNetIrecv_v5_t)(void *recvComm, int n, void **data, int *sizes,
                                          int *tags, void **mhandles, void **request);
typedef ncclResult_t (*ncclNetIrecv_v2_t)(void *recvComm, void *data, int size, void *mhandle,
                                          void **request);

typedef ncclResult_t (*ncclNetIflush_v5_t)(void *recvComm, int n, void **data, int *sizes,
                                           void **mhandles, void **request);
typedef ncclResult_t (*ncclNetIflush_v4_t)(void *recvComm, void *data, int size, void *mhandle,
                                           void **request);
typedef ncclResult_t (*ncclNetFlush_v2_t)(void *recvComm, void *data, int size, void *mhandle);

/* ---- The tables, newest first ---- */

/* NCCL 2.30 and later: symbol ncclNetPlugin_v12. */
typedef struct {
  const char *name;
  ncclNetInit_v11_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
  ncclNetListen_v11_t listen;
  ncclNetConnect_v11_t connect;
  ncclNetAccept_v7_t accept;
  ncclNetRegMr_v8_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v10_t isend;
  ncclNetIrecv_v10_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* or NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* or NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props); /* or NULL */
  ncclResult_t (*finalize)(void *ctx);
  ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_t *netAttr); /* or NULL */
} ncclNet_v12_t;

/* NCCL 2.28 and 2.29: symbol ncclNetPlugin_v11. */
typedef struct {
  const char *name;
  ncclNetInit_v11_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
  ncclNetListen_v11_t listen;
  ncclNetConnect_v11_t connect;
  ncclNetAccept_v7_t accept;
  ncclNetRegMr_v8_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v10_t isend;
  ncclNetIrecv_v10_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* or NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* or NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* or NULL */
  ncclResult_t (*finalize)(void *ctx);
  ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_t *netAttr); /* or NULL */
} ncclNet_v11_t;

/* NCCL 2.26 and 2.27: symbol ncclNetPlugin_v10. */
typedef struct {
  const char *name;
  ncclNetInit_v10_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v10_t connect;
  ncclNetAccept_v7_t accept;
  ncclNetRegMr_v8_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v10_t isend;
  ncclNetIrecv_v10_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* or NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* or NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* or NULL */
} ncclNet_v10_t;

/* NCCL 2.24 and 2.25: symbol ncclNetPlugin_v9. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v7_t connect;
  ncclNetAccept_v7_t accept;
  ncclNetRegMr_v8_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v9_t isend;
  ncclNetIrecv_v9_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* or NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* or NULL */
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* or NULL */
} ncclNet_v9_t;

/* NCCL 2.20 to 2.23: symbol ncclNetPlugin_v8. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v8_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v7_t connect;
  ncclNetAccept_v7_t accept;
  ncclNetRegMr_v8_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v5_t isend;
  ncclNetIrecv_v5_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* or NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* or NULL */
} ncclNet_v8_t;

/* NCCL 2.19: symbol ncclNetPlugin_v7. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v7_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v7_t connect;
  ncclNetAccept_v7_t accept;
  ncclNetRegMr_v2_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v5_t isend;
  ncclNetIrecv_v5_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); /* or NULL */
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request); /* or NULL */
} ncclNet_v7_t;

/* NCCL 2.13.4 to 2.18: symbol ncclNetPlugin_v6. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v5_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v2_t connect;
  ncclNetAccept_v2_t accept;
  ncclNetRegMr_v2_t regMr;
  ncclNetRegMrDmaBuf_t regMrDmaBuf;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v5_t isend;
  ncclNetIrecv_v5_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v6_t;

/* NCCL 2.12: symbol ncclNetPlugin_v5. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v5_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v2_t connect;
  ncclNetAccept_v2_t accept;
  ncclNetRegMr_v2_t regMr;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v5_t isend;
  ncclNetIrecv_v5_t irecv;
  ncclNetIflush_v5_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v5_t;

/* NCCL 2.8.3 to 2.11: symbol ncclNetPlugin_v4. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v3_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v2_t connect;
  ncclNetAccept_v2_t accept;
  ncclNetRegMr_v2_t regMr;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v2_t isend;
  ncclNetIrecv_v2_t irecv;
  ncclNetIflush_v4_t iflush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v4_t;

/* NCCL 2.6.4 and 2.7: symbol ncclNetPlugin_v3. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v3_t *props);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v2_t connect;
  ncclNetAccept_v2_t accept;
  ncclNetRegMr_v2_t regMr;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v2_t isend;
  ncclNetIrecv_v2_t irecv;
  ncclNetFlush_v2_t flush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v3_t;

/* NCCL 2.4.2 to 2.5: symbol ncclNetPlugin_v2. */
typedef struct {
  const char *name;
  ncclNetInit_v2_t init;
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*pciPath)(int dev, char **path); /* the caller frees it */
  ncclResult_t (*ptrSupport)(int dev, int *supportedTypes);
  ncclNetListen_v2_t listen;
  ncclNetConnect_v2_t connect;
  ncclNetAccept_v2_t accept;
  ncclNetRegMr_v2_t regMr;
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclNetIsend_v2_t isend;
  ncclNetIrecv_v2_t irecv;
  ncclNetFlush_v2_t flush;
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v2_t;

#ifdef __cplusplus
}
#endif

#include "ncclnet_ibnet_layout.h"

#endif /* NCCLNET_IBNET_H */
