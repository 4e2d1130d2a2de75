/* See net.h. */
#define _POSIX_C_SOURCE 200809L

#include "net.h"

#include "profile.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BUFFERS 16

/* The table of version N. */
#define V(N) ((const ncclNet_v##N##_t *)net->table)

/* Calls a function that has the same type in every table, or in every table since a version. */
#define SINCE_9(call)                                              \
  (net->abi == 12   ? V(12)->call                                  \
   : net->abi == 11 ? V(11)->call                                  \
   : net->abi == 10 ? V(10)->call                                  \
                    : V(9)->call)
#define SINCE_7(call) (net->abi >= 9 ? SINCE_9(call) : net->abi == 8 ? V(8)->call : V(7)->call)
#define SINCE_6(call) (net->abi >= 7 ? SINCE_7(call) : V(6)->call)
#define SINCE_5(call) (net->abi >= 6 ? SINCE_6(call) : V(5)->call)
#define SINCE_4(call) (net->abi >= 5 ? SINCE_5(call) : V(4)->call)
#define SINCE_3(call) (net->abi >= 4 ? SINCE_4(call) : V(3)->call)
#define ALWAYS(call) (net->abi >= 3 ? SINCE_3(call) : V(2)->call)

bool net_waits(const struct net *net) { return net->abi <= 4; }
int net_group(const struct net *net) { return net->abi >= 5 ? 8 : 1; }
int net_outstanding(const struct net *net) {
  return net->abi >= 7   ? NCCL_NET_MAX_REQUESTS
         : net->abi >= 4 ? NCCL_NET_MAX_REQUESTS_V6
                         : NCCL_NET_MAX_REQUESTS_V3;
}
size_t net_handle_size(const struct net *net) {
  return net->abi >= 5 ? NCCL_NET_HANDLE_MAXSIZE : NCCL_NET_HANDLE_MAXSIZE_V4;
}
bool net_has_contexts(const struct net *net) { return net->abi >= 11; }
bool net_has_vdevices(const struct net *net) { return net->abi >= 9; }
bool net_has_profiler(const struct net *net) { return net->abi >= 10; }
bool net_has_optional_receives(const struct net *net) { return net->abi >= 9; }

static const void *find_table(const struct net *net, int abi) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", abi);
  const void *table = dlsym(net->library, symbol);
  if (!table) fail("the plugin has no symbol %s", symbol);
  return table;
}

void net_load(struct net *net, const char *path, int abi) {
  memset(net, 0, sizeof *net);
  net->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!net->library) fail("dlopen: %s", dlerror());
  net->abi = abi;
  net->table = find_table(net, abi);
  /* The name comes first in every version. */
  const char *name = *(const char *const *)net->table;
  if (!name || strcmp(name, "IBNET") != 0) fail("the network's name is %s", name ? name : "null");
}

void net_unload(struct net *net) {
  if (dlclose(net->library)) fail("dlclose: %s", dlerror());
  net->library = NULL;
}

ncclResult_t net_init(struct net *net, ncclDebugLogger_t logger) {
  return net_init_class(net, logger, NCCL_NET_TRAFFIC_CLASS_UNDEF);
}

ncclResult_t net_init_class(struct net *net, ncclDebugLogger_t logger, int traffic_class) {
  ncclNetCommConfig_t config = {traffic_class};
  net->ctx = (void *)-1;
  if (net->abi == 12) return V(12)->init(&net->ctx, 0x1234, &config, logger, profile);
  if (net->abi == 11) return V(11)->init(&net->ctx, 0x1234, &config, logger, profile);
  net->ctx = NULL;
  if (net->abi == 10) return V(10)->init(logger, profile);
  return net->abi == 9   ? V(9)->init(logger)
         : net->abi == 8 ? V(8)->init(logger)
         : net->abi == 7 ? V(7)->init(logger)
         : net->abi == 6 ? V(6)->init(logger)
         : net->abi == 5 ? V(5)->init(logger)
         : net->abi == 4 ? V(4)->init(logger)
         : net->abi == 3 ? V(3)->init(logger)
                         : V(2)->init(logger);
}

ncclResult_t net_finalize(struct net *net) {
  if (!net_has_contexts(net)) return ncclSuccess;
  void *ctx = net->ctx;
  net->ctx = NULL;
  return net->abi == 12 ? V(12)->finalize(ctx) : V(11)->finalize(ctx);
}

ncclResult_t net_devices(const struct net *net, int *ndev) { return ALWAYS(devices(ndev)); }

