/* TESTS: strikes a process at the Nth write it makes below a folder: kills it there, or makes the call fail.
 *
 * Preloaded. Sits between SQLite or Python and the system call: write, pwrite, fsync, fdatasync, ftruncate,
 * posix_fallocate, rename, unlink, link, mkdir, and an open that may make the file. A child process is left
 * alone: only the process that called engine_arm is struck. What is mapped (the -shm file) makes no call and is
 * not counted.
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
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* FILL: the first write takes half of its bytes, as on a disk that runs full; from the next call on they fail. */
enum { COUNT, KILL_BEFORE, KILL_HALFWAY, KILL_AFTER, FAIL_ONCE, FAIL_ON, FILL };

static char below[PATH_MAX];
static long wanted, seen;
static int action, error_number, armed;
static pid_t struck;
static __thread long mine; /* the number of this thread's call */

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
/* The path of an open file or folder, with `more` behind it; 0: there is none. */
static int path_of(int fd, const char *more, char *path) {
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    if (length < 0) return 0;
    snprintf(path + length, PATH_MAX - length, "%s%s", *more ? "/" : "", more);
    return 1;
}
static int counts_fd(int fd) {
    char path[PATH_MAX];
    return armed && getpid() == struck && path_of(fd, "", path) && counts_path(path);
}
static int counts_at(int folder, const char *name) {
    char path[PATH_MAX];
    if (!name || *name == '/' || folder == AT_FDCWD) return counts_path(name);
    return armed && getpid() == struck && path_of(folder, name, path) && counts_path(path);
}
static int reached(void) {
    mine = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST);
    return action == FAIL_ON || action == FILL ? mine >= wanted : mine == wanted;
}
static int fails(void) { return action == FAIL_ONCE || action == FAIL_ON || action == FILL; }
static void die(void) {
    kill(struck, SIGKILL);
    for (;;) pause();
}
#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* counted: whether this call is one; DO: the call itself; HALF: the same with half of the bytes; FAILED: what it
 * returns then; FIRST: what comes before that. */
#define STRIKE_AS(counted, DO, HALF, FAILED, FIRST)                                        \
    int saved = errno, hit = (counted) && reached();                                       \
    errno = saved;                                                                         \
    if (!hit || action == COUNT) return DO;                                                \
    FIRST;                                                                                 \
    if (fails()) { errno = error_number; return FAILED; }                                  \
    if (action == KILL_HALFWAY) { HALF; }                                                  \
    if (action == KILL_AFTER) { DO; }                                                      \
    die();                                                                                 \
    return FAILED
#define STRIKE(counted, DO, HALF) STRIKE_AS(counted, DO, HALF, -1, )
/* Of data: a disk that runs full takes the beginning. */
#define STRIKE_DATA(fd, DO, HALF)                                                          \
    STRIKE_AS(counts_fd(fd), DO, if (HALF) {}, -1, if (action == FILL && mine == wanted) return HALF)

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write);
    STRIKE_DATA(fd, next(fd, data, size), next(fd, data, size - size / 2));
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    NEXT(pwrite);
    STRIKE_DATA(fd, next(fd, data, size, at), next(fd, data, size - size / 2, at));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    NEXT(pwrite64);
    STRIKE_DATA(fd, next(fd, data, size, at), next(fd, data, size - size / 2, at));
}
int fsync(int fd) { NEXT(fsync); STRIKE(counts_fd(fd), next(fd), ); }
int fdatasync(int fd) { NEXT(fdatasync); STRIKE(counts_fd(fd), next(fd), ); }
/* Of a full disk bytes can still be given back. */
#define CUTS (counts_fd(fd) && !(action == FILL && size == 0))
int ftruncate(int fd, off_t size) { NEXT(ftruncate); STRIKE(CUTS, next(fd, size), ); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); STRIKE(CUTS, next(fd, size), ); }
int rename(const char *from, const char *to) { NEXT(rename); STRIKE(counts_path(to), next(from, to), ); }
int unlink(const char *path) { NEXT(unlink); STRIKE(counts_path(path), next(path), ); }
int link(const char *from, const char *to) { NEXT(link); STRIKE(counts_path(to), next(from, to), ); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    NEXT(linkat);
    STRIKE(counts_at(to_at, to), next(from_at, from, to_at, to, flags), );
}
int mkdir(const char *path, mode_t mode) { NEXT(mkdir); STRIKE(counts_path(path), next(path, mode), ); }
int mkdirat(int at, const char *path, mode_t mode) {
    NEXT(mkdirat);
    STRIKE(counts_at(at, path), next(at, path, mode), );
}
/* These return the error itself. */
int posix_fallocate(int fd, off_t at, off_t size) {
    NEXT(posix_fallocate);
    STRIKE_AS(counts_fd(fd), next(fd, at, size), , error_number, );
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    NEXT(posix_fallocate64);
    STRIKE_AS(counts_fd(fd), next(fd, at, size), , error_number, );
}

#define MAKES(flags) ((flags) & (O_CREAT | __O_TMPFILE))
#define MODE                                                                               \
    mode_t mode = 0;                                                                       \
    if (MAKES(flags)) {                                                                    \
        va_list more;                                                                      \
        va_start(more, flags);                                                             \
        mode = va_arg(more, mode_t);                                                       \
        va_end(more);                                                                      \
    }
int open(const char *path, int flags, ...) {
    NEXT(open);
    MODE
    STRIKE(MAKES(flags) && counts_path(path), next(path, flags, mode), );
}
int open64(const char *path, int flags, ...) {
    NEXT(open64);
    MODE
    STRIKE(MAKES(flags) && counts_path(path), next(path, flags, mode), );
}
int openat(int at, const char *path, int flags, ...) {
    NEXT(openat);
    MODE
    STRIKE(MAKES(flags) && counts_at(at, path), next(at, path, flags, mode), );
}
int openat64(int at, const char *path, int flags, ...) {
    NEXT(openat64);
    MODE
    STRIKE(MAKES(flags) && counts_at(at, path), next(at, path, flags, mode), );
}
