/*
 * Drives a network plugin of NCCL through its C interface, knowing nothing but the header. This file
 * is the whole program, because it includes the others:
 *
 *   cc -std=c11 -pthread -I ../../include driver.c -o driver -ldl
 *
 *   driver PLUGIN [--abi N] [--dev NAME|INDEX] [--peer-dev NAME|INDEX] [--timeout SECONDS]
 *          [--threads] [--gpu-memory] [--dmabuf-files] [--verbose] [MODE]
 *
 * Without a mode, two ends move data between two devices and check every byte (transfer.c). Each is a
 * process; with --threads both are threads of one, for devices that are the process's own. A device can
 * be several: a0+a1. What the plugin offers is tried, too: GPU memory (played by host memory, which the
 * plugin cannot tell from it) with flushes, DMA-BUFs, and both devices as one. The last lines say which
 * of it there was.
 *   --gpu-memory               tries GPU memory also where the devices do not offer it
 *   --dmabuf-files             tries DMA-BUFs, if they are offered, with files, as simulated devices allow
 * The modes:
 *   --expect-init-error TEXT   init must fail, and a line of its log must contain TEXT
 *   --null-logger              as without a mode, but without a logger: not a line must be missed
 *   --bad-handle               connecting to a handle full of 0xff must be an error
 *   --contract                 what NCCL's threads do at the same time (contract.c)
 *   --misuse                   wrong arguments to every function must be errors (misuse.c); works
 *                              on a machine without devices too
 *   --sequence SECONDS         random calls, right and wrong, against a model (sequence.c); --seed N
 *                              repeats the choices of a run
 *   --reload N                 load, initialise, end and unload N times: nothing must be left behind
 *
 * The exit status is 0 if everything was as it must be; otherwise the last line says what was not, and
 * the lines before are what the plugin logged. With --verbose its log is shown as it comes.
 */
#define _POSIX_C_SOURCE 200809L

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.c"
#include "profile.c"
#include "net.c"
#include "channel.c"
#include "memory.c"
#include "transfer.c"
#include "contract.c"
#include "misuse.c"
#include "sequence.c"

struct arguments {
  const char *plugin;
  int abi;
  const char *device;
  const char *peer_device;
  int timeout;
  int reloads;
  int sequence; /* seconds */
  int seed;
  const char *expected_error;
  bool threads;
  bool gpu_memory;
  bool dmabuf_files;
  bool null_logger;
  bool bad_handle;
  bool contract;
  bool misuse;
};

static void usage(const char *problem) {
  fprintf(stderr,
          "%s\nusage: driver PLUGIN [--abi 2..12] [--dev NAME|INDEX] [--peer-dev NAME|INDEX] "
          "[--timeout SECONDS]\n       [--threads] [--gpu-memory] [--dmabuf-files] [--null-logger] "
          "[--verbose]\n"
          "       | --expect-init-error TEXT | --bad-handle | --contract | --misuse | --reload N\n"
          "       | --sequence SECONDS [--seed N]\n",
          problem);
  exit(2);
}

static ncclDebugLogger_t logger_of(const struct arguments *arguments) {
  return arguments->null_logger ? NULL : log_line;
}

static int number(const char *text, int least, int most) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end || end == text || value < least || value > most) usage("a number is out of range");
  return (int)value;
}

