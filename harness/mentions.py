"""GUEST: finds the files that a text names, and marks those that neither the registry nor the disk knows.

A digest that invents a file sends the Worker after it, again and again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.telemetry.recorder import Recorder

MISSING = " [missing]"
_TOPS = "notes|scripts|tools"
_ENDINGS = "md|py|sh|c|txt|json|csv|sql|log"  # not js: Node.js is no file
# Below a folder of ours any name is meant as a file, a bare word by its ending. Patterns (*, <N>) are none.
_NAMED = re.compile(
    rf"(?<![\w/.~-])(?:[\w./-]*?/workspace/)?(?P<below>(?:{_TOPS})/[\w.+-]+(?:/[\w.+-]+)*)(?![\w*<{{/])"
    rf"|(?<![\w/.~*>}}-])(?P<bare>\w[\w.+-]*\.(?:{_ENDINGS}))(?![\w*<{{/(-])"
)


def mark_missing(text: str, workspace: Path, recorder: Recorder) -> str:
    """The text with ' [missing]' behind each file that does not exist. Marks that it has are set anew."""

    def marked(found: re.Match) -> str:
        path, tail = _without_stop(found)
        # Where a bare name is likely to be; a file further down is not looked for.
        places = [path] if found["below"] else [path, *(f"{top}/{path}" for top in _TOPS.split("|"))]
        whole = found.group(0)
        whole = whole[: len(whole) - len(tail)]
        return whole + ("" if _is_there(places, workspace, recorder) else MISSING) + tail

    return _NAMED.sub(marked, text.replace(MISSING, ""))


def _is_there(places: list[str], workspace: Path, recorder: Recorder) -> bool:
    sql = "SELECT 1 FROM file_registry WHERE file_path = ?"  # by its index: the registry grows with the run
    return any(recorder.query(sql, place) or os.path.lexists(workspace / place) for place in places)


def _without_stop(found: re.Match) -> tuple[str, str]:
    """A full stop at the end belongs to the sentence."""
    path = found["below"] or found["bare"]
    bare = path.rstrip(".")
    return bare, path[len(bare) :]