/* Calls getProperties of version N into `raw`, and copies what the versions since 3, 5, 7 and 9 have. */
#define GET(N, P)                                            \
  ncclNetProperties_v##P##_t raw;                            \
  memset(&raw, 0xff, sizeof raw);                            \
  ncclResult_t result = V(N)->getProperties(dev, &raw);      \
  if (result != ncclSuccess) return result;                  \
  properties->name = raw.name;                               \
  properties->pci_path = raw.pciPath;                        \
  properties->guid = raw.guid;                               \
  properties->ptr_support = raw.ptrSupport;                  \
  properties->speed = raw.speed;                             \
  properties->port = raw.port;                               \
  properties->max_comms = raw.maxComms
#define COPY_5 properties->max_recvs = raw.maxRecvs
#define COPY_7                          \
  COPY_5;                               \
  properties->device_type = raw.netDeviceType
#define COPY_8 \
  COPY_7;      \
  properties->reg_is_global = raw.regIsGlobal
#define COPY_9(MAX)                                               \
  COPY_8;                                                         \
  properties->force_flush = raw.forceFlush;                       \
  if (raw.vProps.ndevs < 1 || raw.vProps.ndevs > (MAX))           \
    fail("device %d is made of %d devices", dev, raw.vProps.ndevs); \
  properties->ndevs = raw.vProps.ndevs;                           \
  memcpy(properties->devices, raw.vProps.devs, sizeof raw.vProps.devs); \
  properties->max_p2p_bytes = raw.maxP2pBytes

#define COPY_11(MAX) \
  COPY_9(MAX);       \
  properties->max_multi_request_size = raw.maxMultiRequestSize

static ncclResult_t properties_v2(const struct net *net, int dev, struct properties *properties) {
  char *path = (char *)-1;
  ncclResult_t result = V(2)->pciPath(dev, &path);
  if (result == ncclSuccess) {
    free(path);
    properties->ptr_support = -1;
    result = V(2)->ptrSupport(dev, &properties->ptr_support);
  }
  if (result != ncclSuccess) return result;
  /* This version knows devices by their number alone. */
  struct net next = *net;
  next.abi = 3;
  next.table = find_table(net, 3);
  int supported = properties->ptr_support;
  result = net_properties(&next, dev, properties);
  if (result == ncclSuccess && supported != properties->ptr_support)
    fail("ptrSupport says %d, version 3 says %d", supported, properties->ptr_support);
  return result;
}

/* The structs are filled with ones, so that a field that the plugin forgets is noticed. */
ncclResult_t net_properties(const struct net *net, int dev, struct properties *properties) {
  memset(properties, 0, sizeof *properties);
  properties->max_recvs = 1;
  properties->ndevs = 1;
  properties->devices[0] = dev;
  properties->max_p2p_bytes = (size_t)1 << 30;
  properties->reg_is_global = properties->force_flush = properties->max_multi_request_size = -1;
  properties->rail = properties->plane = -1;
  switch (net->abi) {
  case 12: {
    GET(12, 12);
    COPY_11(8);
    properties->rail = raw.railId;
    properties->plane = raw.planeId;
    return result;
  }
  case 11: { GET(11, 11); COPY_11(4); return result; }
  case 10: { GET(10, 9); COPY_9(4); return result; }
  case 9: { GET(9, 9); COPY_9(4); return result; }
  case 8: { GET(8, 8); COPY_8; return result; }
  case 7: { GET(7, 7); COPY_7; return result; }
  case 6: { GET(6, 5); COPY_5; return result; }
  case 5: { GET(5, 5); COPY_5; return result; }
  case 4: { GET(4, 3); return result; }
  case 3: { GET(3, 3); return result; }
  default: return properties_v2(net, dev, properties);
  }
}

ncclResult_t net_listen(const struct net *net, int dev, void *handle, void **comm) {
  if (net->abi == 12) return V(12)->listen(net->ctx, dev, handle, comm);
  if (net->abi == 11) return V(11)->listen(net->ctx, dev, handle, comm);
  return net->abi == 10  ? V(10)->listen(dev, handle, comm)
         : net->abi == 9 ? V(9)->listen(dev, handle, comm)
         : net->abi == 8 ? V(8)->listen(dev, handle, comm)
         : net->abi == 7 ? V(7)->listen(dev, handle, comm)
         : net->abi == 6 ? V(6)->listen(dev, handle, comm)
         : net->abi == 5 ? V(5)->listen(dev, handle, comm)
         : net->abi == 4 ? V(4)->listen(dev, handle, comm)
         : net->abi == 3 ? V(3)->listen(dev, handle, comm)
                         : V(2)->listen(dev, handle, comm);
}