static struct arguments parse(int argc, char **argv) {
  struct arguments arguments = {.abi = 12, .timeout = 60};
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    bool has_value = i + 1 < argc;
    if (!strcmp(name, "--abi") && has_value)
      arguments.abi = number(argv[++i], OLDEST, NEWEST);
    else if (!strcmp(name, "--dev") && has_value) arguments.device = argv[++i];
    else if (!strcmp(name, "--peer-dev") && has_value) arguments.peer_device = argv[++i];
    else if (!strcmp(name, "--timeout") && has_value)
      arguments.timeout = number(argv[++i], 1, 86400);
    else if (!strcmp(name, "--sequence") && has_value)
      arguments.sequence = number(argv[++i], 1, 86400);
    else if (!strcmp(name, "--seed") && has_value)
      arguments.seed = number(argv[++i], 0, INT_MAX);
    else if (!strcmp(name, "--reload") && has_value)
      arguments.reloads = number(argv[++i], 1, 100000);
    else if (!strcmp(name, "--expect-init-error") && has_value)
      arguments.expected_error = argv[++i];
    else if (!strcmp(name, "--threads")) arguments.threads = true;
    else if (!strcmp(name, "--gpu-memory")) arguments.gpu_memory = true;
    else if (!strcmp(name, "--dmabuf-files")) arguments.dmabuf_files = true;
    else if (!strcmp(name, "--null-logger")) arguments.null_logger = true;
    else if (!strcmp(name, "--bad-handle")) arguments.bad_handle = true;
    else if (!strcmp(name, "--contract")) arguments.contract = true;
    else if (!strcmp(name, "--misuse")) arguments.misuse = true;
    else if (!strcmp(name, "--verbose")) log_show();
    else if (name[0] != '-' && !arguments.plugin) arguments.plugin = name;
    else usage(name);
  }
  if (!arguments.plugin) usage("no plugin given");
  bool has_mode = arguments.expected_error || arguments.bad_handle || arguments.contract ||
                  arguments.misuse || arguments.reloads || arguments.sequence;
  if (arguments.threads && has_mode) usage("--threads is for two ends; this has one");
  if (!arguments.device) arguments.device = "0";
  if (!arguments.peer_device) arguments.peer_device = arguments.device;
  return arguments;
}

/* Prints every device, and checks what holds for all of them. */
static void check_devices(const struct net *net, bool print) {
  int count = -1;
  must(net_devices(net, &count), "devices");
  for (int dev = 0; dev < count; dev++) {
    struct properties properties, again;
    must(net_properties(net, dev, &properties), "getProperties");
    must(net_properties(net, dev, &again), "getProperties");
    if (print)
      printf("[%d] %s port %d guid %#llx speed %d Mb/s pci %s ptrSupport %d maxComms %d maxRecvs "
             "%d maxP2pBytes %zu regIsGlobal %d rail %d plane %d\n",
             dev, properties.name, properties.port, (unsigned long long)properties.guid,
             properties.speed, properties.pci_path ? properties.pci_path : "none",
             properties.ptr_support, properties.max_comms, properties.max_recvs,
             properties.max_p2p_bytes, properties.reg_is_global, properties.rail,
             properties.plane);
    if (!properties.name || !*properties.name) fail("device %d has no name", dev);
    if (properties.name != again.name || properties.pci_path != again.pci_path)
      fail("device %d: the strings are not the same ones every time", dev);
    if (!(properties.ptr_support & NCCL_PTR_HOST)) fail("device %d: no host memory", dev);
    if (properties.speed <= 0) fail("device %d: speed %d", dev, properties.speed);
    if (properties.port < 1) fail("device %d: port %d", dev, properties.port);
    if (properties.max_comms < 1) fail("device %d: maxComms %d", dev, properties.max_comms);
    if (properties.max_recvs != net_group(net))
      fail("device %d: maxRecvs %d", dev, properties.max_recvs);
    if (properties.device_type != NCCL_NET_DEVICE_HOST)
      fail("device %d: netDeviceType %d", dev, properties.device_type);
    if (properties.ptr_support & NCCL_PTR_DMABUF && net->abi < 6)
      fail("device %d: ptrSupport %d in a version without DMA-BUFs", dev, properties.ptr_support);
    if (properties.reg_is_global == 0) fail("device %d: registering a part is not free", dev);
    if (properties.max_multi_request_size > 1)
      fail("device %d: maxMultiRequestSize %d", dev, properties.max_multi_request_size);
    /* Made by another end in this process: find_device has checked it. */
    if (properties.ndevs > 1) continue;
    if (properties.devices[0] != dev)
      fail("device %d is made of device %d", dev, properties.devices[0]);
    if (properties.max_p2p_bytes < 1 << 20 || properties.max_p2p_bytes > (size_t)1 << 40)
      fail("device %d: maxP2pBytes %zu", dev, properties.max_p2p_bytes);
    if (properties.max_p2p_bytes % (size_t)sysconf(_SC_PAGESIZE))
      fail("device %d: maxP2pBytes %zu is no whole number of pages", dev, properties.max_p2p_bytes);
    for (int other = 0; other < dev; other++) {
      must(net_properties(net, other, &again), "getProperties");
      if (!strcmp(again.name, properties.name)) fail("two devices are named %s", again.name);
      if (again.guid == properties.guid && again.port == properties.port)
        fail("%s and %s are the same link to NCCL", again.name, properties.name);
    }
  }
}

