/* See net.h. */
#define _POSIX_C_SOURCE 200809L

#include "net.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BUFFERS 16

static const ncclNet_v12_t *v12(const struct net *net) { return net->table; }
static const ncclNet_v11_t *v11(const struct net *net) { return net->table; }
static const ncclNet_v10_t *v10(const struct net *net) { return net->table; }
static const ncclNet_v9_t *v9(const struct net *net) { return net->table; }
static const ncclNet_v8_t *v8(const struct net *net) { return net->table; }

/* Calls a function that has the same type in every table. */
#define ANY(net, function, ...)                                \
  ((net)->abi == 12   ? v12(net)->function(__VA_ARGS__)        \
   : (net)->abi == 11 ? v11(net)->function(__VA_ARGS__)        \
   : (net)->abi == 10 ? v10(net)->function(__VA_ARGS__)        \
   : (net)->abi == 9  ? v9(net)->function(__VA_ARGS__)         \
                      : v8(net)->function(__VA_ARGS__))

void net_load(struct net *net, const char *path, int abi) {
  memset(net, 0, sizeof *net);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("dlopen: %s", dlerror());
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", abi);
  net->abi = abi;
  net->library = library;
  net->table = dlsym(library, symbol);
  if (!net->table) fail("%s has no symbol %s", path, symbol);
  /* The name comes first in every version. */
  const char *name = *(const char *const *)net->table;
  if (!name || strcmp(name, "IBNET") != 0) fail("the network's name is %s", name ? name : "null");
}

void net_unload(struct net *net) {
  if (dlclose(net->library)) fail("dlclose: %s", dlerror());
  net->library = NULL;
}

ncclResult_t net_init(struct net *net, ncclDebugLogger_t logger) {
  ncclNetCommConfig_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
  net->ctx = (void *)-1;
  switch (net->abi) {
  case 12: return v12(net)->init(&net->ctx, 0x1234, &config, logger, NULL);
  case 11: return v11(net)->init(&net->ctx, 0x1234, &config, logger, NULL);
  case 10: return v10(net)->init(logger, NULL);
  case 9: return v9(net)->init(logger);
  default: return v8(net)->init(logger);
  }
}

ncclResult_t net_finalize(struct net *net) {
  if (net->abi < 11) return ncclSuccess;
  void *ctx = net->ctx;
  net->ctx = NULL;
  return net->abi == 12 ? v12(net)->finalize(ctx) : v11(net)->finalize(ctx);
}

ncclResult_t net_devices(const struct net *net, int *ndev) { return ANY(net, devices, ndev); }

#define COPY_COMMON(from)                   \
  do {                                      \
    properties->name = (from).name;         \
    properties->pci_path = (from).pciPath;  \
    properties->guid = (from).guid;         \
    properties->ptr_support = (from).ptrSupport; \
    properties->speed = (from).speed;       \
    properties->port = (from).port;         \
    properties->max_comms = (from).maxComms; \
    properties->max_recvs = (from).maxRecvs; \
    properties->device_type = (from).netDeviceType; \
  } while (0)

#define COPY_NEWER(from)                            \
  do {                                              \
    COPY_COMMON(from);                              \
    properties->ndevs = (from).vProps.ndevs;        \
    properties->first_device = (from).vProps.devs[0]; \
    properties->max_p2p_bytes = (from).maxP2pBytes; \
  } while (0)

ncclResult_t net_properties(const struct net *net, int dev, struct properties *properties) {
  /* Filled with ones, so that a field that the plugin forgets is noticed. */
  union {
    ncclNetProperties_v12_t v12;
    ncclNetProperties_v11_t v11;
    ncclNetProperties_v9_t v9;
    ncclNetProperties_v8_t v8;
  } raw;
  memset(&raw, 0xff, sizeof raw);
  ncclResult_t result;
  switch (net->abi) {
  case 12:
    result = v12(net)->getProperties(dev, &raw.v12);
    if (result == ncclSuccess) COPY_NEWER(raw.v12);
    break;
  case 11:
    result = v11(net)->getProperties(dev, &raw.v11);
    if (result == ncclSuccess) COPY_NEWER(raw.v11);
    break;
  case 10:
    result = v10(net)->getProperties(dev, &raw.v9);
    if (result == ncclSuccess) COPY_NEWER(raw.v9);
    break;
  case 9:
    result = v9(net)->getProperties(dev, &raw.v9);
    if (result == ncclSuccess) COPY_NEWER(raw.v9);
    break;
  default:
    result = v8(net)->getProperties(dev, &raw.v8);
    if (result == ncclSuccess) {
      COPY_COMMON(raw.v8);
      properties->ndevs = 1;
      properties->first_device = dev;
      properties->max_p2p_bytes = (size_t)1 << 30;
    }
  }
  return result;
}