ncclResult_t net_connect(const struct net *net, int dev, void *handle, void **comm) {
  /* NCCL passes a pointer to null, or null: both must do. */
  ncclNetDeviceHandle_t *device = (ncclNetDeviceHandle_t *)-1;
  ncclNetDeviceHandle_t **out = dev % 2 ? NULL : &device;
  ncclNetCommConfig_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
  ncclResult_t result;
  switch (net->abi) {
  case 12: result = V(12)->connect(net->ctx, dev, handle, comm, out); break;
  case 11: result = V(11)->connect(net->ctx, dev, handle, comm, out); break;
  case 10: result = V(10)->connect(dev, &config, handle, comm, out); break;
  case 9: result = V(9)->connect(dev, handle, comm, out); break;
  case 8: result = V(8)->connect(dev, handle, comm, out); break;
  case 7: result = V(7)->connect(dev, handle, comm, out); break;
  case 6: return V(6)->connect(dev, handle, comm);
  case 5: return V(5)->connect(dev, handle, comm);
  case 4: return V(4)->connect(dev, handle, comm);
  case 3: return V(3)->connect(dev, handle, comm);
  default: return V(2)->connect(dev, handle, comm);
  }
  if (result == ncclSuccess && out && device) fail("connect left a device handle");
  return result;
}

ncclResult_t net_accept(const struct net *net, void *listen_comm, void **comm) {
  if (net->abi >= 7) return SINCE_7(accept(listen_comm, comm, NULL));
  return net->abi == 6   ? V(6)->accept(listen_comm, comm)
         : net->abi == 5 ? V(5)->accept(listen_comm, comm)
         : net->abi == 4 ? V(4)->accept(listen_comm, comm)
         : net->abi == 3 ? V(3)->accept(listen_comm, comm)
                         : V(2)->accept(listen_comm, comm);
}

ncclResult_t net_reg(const struct net *net, void *comm, void *data, size_t size, int type,
                     void **mhandle) {
  if (net->abi >= 9) return SINCE_9(regMr(comm, data, size, type, mhandle));
  if (net->abi == 8) return V(8)->regMr(comm, data, size, type, mhandle);
  int narrow = (int)size;
  return net->abi == 7   ? V(7)->regMr(comm, data, narrow, type, mhandle)
         : net->abi == 6 ? V(6)->regMr(comm, data, narrow, type, mhandle)
         : net->abi == 5 ? V(5)->regMr(comm, data, narrow, type, mhandle)
         : net->abi == 4 ? V(4)->regMr(comm, data, narrow, type, mhandle)
         : net->abi == 3 ? V(3)->regMr(comm, data, narrow, type, mhandle)
                         : V(2)->regMr(comm, data, narrow, type, mhandle);
}

ncclResult_t net_reg_dmabuf(const struct net *net, void *comm, void *data, size_t size, int fd,
                            void **mhandle) {
  if (net->abi >= 6) return SINCE_6(regMrDmaBuf(comm, data, size, NCCL_PTR_CUDA, 0, fd, mhandle));
  *mhandle = NULL;
  return ncclInvalidUsage;
}

ncclResult_t net_dereg(const struct net *net, void *comm, void *mhandle) {
  return ALWAYS(deregMr(comm, mhandle));
}

ncclResult_t net_isend(const struct net *net, void *comm, void *data, size_t size, int tag,
                       void *mhandle, void **request) {
  int narrow = (int)size;
  void *parent = net->profiled ? profile_parent() : NULL;
  switch (net->abi) {
  case 12: return V(12)->isend(comm, data, size, tag, mhandle, parent, request);
  case 11: return V(11)->isend(comm, data, size, tag, mhandle, parent, request);
  case 10: return V(10)->isend(comm, data, size, tag, mhandle, parent, request);
  case 9: return V(9)->isend(comm, data, size, tag, mhandle, request);
  case 8: return V(8)->isend(comm, data, narrow, tag, mhandle, request);
  case 7: return V(7)->isend(comm, data, narrow, tag, mhandle, request);
  case 6: return V(6)->isend(comm, data, narrow, tag, mhandle, request);
  case 5: return V(5)->isend(comm, data, narrow, tag, mhandle, request);
  case 4: return V(4)->isend(comm, data, narrow, mhandle, request);
  case 3: return V(3)->isend(comm, data, narrow, mhandle, request);
  default: return V(2)->isend(comm, data, narrow, mhandle, request);
  }
}

