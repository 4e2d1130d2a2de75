/*
 * The functions of glibc that Rust's standard library uses and that have got a newer symbol version than
 * GLIBC_2.28, called by the version that they have always had.
 *
 * glibc 2.34 moved libpthread and libdl into libc and gave their functions a new version; 2.33 made
 * functions of what had been inline calls of __xstat. They do the same as before, but a library that was
 * linked with such a glibc cannot be loaded with an older one. So the plugin defines the functions itself,
 * hidden from everybody else, and they go on to the old symbols, which every glibc has.
 *
 * `cargo xtask dist` checks that nothing newer is left; a new release of Rust may need another line here.
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
/* The oldest version of each function, where it is not the first of the platform. */
#define FIRST "GLIBC_2.2.5"
#define SETNAME "GLIBC_2.12"
#define STAT_VERSION 1
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#define SETNAME "GLIBC_2.17"
#define STAT_VERSION 0
#else
#error "build.rs compiles this for x86-64 and AArch64 only"
#endif

/* `name` as version `version` of it, under the name old_NAME. */
#define OLD(version, type, name, parameters) \
  extern type old_##name parameters;         \
  __asm__(".symver old_" #name "," #name "@" version)

#define HERE __attribute__((visibility("hidden")))

/* The function `name`, which calls its old version. */
#define OWN(version, type, name, parameters, arguments) \
  OLD(version, type, name, parameters);                 \
  HERE type name parameters { return old_##name arguments; }

OWN(FIRST, void *, dlopen, (const char *file, int mode), (file, mode))
OWN(FIRST, int, dlclose, (void *library), (library))
OWN(FIRST, char *, dlerror, (void), ())
OWN(FIRST, void *, dlsym, (void *library, const char *name), (library, name))
OWN(FIRST, void *, dlvsym, (void *library, const char *name, const char *version),
     (library, name, version))
OWN(FIRST, int, dladdr, (const void *address, Dl_info *found), (address, found))

OWN(FIRST, int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument),
     (thread, attributes, start, argument))
OWN(FIRST, int, pthread_join, (pthread_t thread, void **result), (thread, result))
OWN(FIRST, int, pthread_detach, (pthread_t thread), (thread))
OWN(SETNAME, int, pthread_setname_np, (pthread_t thread, const char *name), (thread, name))
OWN(FIRST, int, pthread_getattr_np, (pthread_t thread, pthread_attr_t *attributes),
     (thread, attributes))
OWN(FIRST, int, pthread_attr_getguardsize, (const pthread_attr_t *attributes, size_t *size),
     (attributes, size))
OWN(FIRST, int, pthread_attr_getstack,
     (const pthread_attr_t *attributes, void **stack, size_t *size), (attributes, stack, size))
OWN(FIRST, int, pthread_attr_setstacksize, (pthread_attr_t * attributes, size_t size),
     (attributes, size))
OWN(FIRST, int, pthread_key_create, (pthread_key_t * key, void (*end)(void *)), (key, end))
OWN(FIRST, int, pthread_key_delete, (pthread_key_t key), (key))
OWN(FIRST, int, pthread_setspecific, (pthread_key_t key, const void *value), (key, value))
OWN(FIRST, int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))

OLD(FIRST, int, __xstat64, (int version, const char *path, struct stat64 *to));
OLD(FIRST, int, __lxstat64, (int version, const char *path, struct stat64 *to));
OLD(FIRST, int, __fxstat64, (int version, int file, struct stat64 *to));

HERE int stat64(const char *path, struct stat64 *to) {
  return old___xstat64(STAT_VERSION, path, to);
}
HERE int lstat64(const char *path, struct stat64 *to) {
  return old___lxstat64(STAT_VERSION, path, to);
}
HERE int fstat64(int file, struct stat64 *to) { return old___fxstat64(STAT_VERSION, file, to); }

/* Since 2.30; before that there was only the system call. */
HERE pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }
