"""GUEST: `python3 -m harness.page_text CHARSET`: HTML in, markdown out; a program, so that it can be ended.

A page of a million bytes can hold the parser for many minutes, and in the harness nothing could stop it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

TOO_DEEP, NOT_HTML = 3, 4  # exit codes
TICK = 0.2
_WHY = {TOO_DEEP: "the page is nested too deeply", NOT_HTML: "the page is no HTML that can be read"}


class Unreadable(Exception):
    """Why there is no text, in our words."""


def markdown(html: bytes, charset: str, seconds: float, stop: threading.Event) -> str:
    """The text of a page, at most `seconds` from now. Raises Unreadable."""
    line = [sys.executable, "-P", "-m", "harness.page_text", charset]
    places = [str(Path(__file__).parents[1]), *(os.path.abspath(place) for place in sys.path if place)]
    environment = {"PYTHONPATH": os.pathsep.join(places), "PATH": os.environ.get("PATH", "")}
    with os.fdopen(os.memfd_create("page"), "w+b") as source:  # a pipe would have to be fed while we wait
        source.write(html)
        source.seek(0)
        pipes = {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(line, env=environment, **pipes) as process:
            try:
                out = _waited_for(process, seconds, stop)
            finally:
                process.kill()
    if process.returncode:
        raise Unreadable(_WHY.get(process.returncode, "reading the page failed"))
    return out.decode("utf-8", errors="replace")


def _waited_for(process: subprocess.Popen, seconds: float, stop: threading.Event) -> bytes:
    ends = time.monotonic() + seconds
    while True:
        try:
            return process.communicate(timeout=TICK)[0]
        except subprocess.TimeoutExpired:
            if stop.is_set() or time.monotonic() > ends:
                raise Unreadable(f"its text could not be taken out within {seconds:.0f} s") from None


def _converted(html: str) -> str:
    from markdownify import MarkdownConverter

    class Readable(MarkdownConverter):
        """markdownify keeps the text of script and style; nobody reads those."""

        def convert_script(self, el, text, parent_tags):  # type: ignore[no-untyped-def]
            return ""

        convert_style = convert_noscript = convert_template = convert_script

    try:
        return Readable(heading_style="ATX").convert(html)
    except RecursionError:
        sys.exit(TOO_DEEP)
    except Exception:  # the parser's own errors have several names
        sys.exit(NOT_HTML)


if __name__ == "__main__":
    text = _converted(sys.stdin.buffer.read().decode(sys.argv[1], errors="replace"))
    sys.stdout.buffer.write(text.encode("utf-8", errors="replace"))
