"""TESTS: the names that Windows and macOS lack, by the pages of Python's library reference."""

from __future__ import annotations

BOTH = {
    "os": """
        O_DSYNC O_SYNC O_RSYNC O_DIRECT O_TMPFILE O_PATH O_NOATIME fdatasync pidfd_open
        posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity copy_file_range
        memfd_create eventfd getrandom splice listxattr getxattr setxattr
    """,
    "signal": "pidfd_send_signal SIGPWR SIGSTKFLT SIGPOLL SIGRTMIN SIGRTMAX",
    "socket": """
        SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE SO_DOMAIN SO_PROTOCOL AF_NETLINK AF_PACKET
        AF_VSOCK
    """,
}
WINDOWS = {
    "os": """
        chown chroot ctermid environb fchdir fchmod fchown fork forkpty fpathconf fstatvfs getegid
        geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid
        getresuid getsid getuid initgroups killpg lchown lockf major makedev minor mkfifo mknod nice
        openpty pathconf pipe2 posix_spawn posix_spawnp pread preadv pwrite pwritev readv
        register_at_fork sched_yield sendfile set_blocking setegid seteuid setgid setgroups setpgid
        setpriority setregid setresgid setresuid setreuid setsid setuid statvfs sync sysconf
        tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid writev WNOHANG O_CLOEXEC
        O_DIRECTORY O_NDELAY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_ASYNC O_ACCMODE PRIO_PROCESS
    """,
    "signal": """
        SIGKILL SIGHUP SIGALRM SIGCHLD SIGCONT SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGTTIN
        SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ alarm pause setitimer
        getitimer siginterrupt sigwait pthread_kill pthread_sigmask
    """,
    "socket": "AF_UNIX SO_REUSEPORT SCM_RIGHTS CMSG_LEN CMSG_SPACE sethostname send_fds recv_fds",
}
MODULES = {"_posixshmem", "spwd", "ossaudiodev", "nis"}
MODULES_WINDOWS = {
    *("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "syslog", "posix", "readline", "crypt"),
    *("curses", "_posixsubprocess", "multiprocessing.popen_fork"),
}
