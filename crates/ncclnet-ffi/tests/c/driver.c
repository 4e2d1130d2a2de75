/*
 * Drives a network plugin of NCCL through its C interface, knowing nothing but the header. This file
 * is the whole program, because it includes the others:
 *
 *   cc -std=c11 -pthread -I ../../include driver.c -o driver -ldl
 *
 *   driver PLUGIN [--abi N] [--dev NAME|INDEX] [--peer-dev NAME|INDEX] [--timeout SECONDS]
 *          [--threads] [MODE]
 *
 * Without a mode, two ends move data between two devices and check every byte (transfer.c). Each is a
 * process; with --threads both are threads of one, for devices that are the process's own. The modes:
 *   --expect-init-error TEXT   init must fail, and a line of its log must contain TEXT
 *   --null-logger              as without a mode, but without a logger: not a line must be missed
 *   --bad-handle               connecting to a handle full of 0xff must be an error
 *   --misuse                   wrong arguments to every function must be errors (misuse.c); works
 *                              on a machine without devices too
 *
 * The exit status is 0 if everything was as it must be; otherwise the last line says what was not.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net.c"
#include "transfer.c"
#include "misuse.c"

struct arguments {
  const char *plugin;
  int abi;
  const char *device;
  const char *peer_device;
  int timeout;
  const char *expected_error;
  bool threads;
  bool null_logger;
  bool bad_handle;
  bool misuse;
};

static void usage(const char *problem) {
  fprintf(stderr,
          "%s\nusage: driver PLUGIN [--abi 8..12] [--dev NAME|INDEX] [--peer-dev NAME|INDEX] "
          "[--timeout SECONDS]\n       [--threads] [--null-logger]\n"
          "       | --expect-init-error TEXT | --bad-handle | --misuse\n",
          problem);
  exit(2);
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
    if (!strcmp(name, "--abi") && has_value) arguments.abi = number(argv[++i], 8, 12);
    else if (!strcmp(name, "--dev") && has_value) arguments.device = argv[++i];
    else if (!strcmp(name, "--peer-dev") && has_value) arguments.peer_device = argv[++i];
    else if (!strcmp(name, "--timeout") && has_value)
      arguments.timeout = number(argv[++i], 1, 86400);
    else if (!strcmp(name, "--expect-init-error") && has_value)
      arguments.expected_error = argv[++i];
    else if (!strcmp(name, "--threads")) arguments.threads = true;
    else if (!strcmp(name, "--null-logger")) arguments.null_logger = true;
    else if (!strcmp(name, "--bad-handle")) arguments.bad_handle = true;
    else if (!strcmp(name, "--misuse")) arguments.misuse = true;
    else if (name[0] != '-' && !arguments.plugin) arguments.plugin = name;
    else usage(name);
  }
  if (!arguments.plugin) usage("no plugin given");
  bool moves_data = !arguments.expected_error && !arguments.bad_handle && !arguments.misuse;
  if (arguments.threads && !moves_data) usage("--threads is for two ends; this has one");
  if (!arguments.device) arguments.device = "0";
  if (!arguments.peer_device) arguments.peer_device = arguments.device;
  return arguments;
}

/* The index of a device given by name or index. */
static int find_device(const struct net *net, const char *wanted) {
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
  fail("there is no device %s among %d", wanted, count);
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
             "%d maxP2pBytes %zu\n",
             dev, properties.name, properties.port, (unsigned long long)properties.guid,
             properties.speed, properties.pci_path ? properties.pci_path : "none",
             properties.ptr_support, properties.max_comms, properties.max_recvs,
             properties.max_p2p_bytes);
    if (!properties.name || !*properties.name) fail("device %d has no name", dev);
    if (properties.name != again.name || properties.pci_path != again.pci_path)
      fail("device %d: the strings are not the same ones every time", dev);
    if (!(properties.ptr_support & NCCL_PTR_HOST)) fail("device %d: no host memory", dev);
    if (properties.speed <= 0) fail("device %d: speed %d", dev, properties.speed);
    if (properties.port < 1) fail("device %d: port %d", dev, properties.port);
    if (properties.max_comms < 1) fail("device %d: maxComms %d", dev, properties.max_comms);
    if (properties.max_recvs != 8) fail("device %d: maxRecvs %d", dev, properties.max_recvs);
    if (properties.device_type != NCCL_NET_DEVICE_HOST)
      fail("device %d: netDeviceType %d", dev, properties.device_type);
    if (properties.ndevs != 1 || properties.first_device != dev)
      fail("device %d is made of %d devices, the first of which is %d", dev, properties.ndevs,
           properties.first_device);
    if (properties.max_p2p_bytes < 1 << 20 || properties.max_p2p_bytes > (size_t)1 << 40)
      fail("device %d: maxP2pBytes %zu", dev, properties.max_p2p_bytes);
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
 * another one comes. Where there is a finalize, nothing may be left behind.
 */
