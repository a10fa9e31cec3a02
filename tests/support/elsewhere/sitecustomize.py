"""TESTS: makes this Python look to labkit's code as on Windows or macOS. Python imports it by itself.

LAB_ELSEWHERE names the system. What the standard library needs of its own Linux stays as it is for it; for
labkit a name that is not there elsewhere is not there, and the file system refuses what it would there.
"""

from __future__ import annotations

import builtins
import ctypes
import io
import os
import re
import signal
import socket
import sys
import warnings
from typing import Any

import missing_elsewhere

WINDOWS = os.environ["LAB_ELSEWHERE"] == "windows"
LISTS = (missing_elsewhere.BOTH, missing_elsewhere.WINDOWS) if WINDOWS else (missing_elsewhere.BOTH,)
MISSING = {name: " ".join(one[name] for one in LISTS).split() for name in ("os", "signal", "socket")}
MODULES = missing_elsewhere.MODULES | (missing_elsewhere.MODULES_WINDOWS if WINDOWS else set())
OURS = ("labkit", "__main__")
O_BINARY = 1 << 30
PROC = "/./proc"  # as the stand-in itself calls it
FORBIDDEN = r'[<>:"|?*\x00-\x1f]|[. ]$|^(?i:con|prn|aux|nul|com\d|lpt\d)(\.|$)'  # no file's name on Windows


def ours(depth: int) -> bool:
    """Whether the code that asks is labkit's, or a test's own program."""
    return _is_ours(sys._getframe(depth + 1))


def _is_ours(frame: Any) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in OURS


def hide(module: Any, there: dict[str, Any]) -> None:
    """Take the missing names of a module from labkit. there: what these have instead."""
    known = {
        name: getattr(module, name) for name in MISSING.get(module.__name__, ()) if hasattr(module, name)
    }
    known |= {name: getattr(module, name) for name in there if hasattr(module, name)}

    def lookup(name: str) -> Any:
        if ours(1):
            if name in there:
                return there[name]
        elif name in known:
            return known[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} elsewhere")

    for name in known:
        delattr(module, name)
    module.__getattr__ = lookup


def imported(name: str, globals: Any = None, *more: Any, **named: Any) -> Any:  # noqa: A002
    """__import__: what the standard library has imported for itself is not there for labkit either."""
    if name in MODULES and (globals or {}).get("__name__", "").partition(".")[0] in OURS:
        raise ModuleNotFoundError(f"No module named {name!r} elsewhere", name=name)
    return real["import"](name, globals, *more, **named)


class Kernel32:
    """As much of it as tells whether a process runs, and since when."""

    def __init__(self, name: str, use_last_error: bool = False) -> None:
        assert name == "kernel32"

        def open_process(access: int, inherit: bool, pid: int) -> int:
            return pid if _stat(pid) else 0

        def exit_code(handle: Any, code: Any) -> int:
            code._obj.value = 259 if _stat(handle.value) else 1
            return 1

        def times(handle: Any, created: Any, *_: Any) -> int:
            stat = _stat(handle.value)
            created._obj.dwLowDateTime = int(stat[19]) & 0xFFFFFFFF if stat else 0
            return int(bool(stat))

        self.OpenProcess, self.GetExitCodeProcess, self.GetProcessTimes = open_process, exit_code, times
        self.CloseHandle = lambda handle: 1


def _stat(pid: int) -> list[str]:
    """What Linux says of a process, from state on; [] where there is none."""
    try:
        descriptor = real["os.open"](f"{PROC}/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    fields = os.read(descriptor, 4096).decode(errors="replace").rpartition(")")[2].split()
    os.close(descriptor)
    return [] if fields[0] in "ZX" else fields


real: dict[str, Any] = {"os.open": os.open, "open": builtins.open, "import": builtins.__import__}
real |= {"kill": os.kill, "replace": os.replace, "unlink": os.unlink}
held_up: set[str] = set()