/*
 * Loaded, initialised and ended again and again, as NCCL does when its last communicator goes and
 * another one comes. Where there is a finalize, nothing may be left behind; where there is none, nothing
 * may be added after the first time.
 */
static void check_lifecycle(const struct arguments *arguments, int rounds) {
  ncclDebugLogger_t logger = logger_of(arguments);
  /* After so many rounds the C library and the plugin's tables have the memory that they keep. */
  const int warm_up = 10;
#ifdef __SANITIZE_ADDRESS__
  const long slack = 1 << 20; /* what was freed is kept for a while; what leaks is told at the end */
#else
  const long slack = 256;
#endif
  int files = 0, threads = 0;
  long memory = 0;
  for (int round = 0; round < rounds; round++) {
    struct net net;
    net_load(&net, arguments->plugin, arguments->abi);
    int threads_before = count_threads();
    struct net second = net;
    if (round == 0) {
      /* An init that failed is tried again by the next one (pitfall 3). */
      setenv("NCCL_IB_DISABLE", "1", 1);
      if (net_init(&net, logger) == ncclSuccess) fail("init succeeded although it is disabled");
      unsetenv("NCCL_IB_DISABLE");
    }
    must(net_init(&net, logger), "init");
    must(net_init(&second, logger), "a second init");
    if (net_has_contexts(&net) && (!net.ctx || net.ctx == second.ctx))
      fail("init gave %p and %p", net.ctx, second.ctx);
    must(net_finalize(&second), "finalize of the second");
    int count = 0;
    must(net_devices(&net, &count), "devices while one context is left");
    must(net_finalize(&net), "finalize");
#ifdef __SANITIZE_THREAD__
    /* It has a thread of its own from the first other thread on. */
    if (round == 0) threads_before++;
#endif
    if (net_has_contexts(&net)) {
      if (net_devices(&net, &count) == ncclSuccess) fail("devices after the last finalize");
      /* The kernel wakes whoever joins a thread a moment before it strikes it off the list. */
      int after;
      for (int look = 0; (after = count_threads()) != threads_before && look < 1000; look++)
        sleep_a_millisecond();
      if (after != threads_before)
        fail("%d threads before init, %d after finalize", threads_before, after);
    }
    net_unload(&net);
    /* The first round opens what stays open for the whole process. */
    if (round == 0) {
      files = count_files();
      threads = count_threads();
    } else if (count_files() != files || count_threads() != threads) {
      fail("%d open files and %d threads after the first round, %d and %d after round %d", files,
           threads, count_files(), count_threads(), round);
    }
    if (round == warm_up) memory = count_memory();
    if (round > warm_up && count_memory() > memory + slack)
      fail("%ld KiB of memory after round %d, %ld after round %d", memory, warm_up,
           count_memory(), round);
    look_at_clock("loading and unloading");
  }
}

/* The names of both devices, joined: one device made of two. */
static void both_devices(const struct arguments *arguments, char *list, size_t size) {
  snprintf(list, size, "%s+%s", arguments->device, arguments->peer_device);
}

/*
 * Virtual devices across unloading. Where there is a finalize they are gone with it. Where there is none,
 * whoever counts anew after loading again finds the physical devices only, and makes others; whoever
 * remembers a number finds what it was.
 */