ncclResult_t net_listen(const struct net *net, int dev, void *handle, void **comm) {
  switch (net->abi) {
  case 12: return v12(net)->listen(net->ctx, dev, handle, comm);
  case 11: return v11(net)->listen(net->ctx, dev, handle, comm);
  case 10: return v10(net)->listen(dev, handle, comm);
  case 9: return v9(net)->listen(dev, handle, comm);
  default: return v8(net)->listen(dev, handle, comm);
  }
}

ncclResult_t net_connect(const struct net *net, int dev, void *handle, void **comm) {
  /* NCCL passes a pointer to null, or null: both must do. */
  ncclNetDeviceHandle_t *device = (ncclNetDeviceHandle_t *)-1;
  ncclNetDeviceHandle_t **out = dev % 2 ? NULL : &device;
  ncclNetCommConfig_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
  ncclResult_t result;
  switch (net->abi) {
  case 12: result = v12(net)->connect(net->ctx, dev, handle, comm, out); break;
  case 11: result = v11(net)->connect(net->ctx, dev, handle, comm, out); break;
  case 10: result = v10(net)->connect(dev, &config, handle, comm, out); break;
  case 9: result = v9(net)->connect(dev, handle, comm, out); break;
  default: result = v8(net)->connect(dev, handle, comm, out);
  }
  if (result == ncclSuccess && out && device) fail("connect left a device handle");
  return result;
}

ncclResult_t net_accept(const struct net *net, void *listen_comm, void **comm) {
  return ANY(net, accept, listen_comm, comm, NULL);
}

ncclResult_t net_reg(const struct net *net, void *comm, void *data, size_t size, int type,
                     void **mhandle) {
  return ANY(net, regMr, comm, data, size, type, mhandle);
}

ncclResult_t net_reg_dmabuf(const struct net *net, void *comm, void *data, size_t size, int fd,
                            void **mhandle) {
  return ANY(net, regMrDmaBuf, comm, data, size, NCCL_PTR_CUDA, 0, fd, mhandle);
}

ncclResult_t net_dereg(const struct net *net, void *comm, void *mhandle) {
  return ANY(net, deregMr, comm, mhandle);
}

ncclResult_t net_isend(const struct net *net, void *comm, void *data, size_t size, int tag,
                       void *mhandle, void **request) {
  switch (net->abi) {
  case 12: return v12(net)->isend(comm, data, size, tag, mhandle, NULL, request);
  case 11: return v11(net)->isend(comm, data, size, tag, mhandle, NULL, request);
  case 10: return v10(net)->isend(comm, data, size, tag, mhandle, NULL, request);
  case 9: return v9(net)->isend(comm, data, size, tag, mhandle, request);
  default: return v8(net)->isend(comm, data, (int)size, tag, mhandle, request);
  }
}

ncclResult_t net_irecv(const struct net *net, void *comm, int n, void **data, size_t *sizes,
                       int *tags, void **mhandles, void **request) {
  void *parents[MAX_BUFFERS] = {0};
  int narrow[MAX_BUFFERS] = {0};
  switch (net->abi) {
  case 12: return v12(net)->irecv(comm, n, data, sizes, tags, mhandles, parents, request);
  /* Both an array of nulls and no array at all must do. */
  case 11: return v11(net)->irecv(comm, n, data, sizes, tags, mhandles, NULL, request);
  case 10: return v10(net)->irecv(comm, n, data, sizes, tags, mhandles, parents, request);
  case 9: return v9(net)->irecv(comm, n, data, sizes, tags, mhandles, request);
  default:
    for (int i = 0; sizes && i < n && i < MAX_BUFFERS; i++) narrow[i] = (int)sizes[i];
    return v8(net)->irecv(comm, n, data, sizes ? narrow : NULL, tags, mhandles, request);
  }
}

