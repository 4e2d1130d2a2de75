/*
 * The layout of every struct of ncclnet_ibnet.h, which includes this file: the sizes and offsets that
 * NCCL's own headers have on 64-bit Linux. They are asserted here; a program that wants them as a list
 * gives NCCLNET_LAYOUT two macros of its own.
 */
#ifndef NCCLNET_IBNET_LAYOUT_H
#define NCCLNET_IBNET_LAYOUT_H

/* SIZE(type, bytes), and AT(type, field, offset) for each of its fields. */
#define NCCLNET_LAYOUT(SIZE, AT) \
  SIZE(ncclResult_t, 4) \
  SIZE(ncclNetDeviceType, 4) \
  SIZE(ncclNetCommConfig_t, 4) \
    AT(ncclNetCommConfig_t, trafficClass, 0) \
  SIZE(ncclNetCommAttr_t, 16) \
    AT(ncclNetCommAttr_t, maxConcurrentPeers, 0) AT(ncclNetCommAttr_t, minConcurrentPeers, 4) \
    AT(ncclNetCommAttr_t, maxFlowsPerPeer, 8) AT(ncclNetCommAttr_t, minFlowsPerPeer, 12) \
  SIZE(ncclNetAttr_t, 44) \
    AT(ncclNetAttr_t, sendCommAttr, 0) AT(ncclNetAttr_t, recvCommAttr, 16) \
    AT(ncclNetAttr_t, op, 32) AT(ncclNetAttr_t, algo, 36) AT(ncclNetAttr_t, proto, 40) \
  SIZE(ncclProfilerNetIbDescr_v1_t, 40) \
    AT(ncclProfilerNetIbDescr_v1_t, type, 0) AT(ncclProfilerNetIbDescr_v1_t, qp, 8) \
    AT(ncclProfilerNetIbDescr_v1_t, qp.device, 8) AT(ncclProfilerNetIbDescr_v1_t, qp.wr_id, 16) \
    AT(ncclProfilerNetIbDescr_v1_t, qp.opcode, 24) AT(ncclProfilerNetIbDescr_v1_t, qp.qpNum, 28) \
    AT(ncclProfilerNetIbDescr_v1_t, qp.length, 32) \
  SIZE(ncclNetDeviceHandle_t, 32) \
    AT(ncclNetDeviceHandle_t, netDeviceType, 0) AT(ncclNetDeviceHandle_t, netDeviceVersion, 4) \
    AT(ncclNetDeviceHandle_t, handle, 8) AT(ncclNetDeviceHandle_t, size, 16) \
    AT(ncclNetDeviceHandle_t, needsProxyProgress, 24) \
  SIZE(ncclNetVDeviceProps_v9_t, 20) \
    AT(ncclNetVDeviceProps_v9_t, ndevs, 0) AT(ncclNetVDeviceProps_v9_t, devs, 4) \
  SIZE(ncclNetVDeviceProps_v12_t, 36) \
    AT(ncclNetVDeviceProps_v12_t, ndevs, 0) AT(ncclNetVDeviceProps_v12_t, devs, 4) \
  SIZE(ncclNetProperties_v12_t, 128) \
    AT(ncclNetProperties_v12_t, name, 0) AT(ncclNetProperties_v12_t, pciPath, 8) \
    AT(ncclNetProperties_v12_t, guid, 16) AT(ncclNetProperties_v12_t, ptrSupport, 24) \
    AT(ncclNetProperties_v12_t, regIsGlobal, 28) AT(ncclNetProperties_v12_t, forceFlush, 32) \
    AT(ncclNetProperties_v12_t, speed, 36) AT(ncclNetProperties_v12_t, port, 40) \
    AT(ncclNetProperties_v12_t, latency, 44) AT(ncclNetProperties_v12_t, maxComms, 48) \
    AT(ncclNetProperties_v12_t, maxRecvs, 52) AT(ncclNetProperties_v12_t, netDeviceType, 56) \
    AT(ncclNetProperties_v12_t, netDeviceVersion, 60) AT(ncclNetProperties_v12_t, vProps, 64) \
    AT(ncclNetProperties_v12_t, maxP2pBytes, 104) AT(ncclNetProperties_v12_t, maxCollBytes, 112) \
    AT(ncclNetProperties_v12_t, maxMultiRequestSize, 120) \
    AT(ncclNetProperties_v12_t, railId, 124) AT(ncclNetProperties_v12_t, planeId, 126) \
  SIZE(ncclNetProperties_v11_t, 112) \
    AT(ncclNetProperties_v11_t, name, 0) AT(ncclNetProperties_v11_t, pciPath, 8) \
    AT(ncclNetProperties_v11_t, guid, 16) AT(ncclNetProperties_v11_t, ptrSupport, 24) \
    AT(ncclNetProperties_v11_t, regIsGlobal, 28) AT(ncclNetProperties_v11_t, forceFlush, 32) \
    AT(ncclNetProperties_v11_t, speed, 36) AT(ncclNetProperties_v11_t, port, 40) \
    AT(ncclNetProperties_v11_t, latency, 44) AT(ncclNetProperties_v11_t, maxComms, 48) \
    AT(ncclNetProperties_v11_t, maxRecvs, 52) AT(ncclNetProperties_v11_t, netDeviceType, 56) \
    AT(ncclNetProperties_v11_t, netDeviceVersion, 60) AT(ncclNetProperties_v11_t, vProps, 64) \
    AT(ncclNetProperties_v11_t, maxP2pBytes, 88) AT(ncclNetProperties_v11_t, maxCollBytes, 96) \
    AT(ncclNetProperties_v11_t, maxMultiRequestSize, 104) \
  SIZE(ncclNetProperties_v9_t, 104) \
    AT(ncclNetProperties_v9_t, name, 0) AT(ncclNetProperties_v9_t, pciPath, 8) \
    AT(ncclNetProperties_v9_t, guid, 16) AT(ncclNetProperties_v9_t, ptrSupport, 24) \
    AT(ncclNetProperties_v9_t, regIsGlobal, 28) AT(ncclNetProperties_v9_t, forceFlush, 32) \
    AT(ncclNetProperties_v9_t, speed, 36) AT(ncclNetProperties_v9_t, port, 40) \
    AT(ncclNetProperties_v9_t, latency, 44) AT(ncclNetProperties_v9_t, maxComms, 48) \
    AT(ncclNetProperties_v9_t, maxRecvs, 52) AT(ncclNetProperties_v9_t, netDeviceType, 56) \
    AT(ncclNetProperties_v9_t, netDeviceVersion, 60) AT(ncclNetProperties_v9_t, vProps, 64) \
    AT(ncclNetProperties_v9_t, maxP2pBytes, 88) AT(ncclNetProperties_v9_t, maxCollBytes, 96) \
  SIZE(ncclNetProperties_v8_t, 64) \
    AT(ncclNetProperties_v8_t, name, 0) AT(ncclNetProperties_v8_t, pciPath, 8) \
    AT(ncclNetProperties_v8_t, guid, 16) AT(ncclNetProperties_v8_t, ptrSupport, 24) \
    AT(ncclNetProperties_v8_t, regIsGlobal, 28) AT(ncclNetProperties_v8_t, speed, 32) \
    AT(ncclNetProperties_v8_t, port, 36) AT(ncclNetProperties_v8_t, latency, 40) \
    AT(ncclNetProperties_v8_t, maxComms, 44) AT(ncclNetProperties_v8_t, maxRecvs, 48) \
    AT(ncclNetProperties_v8_t, netDeviceType, 52) \
    AT(ncclNetProperties_v8_t, netDeviceVersion, 56) \
  SIZE(ncclNetProperties_v7_t, 56) \
    AT(ncclNetProperties_v7_t, name, 0) AT(ncclNetProperties_v7_t, pciPath, 8) \
    AT(ncclNetProperties_v7_t, guid, 16) AT(ncclNetProperties_v7_t, ptrSupport, 24) \
    AT(ncclNetProperties_v7_t, speed, 28) AT(ncclNetProperties_v7_t, port, 32) \
    AT(ncclNetProperties_v7_t, latency, 36) AT(ncclNetProperties_v7_t, maxComms, 40) \
    AT(ncclNetProperties_v7_t, maxRecvs, 44) AT(ncclNetProperties_v7_t, netDeviceType, 48) \
    AT(ncclNetProperties_v7_t, netDeviceVersion, 52) \
  SIZE(ncclNetProperties_v5_t, 48) \
    AT(ncclNetProperties_v5_t, name, 0) AT(ncclNetProperties_v5_t, pciPath, 8) \
    AT(ncclNetProperties_v5_t, guid, 16) AT(ncclNetProperties_v5_t, ptrSupport, 24) \
    AT(ncclNetProperties_v5_t, speed, 28) AT(ncclNetProperties_v5_t, port, 32) \
    AT(ncclNetProperties_v5_t, latency, 36) AT(ncclNetProperties_v5_t, maxComms, 40) \
    AT(ncclNetProperties_v5_t, maxRecvs, 44) \
  SIZE(ncclNetProperties_v3_t, 40) \
    AT(ncclNetProperties_v3_t, name, 0) AT(ncclNetProperties_v3_t, pciPath, 8) \
    AT(ncclNetProperties_v3_t, guid, 16) AT(ncclNetProperties_v3_t, ptrSupport, 24) \
    AT(ncclNetProperties_v3_t, speed, 28) AT(ncclNetProperties_v3_t, port, 32) \
    AT(ncclNetProperties_v3_t, maxComms, 36) \
  SIZE(ncclNet_v12_t, 176) \
    AT(ncclNet_v12_t, name, 0) AT(ncclNet_v12_t, init, 8) AT(ncclNet_v12_t, devices, 16) \
    AT(ncclNet_v12_t, getProperties, 24) AT(ncclNet_v12_t, listen, 32) \
    AT(ncclNet_v12_t, connect, 40) AT(ncclNet_v12_t, accept, 48) AT(ncclNet_v12_t, regMr, 56) \
    AT(ncclNet_v12_t, regMrDmaBuf, 64) AT(ncclNet_v12_t, deregMr, 72) \
    AT(ncclNet_v12_t, isend, 80) AT(ncclNet_v12_t, irecv, 88) AT(ncclNet_v12_t, iflush, 96) \
    AT(ncclNet_v12_t, test, 104) AT(ncclNet_v12_t, closeSend, 112) \
    AT(ncclNet_v12_t, closeRecv, 120) AT(ncclNet_v12_t, closeListen, 128) \
    AT(ncclNet_v12_t, getDeviceMr, 136) AT(ncclNet_v12_t, irecvConsumed, 144) \
    AT(ncclNet_v12_t, makeVDevice, 152) AT(ncclNet_v12_t, finalize, 160) \
    AT(ncclNet_v12_t, setNetAttr, 168) \
  SIZE(ncclNet_v11_t, 176) \
    AT(ncclNet_v11_t, name, 0) AT(ncclNet_v11_t, init, 8) AT(ncclNet_v11_t, devices, 16) \
    AT(ncclNet_v11_t, getProperties, 24) AT(ncclNet_v11_t, listen, 32) \
    AT(ncclNet_v11_t, connect, 40) AT(ncclNet_v11_t, accept, 48) AT(ncclNet_v11_t, regMr, 56) \
    AT(ncclNet_v11_t, regMrDmaBuf, 64) AT(ncclNet_v11_t, deregMr, 72) \
    AT(ncclNet_v11_t, isend, 80) AT(ncclNet_v11_t, irecv, 88) AT(ncclNet_v11_t, iflush, 96) \
    AT(ncclNet_v11_t, test, 104) AT(ncclNet_v11_t, closeSend, 112) \
    AT(ncclNet_v11_t, closeRecv, 120) AT(ncclNet_v11_t, closeListen, 128) \
    AT(ncclNet_v11_t, getDeviceMr, 136) AT(ncclNet_v11_t, irecvConsumed, 144) \
    AT(ncclNet_v11_t, makeVDevice, 152) AT(ncclNet_v11_t, finalize, 160) \
    AT(ncclNet_v11_t, setNetAttr, 168) \
  SIZE(ncclNet_v10_t, 160) \
    AT(ncclNet_v10_t, name, 0) AT(ncclNet_v10_t, init, 8) AT(ncclNet_v10_t, devices, 16) \
    AT(ncclNet_v10_t, getProperties, 24) AT(ncclNet_v10_t, listen, 32) \
    AT(ncclNet_v10_t, connect, 40) AT(ncclNet_v10_t, accept, 48) AT(ncclNet_v10_t, regMr, 56) \
    AT(ncclNet_v10_t, regMrDmaBuf, 64) AT(ncclNet_v10_t, deregMr, 72) \
    AT(ncclNet_v10_t, isend, 80) AT(ncclNet_v10_t, irecv, 88) AT(ncclNet_v10_t, iflush, 96) \
    AT(ncclNet_v10_t, test, 104) AT(ncclNet_v10_t, closeSend, 112) \
    AT(ncclNet_v10_t, closeRecv, 120) AT(ncclNet_v10_t, closeListen, 128) \
    AT(ncclNet_v10_t, getDeviceMr, 136) AT(ncclNet_v10_t, irecvConsumed, 144) \
    AT(ncclNet_v10_t, makeVDevice, 152) \
  SIZE(ncclNet_v9_t, 160) \
    AT(ncclNet_v9_t, name, 0) AT(ncclNet_v9_t, init, 8) AT(ncclNet_v9_t, devices, 16) \
    AT(ncclNet_v9_t, getProperties, 24) AT(ncclNet_v9_t, listen, 32) \
    AT(ncclNet_v9_t, connect, 40) AT(ncclNet_v9_t, accept, 48) AT(ncclNet_v9_t, regMr, 56) \
    AT(ncclNet_v9_t, regMrDmaBuf, 64) AT(ncclNet_v9_t, deregMr, 72) AT(ncclNet_v9_t, isend, 80) \
    AT(ncclNet_v9_t, irecv, 88) AT(ncclNet_v9_t, iflush, 96) AT(ncclNet_v9_t, test, 104) \
    AT(ncclNet_v9_t, closeSend, 112) AT(ncclNet_v9_t, closeRecv, 120) \
    AT(ncclNet_v9_t, closeListen, 128) AT(ncclNet_v9_t, getDeviceMr, 136) \
    AT(ncclNet_v9_t, irecvConsumed, 144) AT(ncclNet_v9_t, makeVDevice, 152) \
  SIZE(ncclNet_v8_t, 152) \
    AT(ncclNet_v8_t, name, 0) AT(ncclNet_v8_t, init, 8) AT(ncclNet_v8_t, devices, 16) \
    AT(ncclNet_v8_t, getProperties, 24) AT(ncclNet_v8_t, listen, 32) \
    AT(ncclNet_v8_t, connect, 40) AT(ncclNet_v8_t, accept, 48) AT(ncclNet_v8_t, regMr, 56) \
    AT(ncclNet_v8_t, regMrDmaBuf, 64) AT(ncclNet_v8_t, deregMr, 72) AT(ncclNet_v8_t, isend, 80) \
    AT(ncclNet_v8_t, irecv, 88) AT(ncclNet_v8_t, iflush, 96) AT(ncclNet_v8_t, test, 104) \
    AT(ncclNet_v8_t, closeSend, 112) AT(ncclNet_v8_t, closeRecv, 120) \
    AT(ncclNet_v8_t, closeListen, 128) AT(ncclNet_v8_t, getDeviceMr, 136) \
    AT(ncclNet_v8_t, irecvConsumed, 144) \
  SIZE(ncclNet_v7_t, 152) \
    AT(ncclNet_v7_t, name, 0) AT(ncclNet_v7_t, init, 8) AT(ncclNet_v7_t, devices, 16) \
    AT(ncclNet_v7_t, getProperties, 24) AT(ncclNet_v7_t, listen, 32) \
    AT(ncclNet_v7_t, connect, 40) AT(ncclNet_v7_t, accept, 48) AT(ncclNet_v7_t, regMr, 56) \
    AT(ncclNet_v7_t, regMrDmaBuf, 64) AT(ncclNet_v7_t, deregMr, 72) AT(ncclNet_v7_t, isend, 80) \
    AT(ncclNet_v7_t, irecv, 88) AT(ncclNet_v7_t, iflush, 96) AT(ncclNet_v7_t, test, 104) \
    AT(ncclNet_v7_t, closeSend, 112) AT(ncclNet_v7_t, closeRecv, 120) \
    AT(ncclNet_v7_t, closeListen, 128) AT(ncclNet_v7_t, getDeviceMr, 136) \
    AT(ncclNet_v7_t, irecvConsumed, 144) \
  SIZE(ncclNet_v6_t, 136) \
    AT(ncclNet_v6_t, name, 0) AT(ncclNet_v6_t, init, 8) AT(ncclNet_v6_t, devices, 16) \
    AT(ncclNet_v6_t, getProperties, 24) AT(ncclNet_v6_t, listen, 32) \
    AT(ncclNet_v6_t, connect, 40) AT(ncclNet_v6_t, accept, 48) AT(ncclNet_v6_t, regMr, 56) \
    AT(ncclNet_v6_t, regMrDmaBuf, 64) AT(ncclNet_v6_t, deregMr, 72) AT(ncclNet_v6_t, isend, 80) \
    AT(ncclNet_v6_t, irecv, 88) AT(ncclNet_v6_t, iflush, 96) AT(ncclNet_v6_t, test, 104) \
    AT(ncclNet_v6_t, closeSend, 112) AT(ncclNet_v6_t, closeRecv, 120) \
    AT(ncclNet_v6_t, closeListen, 128) \
  SIZE(ncclNet_v5_t, 128) \
    AT(ncclNet_v5_t, name, 0) AT(ncclNet_v5_t, init, 8) AT(ncclNet_v5_t, devices, 16) \
    AT(ncclNet_v5_t, getProperties, 24) AT(ncclNet_v5_t, listen, 32) \
    AT(ncclNet_v5_t, connect, 40) AT(ncclNet_v5_t, accept, 48) AT(ncclNet_v5_t, regMr, 56) \
    AT(ncclNet_v5_t, deregMr, 64) AT(ncclNet_v5_t, isend, 72) AT(ncclNet_v5_t, irecv, 80) \
    AT(ncclNet_v5_t, iflush, 88) AT(ncclNet_v5_t, test, 96) AT(ncclNet_v5_t, closeSend, 104) \
    AT(ncclNet_v5_t, closeRecv, 112) AT(ncclNet_v5_t, closeListen, 120) \
  SIZE(ncclNet_v4_t, 128) \
    AT(ncclNet_v4_t, name, 0) AT(ncclNet_v4_t, init, 8) AT(ncclNet_v4_t, devices, 16) \
    AT(ncclNet_v4_t, getProperties, 24) AT(ncclNet_v4_t, listen, 32) \
    AT(ncclNet_v4_t, connect, 40) AT(ncclNet_v4_t, accept, 48) AT(ncclNet_v4_t, regMr, 56) \
    AT(ncclNet_v4_t, deregMr, 64) AT(ncclNet_v4_t, isend, 72) AT(ncclNet_v4_t, irecv, 80) \
    AT(ncclNet_v4_t, iflush, 88) AT(ncclNet_v4_t, test, 96) AT(ncclNet_v4_t, closeSend, 104) \
    AT(ncclNet_v4_t, closeRecv, 112) AT(ncclNet_v4_t, closeListen, 120) \
  SIZE(ncclNet_v3_t, 128) \
    AT(ncclNet_v3_t, name, 0) AT(ncclNet_v3_t, init, 8) AT(ncclNet_v3_t, devices, 16) \
    AT(ncclNet_v3_t, getProperties, 24) AT(ncclNet_v3_t, listen, 32) \
    AT(ncclNet_v3_t, connect, 40) AT(ncclNet_v3_t, accept, 48) AT(ncclNet_v3_t, regMr, 56) \
    AT(ncclNet_v3_t, deregMr, 64) AT(ncclNet_v3_t, isend, 72) AT(ncclNet_v3_t, irecv, 80) \
    AT(ncclNet_v3_t, flush, 88) AT(ncclNet_v3_t, test, 96) AT(ncclNet_v3_t, closeSend, 104) \
    AT(ncclNet_v3_t, closeRecv, 112) AT(ncclNet_v3_t, closeListen, 120) \
  SIZE(ncclNet_v2_t, 136) \
    AT(ncclNet_v2_t, name, 0) AT(ncclNet_v2_t, init, 8) AT(ncclNet_v2_t, devices, 16) \
    AT(ncclNet_v2_t, pciPath, 24) AT(ncclNet_v2_t, ptrSupport, 32) AT(ncclNet_v2_t, listen, 40) \
    AT(ncclNet_v2_t, connect, 48) AT(ncclNet_v2_t, accept, 56) AT(ncclNet_v2_t, regMr, 64) \
    AT(ncclNet_v2_t, deregMr, 72) AT(ncclNet_v2_t, isend, 80) AT(ncclNet_v2_t, irecv, 88) \
    AT(ncclNet_v2_t, flush, 96) AT(ncclNet_v2_t, test, 104) AT(ncclNet_v2_t, closeSend, 112) \
    AT(ncclNet_v2_t, closeRecv, 120) AT(ncclNet_v2_t, closeListen, 128)

#ifdef __cplusplus
#define NCCLNET_ASSERT(condition, text) static_assert(condition, text);
#else
#define NCCLNET_ASSERT(condition, text) _Static_assert(condition, text);
#endif
#define NCCLNET_ASSERT_SIZE(type, bytes) \
  NCCLNET_ASSERT(sizeof(type) == (bytes), "size of " #type)
#define NCCLNET_ASSERT_AT(type, field, offset) \
  NCCLNET_ASSERT(offsetof(type, field) == (offset), #type "." #field)

NCCLNET_LAYOUT(NCCLNET_ASSERT_SIZE, NCCLNET_ASSERT_AT)

#endif /* NCCLNET_IBNET_LAYOUT_H */
