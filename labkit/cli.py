"""HOST: the command line's entry point: which verbs there are, and one way to fail.

The verbs stand in labkit/verbs/, one module a group. Data goes to standard output, talk to standard error.
"""

from __future__ import annotations

import errno
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
    return f"{error.strerror or error}{where}\n     mend that, then repeat"


def _words(typed: list[str]) -> list[str]:
    """`lab help run` means `lab run --help`."""
    return [*typed[1:], "--help"] if typed[:1] == ["help"] else typed


def _spell_what_does_not_fit() -> None:
    """What a locale such as latin-1 lacks is written out, as `\\u2026`: no output fails for it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """The entry point: one way to fail, with one sentence and an exit code."""
    _spell_what_does_not_fit()
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