ncclResult_t net_iflush(const struct net *net, void *comm, int n, void **data, int *sizes,
                        void **mhandles, void **request) {
  return ANY(net, iflush, comm, n, data, sizes, mhandles, request);
}

ncclResult_t net_test(const struct net *net, void *request, int *done, int *sizes) {
  return ANY(net, test, request, done, sizes);
}

ncclResult_t net_close_send(const struct net *net, void *comm) {
  return ANY(net, closeSend, comm);
}

ncclResult_t net_close_recv(const struct net *net, void *comm) {
  return ANY(net, closeRecv, comm);
}

ncclResult_t net_close_listen(const struct net *net, void *comm) {
  return ANY(net, closeListen, comm);
}

ncclResult_t net_make_vdevice(const struct net *net, int *index, int count, const int *devices) {
  if (net->abi == 12) {
    ncclNetVDeviceProps_v12_t props = {.ndevs = count};
    memcpy(props.devs, devices, sizeof props.devs);
    return v12(net)->makeVDevice(index, &props);
  }
  if (net->abi == 8) return ncclInvalidUsage;
  ncclNetVDeviceProps_v9_t props = {.ndevs = count};
  memcpy(props.devs, devices, sizeof props.devs);
  return net->abi == 11   ? v11(net)->makeVDevice(index, &props)
         : net->abi == 10 ? v10(net)->makeVDevice(index, &props)
                          : v9(net)->makeVDevice(index, &props);
}

/* ---- Support ---- */

_Thread_local const char *role = "driver";

void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "FAILED (%s): ", role);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

void must(ncclResult_t result, const char *what) {
  if (result != ncclSuccess) fail("%s: result %d", what, result);
}

static int count_entries(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) fail("%s cannot be read", path);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.') count++;
  closedir(folder);
  return count;
}

int count_threads(void) { return count_entries("/proc/self/task"); }
/* One of them is that of the folder itself. */
int count_files(void) { return count_entries("/proc/self/fd") - 1; }

static struct timespec deadline;

void set_deadline(int seconds) {
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += seconds;
}

int time_left(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  long long left = (deadline.tv_sec - now.tv_sec) * 1000LL +
                   (deadline.tv_nsec - now.tv_nsec) / 1000000;
  return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void look_at_clock(const char *what) {
  if (time_left() == 0) fail("out of time: %s", what);
}

/* The plugin warns of a call in the thread of the call. */
static _Thread_local int warnings;
/* The logger is called from the plugin's threads too. */
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static size_t log_length;
static char log_fault[256];

void log_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
              const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);

  pthread_mutex_lock(&log_mutex);
  if (strncmp(text, "NET/IBNET", 9) != 0)
    snprintf(log_fault, sizeof log_fault, "a line does not begin with NET/IBNET: %.150s", text);
  /* NCCL formats a line into 1024 bytes, with its own prefix. */
  if (length > 900) snprintf(log_fault, sizeof log_fault, "a line of %d bytes", length);
  if (!file || !*file) snprintf(log_fault, sizeof log_fault, "a line without its origin");
  if (level == NCCL_LOG_WARN) {
    warnings++;
    if (flags != ~0UL) snprintf(log_fault, sizeof log_fault, "a warning with flags %#lx", flags);
  }
  if (log_length + (size_t)length + 2 < sizeof log_text) {
    memcpy(log_text + log_length, text, (size_t)length);
    log_length += (size_t)length;
    log_text[log_length++] = '\n';
    log_text[log_length] = 0;
  }
  pthread_mutex_unlock(&log_mutex);

  static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  const char *name = (unsigned)level < 6 ? names[level] : "?";
  fprintf(stderr, "[%s] %s %#lx %s:%d %s\n", role, name, flags, file, line, text);
}

bool log_contains(const char *text) {
  pthread_mutex_lock(&log_mutex);
  bool found = strstr(log_text, text) != NULL;
  pthread_mutex_unlock(&log_mutex);
  return found;
}

void log_forget(void) {
  pthread_mutex_lock(&log_mutex);
  log_length = 0;
  log_text[0] = 0;
  warnings = 0;
  pthread_mutex_unlock(&log_mutex);
}

int log_warnings(void) { return warnings; }

void log_check(void) {
  pthread_mutex_lock(&log_mutex);
  if (log_fault[0]) fail("the log: %s", log_fault);
  pthread_mutex_unlock(&log_mutex);
}