/* For the versions whose receives have one buffer. */
static ncclResult_t irecv_one(const struct net *net, void *comm, int n, void **data, size_t *sizes,
                              int *tags, void **mhandles, void **request) {
  if (n != 1 || !data || !sizes || !tags || !mhandles) {
    if (request) *request = NULL;
    return ncclInvalidArgument;
  }
  int size = (int)sizes[0];
  return net->abi == 4   ? V(4)->irecv(comm, data[0], size, mhandles[0], request)
         : net->abi == 3 ? V(3)->irecv(comm, data[0], size, mhandles[0], request)
                         : V(2)->irecv(comm, data[0], size, mhandles[0], request);
}

ncclResult_t net_irecv(const struct net *net, void *comm, int n, void **data, size_t *sizes,
                       int *tags, void **mhandles, void **request) {
  void *parents[MAX_BUFFERS] = {0};
  /* Not every buffer of a group has one. */
  for (int i = 0; net->profiled && i < n && i < MAX_BUFFERS; i++)
    parents[i] = i % 4 == 3 ? NULL : profile_parent();
  /* Both an array of nulls and no array at all must do. */
  void **none = net->profiled ? parents : NULL;
  int narrow[MAX_BUFFERS] = {0};
  for (int i = 0; sizes && i < n && i < MAX_BUFFERS; i++) narrow[i] = (int)sizes[i];
  int *few = sizes ? narrow : NULL;
  switch (net->abi) {
  case 12: return V(12)->irecv(comm, n, data, sizes, tags, mhandles, parents, request);
  case 11: return V(11)->irecv(comm, n, data, sizes, tags, mhandles, none, request);
  case 10: return V(10)->irecv(comm, n, data, sizes, tags, mhandles, parents, request);
  case 9: return V(9)->irecv(comm, n, data, sizes, tags, mhandles, request);
  case 8: return V(8)->irecv(comm, n, data, few, tags, mhandles, request);
  case 7: return V(7)->irecv(comm, n, data, few, tags, mhandles, request);
  case 6: return V(6)->irecv(comm, n, data, few, tags, mhandles, request);
  case 5: return V(5)->irecv(comm, n, data, few, tags, mhandles, request);
  default: return irecv_one(net, comm, n, data, sizes, tags, mhandles, request);
  }
}

ncclResult_t net_iflush(const struct net *net, void *comm, int n, void **data, int *sizes,
                        void **mhandles, void **request) {
  if (net->abi >= 5) return SINCE_5(iflush(comm, n, data, sizes, mhandles, request));
  if (request) *request = NULL;
  if (n != 1 || !data || !sizes || !mhandles || !request) return ncclInvalidArgument;
  return net->abi == 4   ? V(4)->iflush(comm, data[0], sizes[0], mhandles[0], request)
         : net->abi == 3 ? V(3)->flush(comm, data[0], sizes[0], mhandles[0])
                         : V(2)->flush(comm, data[0], sizes[0], mhandles[0]);
}

ncclResult_t net_test(const struct net *net, void *request, int *done, int *sizes) {
  return ALWAYS(test(request, done, sizes));
}

ncclResult_t net_close_send(const struct net *net, void *comm) { return ALWAYS(closeSend(comm)); }

ncclResult_t net_close_recv(const struct net *net, void *comm) { return ALWAYS(closeRecv(comm)); }

ncclResult_t net_close_listen(const struct net *net, void *comm) {
  return ALWAYS(closeListen(comm));
}

ncclResult_t net_make_vdevice(const struct net *net, int *index, int count, const int *devices) {
  if (!net_has_vdevices(net)) return ncclInvalidUsage;
  if (net->abi == 12) {
    ncclNetVDeviceProps_v12_t props = {.ndevs = count};
    memcpy(props.devs, devices, sizeof props.devs);
    return V(12)->makeVDevice(index, &props);
  }
  ncclNetVDeviceProps_v9_t props = {.ndevs = count};
  memcpy(props.devs, devices, sizeof props.devs);
  return net->abi == 11   ? V(11)->makeVDevice(index, &props)
         : net->abi == 10 ? V(10)->makeVDevice(index, &props)
                          : V(9)->makeVDevice(index, &props);
}

/* ---- What is always done in the same way ---- */

/* The index of one device, or -1. */
static int find_one(const struct net *net, const char *wanted) {
  int count = -1;
  must(net_devices(net, &count), "devices");
  if (count < 1) fail("init succeeded with %d devices", count);
  char *end;
  long index = strtol(wanted, &end, 10);
  if (!*end && end != wanted && index >= 0 && index < count) return (int)index;
  for (int dev = 0; dev < count; dev++) {
    struct properties properties;
    must(net_properties(net, dev, &properties), "getProperties");
    if (!strcmp(properties.name, wanted)) return dev;
  }
  return -1;
}

