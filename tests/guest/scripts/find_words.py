"""GUEST: as root: where two words can be found: traffic, memory, environments, files. Prints JSON.

usage: python3 - WORD WORD, each as hex and backwards: what is typed must not be what is found.
It listens until the first word has passed, at most TRAFFIC_SECONDS.
Answers {place: [times the first was seen, times the second]}.
"""

import contextlib
import json
import os
import socket
import stat
import sys
import time
from pathlib import Path

WORDS = [bytes.fromhex(typed[::-1]) for typed in sys.argv[1:]]
OVERLAP = max(map(len, WORDS)) - 1
CHUNK, TRAFFIC_SECONDS = 1 << 20, 240
OURS = {os.getpid(), os.getppid()}  # this search itself holds the words
NO_FILES = {"/proc", "/sys", "/dev"}


def counted(content):
    return [content.count(word) for word in WORDS]


def added(counts):
    return [sum(column) for column in zip([0, 0], *counts, strict=True)]


def traffic():
    seen, ends = [0, 0], time.monotonic() + TRAFFIC_SECONDS
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as listener:
        listener.settimeout(1)
        while not seen[0] and time.monotonic() < ends:
            with contextlib.suppress(TimeoutError):
                seen = added([seen, counted(listener.recv(70_000))])
    return seen


def chunks(file, size=None):
    """A file in pieces that overlap, so that no word is cut in two."""
    tail = b""
    while size is None or size > 0:
        piece = file.read(CHUNK if size is None else min(CHUNK, size))
        if not piece:
            return
        size = None if size is None else size - len(piece)
        yield tail + piece
        tail = piece[-OVERLAP:]


def others():
    return [path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) not in OURS]


def memory():
    counts = []
    for process in others():
        with contextlib.suppress(OSError), open(process / "mem", "rb", buffering=0) as file:
            for line in (process / "maps").read_text().splitlines():
                (begin, end), rights = (int(part, 16) for part in line.split()[0].split("-")), line.split()[1]
                if rights.startswith("r"):
                    with contextlib.suppress(OSError, ValueError, OverflowError):
                        file.seek(begin)
                        counts += map(counted, chunks(file, end - begin))
    return added(counts)


def environments():
    counts = []
    for process in others():
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                counts.append(counted((process / name).read_bytes()))
    return added(counts)


def files():
    counts = []
    for folder, inside, names in os.walk("/"):
        inside[:] = [name for name in inside if os.path.join(folder, name) not in NO_FILES]
        for path in (os.path.join(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, "rb") as file:
                        counts += map(counted, chunks(file))
    return added(counts)


print(json.dumps({place.__name__: place() for place in (traffic, memory, environments, files)}))