static void check_virtual_devices_across_loading(const struct arguments *arguments) {
  struct net net;
  net_load(&net, arguments->plugin, arguments->abi);
  if (!net_has_vdevices(&net) || !strcmp(arguments->device, arguments->peer_device) ||
      strchr(arguments->device, '+')) {
    net_unload(&net);
    return;
  }
  char list[512];
  both_devices(arguments, list, sizeof list);
  int physical = -1, count = -1;
  struct properties before, after;
  for (int round = 0; round < 3; round++) {
    must(net_init(&net, logger_of(arguments)), "init");
    must(net_devices(&net, &count), "devices");
    if (round == 0) physical = count;
    if (count != physical) fail("%d devices, and %d after loading again", physical, count);
    ncclResult_t result = net_properties(&net, physical, &after);
    if (net_has_contexts(&net) && result == ncclSuccess) fail("a virtual device outlived finalize");
    if (!net_has_contexts(&net) && round > 0 &&
        (result != ncclSuccess || after.name != before.name))
      fail("whoever remembers device %d does not find it", physical);
    int made = find_device(&net, list);
    must(net_devices(&net, &count), "devices");
    if (made != physical || count != physical + 1)
      fail("device %d of %d was made of %s; there are %d physical ones", made, count, list, physical);
    must(net_properties(&net, made, &before), "getProperties");
    must(net_finalize(&net), "finalize");
    net_unload(&net);
    net_load(&net, arguments->plugin, arguments->abi);
  }
  net_unload(&net);
}

static void expect_init_error(const struct arguments *arguments) {
  struct net net;
  net_load(&net, arguments->plugin, arguments->abi);
  /* A failed init must not look like success the next time. */
  for (int attempt = 0; attempt < 2; attempt++) {
    log_forget();
    if (net_init(&net, log_line) == ncclSuccess) fail("init succeeded");
    if (net_has_contexts(&net) && net.ctx) fail("a failed init left the context %p", net.ctx);
    if (!log_contains(arguments->expected_error))
      fail("no line of the log contains \"%s\"", arguments->expected_error);
    if (log_warnings() != 1) fail("%d warnings instead of one", log_warnings());
    int count = 0;
    if (net_devices(&net, &count) == ncclSuccess) fail("%d devices after a failed init", count);
  }
  log_check();
  printf("init failed as expected\n");
}

static void bad_handle(const struct arguments *arguments) {
  struct net net;
  net_load(&net, arguments->plugin, arguments->abi);
  must(net_init(&net, log_line), "init");
  int device = find_device(&net, arguments->device);
  char handle[NCCL_NET_HANDLE_MAXSIZE];
  for (int fill = 0; fill < 256; fill += 85) {
    memset(handle, fill, sizeof handle);
    void *comm = (void *)-1;
    ncclResult_t result = net_connect(&net, device, handle, &comm);
    if (result == ncclSuccess) fail("a handle full of %#x was accepted", fill);
    if (comm) fail("a failed connect left the communicator %p", comm);
  }
  must(net_finalize(&net), "finalize");
  log_check();
  printf("bad handles are errors\n");
}

/* What a version of the interface and the plugin's devices have, and was therefore tried. */
struct row {
  bool groups, devices, flush, dmabuf;
};

/* One of the two ends. */
static struct row run_end(const struct arguments *arguments, bool first, int in, int out) {
  struct net net;
  ncclDebugLogger_t logger = logger_of(arguments);
  bool logs = logger != NULL;
  use_channel(in, out);
  net_load(&net, arguments->plugin, arguments->abi);
  must(net_init(&net, logger), "init");
  /* Before API version 11 an init may give virtual devices other numbers. NCCL calls it with none in use. */
  meet(11);
  if (!arguments->threads || first) check_devices(&net, first);
  int device = find_device(&net, first ? arguments->device : arguments->peer_device);
  struct properties properties;
  must(net_properties(&net, device, &properties), "getProperties");
  struct row row = {.groups = net_group(&net) > 1, .devices = properties.ndevs > 1};
  transfer(&net, device, HOST_MEMORY, ANY_CLOSING, first, logs);
  enum memory best = HOST_MEMORY;
  if (properties.ptr_support & NCCL_PTR_CUDA || arguments->gpu_memory) {
    row.flush = true;
    best = GPU_MEMORY;
    transfer(&net, device, GPU_MEMORY, SENDER_FIRST, first, logs);
  }
  if (properties.ptr_support & NCCL_PTR_DMABUF && arguments->dmabuf_files) {
    row.dmabuf = true;
    transfer(&net, device, DMABUF_MEMORY, TOGETHER, first, logs);
  }
  /* Both ends use both devices; each makes its own, or in one process the same again. */
  if (!row.devices && net_has_vdevices(&net) &&
      strcmp(arguments->device, arguments->peer_device) != 0) {
    char list[512];
    both_devices(arguments, list, sizeof list);
    row.devices = true;
    meet(8);
    transfer(&net, find_device(&net, list), best, WITH_REQUESTS, first, logs);
  }
  meet(9);
  must(net_finalize(&net), "finalize");
  log_check();
  return row;
}

