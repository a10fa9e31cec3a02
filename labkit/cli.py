"""HOST: the command line's entry point: which verbs there are, and one way to fail.

The verbs stand in labkit/verbs/, one module a group. Data goes to standard output, talk to standard error.
"""

from __future__ import annotations

import errno
import os
import sys

from labkit.analysis.text import harmless
from labkit.errors import NOT_READY, OK, LabError
from labkit.progress import hush, warn
from labkit.verbs.shared import app

from labkit.verbs import guest, session, rehearsing, asks, record  # noqa: F401  # isort: skip  (in the order of the help)

INTERRUPTED = 130
READER_LEFT = 1  # with it typer and rich end a program whose output nobody reads; we never do


def _os_sentence(error: OSError) -> str:
    file = error.filename2 or error.filename  # of a copy, the place it was to go to
    where = f": {file}" if file else ""
    if error.errno == errno.ENOSPC:
        return f"a disk of this host is full{where}\n     `df -h` shows which; free some, then repeat"
    if not where and _folder_is_gone():
        return "the folder you are in is gone\n     `cd` to another, then repeat"
    return f"{error.strerror or error}{where}\n     mend that, then repeat"


def _words(typed: list[str]) -> list[str]:
    """`lab help run` means `lab run --help`."""
    return [*typed[1:], "--help"] if typed[:1] == ["help"] else typed


def _make_streams_bear_all() -> None:
    """What a locale such as latin-1 lacks is spelt (`\\u2026`); what was closed (`>&-`) goes nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  as long as the program
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def main() -> None:
    """The entry point: one way to fail, with one sentence and an exit code."""
    _make_streams_bear_all()
    try:
        app(_words(sys.argv[1:]), prog_name="lab")
    except LabError as error:
        # A guest's words may be in it: nothing of them reaches the terminal unfiltered.
        warn(harmless(f"lab: {error}"))
        sys.exit(error.code)
    except OSError as error:
        warn(harmless(f"lab: {_os_sentence(error)}"))
        sys.exit(NOT_READY)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into an exit without a word
            warn("lab: interrupted\n     `lab status` shows what exists")
        if ended.code == READER_LEFT:  # of the help: `lab help run | head`
            hush(sys.stdout)
            sys.exit(OK)
        raise


if __name__ == "__main__":
    main()