/* What must hold for a device made of `count` others. */
static void check_virtual(const struct net *net, int made, int count, const int *members) {
  struct properties whole, member;
  must(net_properties(net, made, &whole), "getProperties of a device made of several");
  int speed = 0, common = ~0;
  if (whole.ndevs != count) fail("device %d is made of %d devices, not %d", made, whole.ndevs, count);
  for (int i = 0; i < count; i++) {
    if (whole.devices[i] != members[i])
      fail("member %d of device %d is device %d, not %d", i, made, whole.devices[i], members[i]);
    must(net_properties(net, members[i], &member), "getProperties of a member");
    if (member.ndevs != 1 || member.devices[0] != members[i])
      fail("device %d is not what it was before it became a member", members[i]);
    if (!strcmp(whole.name, member.name)) fail("two devices are named %s", whole.name);
    if (!strstr(whole.name, member.name)) fail("%s does not name %s", whole.name, member.name);
    speed += member.speed;
    common &= member.ptr_support;
  }
  printf("%s is made of %d: rail %d plane %d\n", whole.name, count, whole.rail, whole.plane);
  if (whole.speed != speed) fail("%d Mb/s made of %d", whole.speed, speed);
  if (whole.ptr_support & ~common)
    fail("ptrSupport %#x made of %#x", (unsigned)whole.ptr_support, (unsigned)common);
}

/* Makes one device of those in a list with +. */
static int make_device(const struct net *net, const char *list) {
  int members[NCCL_NET_MAX_DEVS_PER_NIC_V12] = {0}, count = 0;
  char names[1024];
  snprintf(names, sizeof names, "%s", list);
  for (char *rest, *name = strtok_r(names, "+", &rest); name; name = strtok_r(NULL, "+", &rest)) {
    if (count == NCCL_NET_MAX_DEVS_PER_NIC_V12) fail("too many devices: %s", list);
    members[count] = find_one(net, name);
    if (members[count++] < 0) fail("there is no device %s", name);
  }
  int made = -1, again = -1, single = -1;
  must(net_make_vdevice(net, &made, count, members), "makeVDevice");
  check_virtual(net, made, count, members);
  /* A device made of one is that one; and the same set again is the same device, in any order. */
  must(net_make_vdevice(net, &single, 1, members), "makeVDevice of one");
  if (single != members[0]) fail("device %d alone became device %d", members[0], single);
  int twice[NCCL_NET_MAX_DEVS_PER_NIC_V12] = {members[0], members[0]};
  must(net_make_vdevice(net, &single, 2, twice), "makeVDevice of one named twice");
  if (single != members[0]) fail("device %d twice became device %d", members[0], single);
  /* A member that is none, or is not one by itself, and nothing happens (pitfall 16). */
  int before = -1, after = -1, untouched = -5;
  must(net_devices(net, &before), "devices");
  const int wrong[] = {9999, -1, made};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    int list_of_two[NCCL_NET_MAX_DEVS_PER_NIC_V12] = {members[0], wrong[i]};
    if (net_make_vdevice(net, &untouched, 2, list_of_two) != ncclInvalidUsage || untouched != -5)
      fail("makeVDevice of device %d and device %d", members[0], wrong[i]);
  }
  must(net_devices(net, &after), "devices");
  if (after < before) fail("%d devices of %d are left", after, before);
  int reversed[NCCL_NET_MAX_DEVS_PER_NIC_V12] = {0};
  for (int i = 0; i < count; i++) reversed[i] = members[count - 1 - i];
  must(net_make_vdevice(net, &again, count, reversed), "makeVDevice again");
  if (again != made) fail("%s is device %d and device %d", list, made, again);
  return made;
}

int find_device(const struct net *net, const char *wanted) {
  int device = find_one(net, wanted);
  if (device >= 0) return device;
  if (strchr(wanted, '+')) return make_device(net, wanted);
  fail("there is no device %s", wanted);
}

void net_join(const struct net *net, int from, int to, void **listener, void **sender,
              void **receiver) {
  char handle[NCCL_NET_HANDLE_MAXSIZE];
  must(net_listen(net, to, handle, listener), "listen");
  *sender = *receiver = NULL;
  while (!*sender || !*receiver) {
    if (!*sender) must(net_connect(net, from, handle, sender), "connect");
    if (net_waits(net) && !*sender) fail("connect did not wait for a communicator");
    if (!*receiver) must(net_accept(net, *listener, receiver), "accept");
    if (net_waits(net) && !*receiver) fail("accept did not wait for a communicator");
    look_at_clock("connecting a device to another");
  }
}
