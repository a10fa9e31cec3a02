/* TESTS: strikes a process at the Nth write it makes below a folder: kills it there, or makes the call fail.
 *
 * Preloaded. Sits between SQLite or Python and the system call: write, pwrite, fsync, fdatasync, ftruncate, rename,
 * unlink. A child process is left alone: only the process that called engine_arm is struck. What is mapped (the -shm
 * file) makes no call and is not counted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL_BEFORE, KILL_HALFWAY, KILL_AFTER, FAIL_ONCE, FAIL_ON };

static char below[PATH_MAX];
static long wanted, seen;
static int action, error_number, armed;
static pid_t struck;

void engine_arm(const char *folder, long at, int what, int error) {
    snprintf(below, sizeof below, "%s", folder);
    wanted = at, action = what, error_number = error, seen = 0;
    struck = getpid();
    armed = 1;
}
void engine_disarm(void) { armed = 0; }
long engine_seen(void) { return __atomic_load_n(&seen, __ATOMIC_SEQ_CST); }

static int counts_path(const char *path) {
    return armed && path && strstr(path, below) && getpid() == struck;
}
static int counts_fd(int fd) {
    char link[40], path[PATH_MAX];
    if (!armed || getpid() != struck) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return counts_path(path);
}
static int reached(void) {
    long now = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST);
    return action == FAIL_ON ? now >= wanted : now == wanted;
}
static void die(void) {
    kill(struck, SIGKILL);
    for (;;) pause();
}
#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* HIT: whether this call is the one; DO: the call itself; HALF: the same with half of the bytes. */
#define STRIKE(counted, DO, HALF)                                                          \
    int saved = errno, hit = (counted) && reached();                                       \
    errno = saved;                                                                         \
    if (!hit || action == COUNT) return DO;                                                \
    if (action == FAIL_ONCE || action == FAIL_ON) { errno = error_number; return -1; }     \
    if (action == KILL_HALFWAY) { HALF; }                                                  \
    if (action == KILL_AFTER) { DO; }                                                      \
    die();                                                                                 \
    return -1

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write);
    STRIKE(counts_fd(fd), next(fd, data, size), if (next(fd, data, size / 2)) {});
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    NEXT(pwrite);
    STRIKE(counts_fd(fd), next(fd, data, size, at), if (next(fd, data, size / 2, at)) {});
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    NEXT(pwrite64);
    STRIKE(counts_fd(fd), next(fd, data, size, at), if (next(fd, data, size / 2, at)) {});
}
int fsync(int fd) { NEXT(fsync); STRIKE(counts_fd(fd), next(fd), ); }
int fdatasync(int fd) { NEXT(fdatasync); STRIKE(counts_fd(fd), next(fd), ); }
int ftruncate(int fd, off_t size) { NEXT(ftruncate); STRIKE(counts_fd(fd), next(fd, size), ); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); STRIKE(counts_fd(fd), next(fd, size), ); }
int rename(const char *from, const char *to) { NEXT(rename); STRIKE(counts_path(to), next(from, to), ); }
int unlink(const char *path) { NEXT(unlink); STRIKE(counts_path(path), next(path), ); }