static const char *yes(bool is) { return is ? "yes" : "no"; }

static void tell(const struct arguments *arguments, struct row row) {
  printf("version %d: host memory yes, groups %s, several devices %s, flush %s, DMA-BUF %s\n",
         arguments->abi, yes(row.groups), yes(row.devices), yes(row.flush), yes(row.dmabuf));
  printf("version %d: all data was as sent\n", arguments->abi);
}

static void run_processes(const struct arguments *arguments) {
  int to_child[2], to_parent[2];
  if (pipe(to_child) || pipe(to_parent)) fail("pipe");
  fflush(NULL);
  /* Before the plugin is loaded: neither process inherits anything of it. */
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    role = "peer";
    close(to_child[1]);
    close(to_parent[0]);
    run_end(arguments, false, to_child[0], to_parent[1]);
    exit(0);
  }
  role = "parent";
  close(to_child[0]);
  close(to_parent[1]);
  check_lifecycle(arguments, 10);
  struct row row = run_end(arguments, true, to_parent[0], to_child[1]);
  int status;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
    fail("the peer failed (status %#x)", (unsigned)status);
  tell(arguments, row);
}

struct peer {
  const struct arguments *arguments;
  int in, out;
};

static void *run_peer(void *argument) {
  const struct peer *peer = argument;
  role = "peer";
  run_end(peer->arguments, false, peer->in, peer->out);
  return NULL;
}

/* A failure of either thread ends the process. */
static void run_threads(const struct arguments *arguments) {
  int to_peer[2], to_first[2];
  if (pipe(to_peer) || pipe(to_first)) fail("pipe");
  role = "first";
  /* Before the peer is there, whose threads and files would be counted too. */
  check_lifecycle(arguments, 10);
  struct peer peer = {.arguments = arguments, .in = to_peer[0], .out = to_first[1]};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_peer, &peer)) fail("pthread_create");
  struct row row = run_end(arguments, true, to_first[0], to_peer[1]);
  pthread_join(thread, NULL);
  tell(arguments, row);
}

int main(int argc, char **argv) {
  struct arguments arguments = parse(argc, argv);
  /* A peer that has failed is noticed by what is read from it. */
  signal(SIGPIPE, SIG_IGN);
  set_deadline(arguments.timeout);
  if (arguments.expected_error) expect_init_error(&arguments);
  else if (arguments.bad_handle) bad_handle(&arguments);
  else if (arguments.contract)
    contract(arguments.plugin, arguments.abi, arguments.device, arguments.peer_device,
             logger_of(&arguments));
  else if (arguments.misuse) misuse(arguments.plugin, arguments.abi, arguments.device);
  else if (arguments.sequence)
    sequence(arguments.plugin, arguments.abi, arguments.device, arguments.peer_device,
             logger_of(&arguments), (unsigned long)arguments.seed, arguments.sequence);
  else if (arguments.reloads) {
    check_lifecycle(&arguments, arguments.reloads);
    check_virtual_devices_across_loading(&arguments);
    printf("version %d: nothing is left of %d rounds\n", arguments.abi, arguments.reloads);
  } else if (arguments.threads) run_threads(&arguments);
  else run_processes(&arguments);
  return 0;
}