def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """os.open for labkit. A descriptor in text mode would write line breaks as two characters."""
    text = os.fspath(path)
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    if os.path.isdir(text):
        raise PermissionError(13, "Permission denied", text)
    if flags & os.O_CREAT and not flags & O_BINARY:
        raise AssertionError(f"{text} is opened in text mode: O_BINARY is not among its flags")
    if flags & os.O_EXCL and text not in held_up:
        held_up.add(text)
        raise PermissionError(13, "the file of that name is being deleted", text)
    return real["os.open"](path, flags & ~O_BINARY, mode)


def replaced(source: Any, target: Any) -> None:
    """os.replace: a file that somebody has open stays; the first time somebody always has."""
    for path in (source, target):
        demand_closed(path)
    if os.path.exists(target) and os.fspath(target) not in held_up:
        held_up.add(os.fspath(target))
        raise PermissionError(13, "the file is used by another process", os.fspath(target))
    real["replace"](source, target)


def demand_closed(path: Any) -> None:
    name = os.path.realpath(os.fspath(path))
    for descriptor in os.listdir(f"{PROC}/self/fd"):
        try:
            if os.readlink(f"{PROC}/self/fd/{descriptor}") == name:
                raise PermissionError(13, "the file is used by another process", name)
        except FileNotFoundError:
            pass


def killed(pid: int, number: int) -> None:
    """TerminateProcess, whatever the number: no handler runs. 0 is Ctrl-C, and no question."""
    if number in (0, 1):
        raise OSError(87, "The parameter is incorrect")
    try:
        real["kill"](pid, 9)
    except ProcessLookupError:
        raise PermissionError(13, "Access is denied") from None


def paired(*_: Any) -> tuple[socket.socket, socket.socket]:
    """socket.socketpair, as Windows has it: over the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def with_line_breaks(
    file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
    newline: Any = None, *more: Any, **named: Any,
) -> Any:  # fmt: skip
    """open: what is written as text gets two characters for each line break, unless it said otherwise."""
    if "b" not in mode and newline is None and any(letter in mode for letter in "wax+"):
        newline = "\r\n"
    return real["open"](file, mode, buffering, encoding, errors, newline, *more, **named)


def judge(event: str, arguments: tuple) -> None:
    """An audit hook: it sees what the standard library does on labkit's behalf, too."""
    name = arguments[0] if arguments and isinstance(arguments[0], str) else ""
    if event == "open" and name.startswith("/proc/") and _on_behalf_of_labkit():
        raise FileNotFoundError(2, "No such file or directory", name)
    if not WINDOWS:
        return
    makes = {"os.mkdir": name, "os.rename": arguments[1] if len(arguments) > 1 else ""}.get(event, "")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT:
        makes = name
    if re.search(FORBIDDEN, os.path.basename(os.fspath(makes))):
        raise OSError(22, "no file can have this name", makes)
    if event == "os.remove" and _on_behalf_of_labkit():
        demand_closed(name)


def _on_behalf_of_labkit() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if _is_ours(frame):
            return True
        frame = frame.f_back
    return False


builtins.__import__ = imported
sys.addaudithook(judge)
# Linux keeps a port from a second listener unless it is told otherwise, as this option does on Windows.
hide(socket, {"SO_EXCLUSIVEADDRUSE": socket.SO_REUSEADDR} if WINDOWS else {})
hide(signal, {})
if WINDOWS:
    ctypes.WinDLL = Kernel32
    import subprocess

    socket.socketpair = paired
    subprocess.DETACHED_PROCESS = subprocess.CREATE_NEW_PROCESS_GROUP = 0
    builtins.open = io.open = with_line_breaks
    hide(os, {"name": "nt", "O_BINARY": O_BINARY, "open": opened, "replace": replaced, "rename": replaced,
              "kill": killed, "linesep": "\r\n"})  # fmt: skip
    hide(sys, {"platform": "win32"})
else:
    hide(os, {})
    hide(sys, {"platform": "darwin"})
warnings.filterwarnings("error", category=EncodingWarning, module="labkit")