static void check_lifecycle(const struct arguments *arguments, ncclDebugLogger_t logger) {
  int files = 0;
  for (int round = 0; round < 10; round++) {
    struct net net;
    net_load(&net, arguments->plugin, arguments->abi);
    int threads = count_threads();
    struct net second = net;
    must(net_init(&net, logger), "init");
    must(net_init(&second, logger), "a second init");
    if (net.abi >= 11 && (!net.ctx || net.ctx == second.ctx))
      fail("init gave %p and %p", net.ctx, second.ctx);
    must(net_finalize(&second), "finalize of the second");
    int count = 0;
    must(net_devices(&net, &count), "devices while one context is left");
    must(net_finalize(&net), "finalize");
    if (net.abi >= 11) {
      if (net_devices(&net, &count) == ncclSuccess) fail("devices after the last finalize");
      /* The kernel wakes whoever joins a thread a moment before it strikes it off the list. */
      int after;
      for (int look = 0; (after = count_threads()) != threads && look < 1000; look++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
      if (after != threads) fail("%d threads before init, %d after finalize", threads, after);
    }
    net_unload(&net);
    /* The first round opens what stays open for the whole process. */
    if (round == 0) files = count_files();
    else if (count_files() != files)
      fail("%d open files after the first round, %d after round %d", files, count_files(), round);
    look_at_clock("loading and unloading");
  }
}

static void expect_init_error(const struct arguments *arguments) {
  struct net net;
  net_load(&net, arguments->plugin, arguments->abi);
  /* A failed init must not look like success the next time. */
  for (int attempt = 0; attempt < 2; attempt++) {
    log_forget();
    if (net_init(&net, log_line) == ncclSuccess) fail("init succeeded");
    if (net.abi >= 11 && net.ctx) fail("a failed init left the context %p", net.ctx);
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

static ncclDebugLogger_t logger_of(const struct arguments *arguments) {
  return arguments->null_logger ? NULL : log_line;
}

/* One of the two ends. */
static void run_end(const struct arguments *arguments, bool first, int in, int out) {
  struct net net;
  ncclDebugLogger_t logger = logger_of(arguments);
  net_load(&net, arguments->plugin, arguments->abi);
  must(net_init(&net, logger), "init");
  check_devices(&net, first);
  int device = find_device(&net, first ? arguments->device : arguments->peer_device);
  transfer(&net, device, first, in, out, logger != NULL);
  must(net_finalize(&net), "finalize");
  log_check();
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
  check_lifecycle(arguments, logger_of(arguments));
  run_end(arguments, true, to_parent[0], to_child[1]);
  int status;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
    fail("the peer failed (status %#x)", (unsigned)status);
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
  check_lifecycle(arguments, logger_of(arguments));
  struct peer peer = {.arguments = arguments, .in = to_peer[0], .out = to_first[1]};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_peer, &peer)) fail("pthread_create");
  run_end(arguments, true, to_first[0], to_peer[1]);
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  struct arguments arguments = parse(argc, argv);
  /* A peer that has failed is noticed by what is read from it. */
  signal(SIGPIPE, SIG_IGN);
  set_deadline(arguments.timeout);
  if (arguments.expected_error) expect_init_error(&arguments);
  else if (arguments.bad_handle) bad_handle(&arguments);
  else if (arguments.misuse) misuse(arguments.plugin, arguments.abi, arguments.device);
  else {
    if (arguments.threads) run_threads(&arguments);
    else run_processes(&arguments);
    printf("version %d: all data was as sent\n", arguments.abi);
  }
  return 0;
}
