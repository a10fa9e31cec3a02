"""HOST: what the tools of a recorded run gave back: shell outputs by command, pages by address."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from labkit.simulation.replay.pace import reviewing

_ENDED = re.compile(
    r"(?s)\A(.*?)\n?\[(?:no output, )?((?:exit code|ended by|killed|could not|interrupted)[^\]\n]*)\]\Z"
)
_WITHHELD = re.compile(r"The command ran \(([^)\n]*)\), but its output is withheld")
_WRAPPED = re.compile(r"(?s)<untrusted_web_content [^>]*>\n(.*)\n</untrusted_web_content [^>]*>")
NOT_RECORDED = "(simulation: the record has no output of this command)"


@dataclass
class Use:
    """One recorded tool call. reviewed: what the Inspector read last; seconds: without reviews."""

    tool: str
    given: str
    text: str
    reviewed: str
    seconds: float

    def shell(self) -> tuple[str, float, str] | None:
        """Output, seconds, ending; None where it was not run."""
        if withheld := _WITHHELD.match(self.text):
            output = self.reviewed.removeprefix(f"output: {self.given}\n")
            return output or NOT_RECORDED, self.seconds, withheld[1]
        if self.text.startswith("interrupted: "):  # by a crash of the harness
            return "", self.seconds, self.text
        ended = _ENDED.match(self.text)
        wrapped = _WRAPPED.search(self.text)
        return (wrapped[1] if wrapped else ended[1], self.seconds, ended[2]) if ended else None

    def page(self) -> tuple[str, float] | None:
        """Text and seconds; of a page that was withheld the text is what the Inspector's event kept."""
        if wrapped := _WRAPPED.search(self.text):
            return wrapped[1], self.seconds
        return (self.reviewed.partition("\n")[2], self.seconds) if self.reviewed else None


def tool_results(
    rows: list[dict], requests: list[dict]
) -> tuple[dict[str, deque[tuple[str, float, str]]], dict[str, tuple[str, float]]]:
    """Shell results by command, in order; pages by address."""
    outputs: dict[str, deque[tuple[str, float, str]]] = defaultdict(deque)
    pages: dict[str, tuple[str, float]] = {}
    for use in _uses(rows, reviewing(requests)):
        if use.tool == "execute_shell" and (done := use.shell()):
            outputs[use.given].append(done)
        elif use.tool == "browser_fetch" and (page := use.page()):
            pages[_url(use.given)] = page
    return outputs, pages


def _uses(rows: list[dict], reviews: dict[int, float]) -> Iterator[Use]:
    call, reviewed = None, ""
    for row in rows:
        if row["event_type"] == "TOOL_CALL":
            call, reviewed = row, ""
        elif row["event_type"] == "INSPECTOR_DECISION":
            reviewed = row["command_or_input"] or ""
        elif row["event_type"] == "TOOL_RESULT" and call is not None:
            took = (row["elapsed_seconds"] or 0.0) - (call["elapsed_seconds"] or 0.0)
            seconds = round(max(0.0, took - reviews[row["step_number"]]), 3)
            given, text = call["command_or_input"] or "", row["sanitized_output"] or ""
            yield Use(call["tool_name"], given, text, reviewed, seconds)
            call = None


def _url(arguments: str) -> str:
    try:
        return str(json.loads(arguments).get("url", "")).strip()
    except (ValueError, AttributeError, RecursionError):
        return ""
