"""HOST: the files that `--task` and `--prompt` name: read as they are, or refused."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from harness import prompting
from labkit.errors import USAGE, LabError

MAX_TEXT_CHARS = 1_000_000  # of a task or a prompt
SPACED_BLANK = re.compile(r"\{\{(?=\s|\w+\s)\s*(\w+)\s*\}\}")


def read(what: str, file: Path) -> str:
    """The text of the file of --task or --prompt, as it is."""
    try:
        # newline="": the prompt is recorded byte for byte, so no line break may be changed on the way.
        with file.open(encoding="utf-8", newline="") as opened:
            text = opened.read(MAX_TEXT_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        message = f"can't read the {what} file {file}: {reason}"
        raise LabError(message, "nothing was changed", USAGE) from error
    if len(text) > MAX_TEXT_CHARS:
        message = f"the {what} file {file} has more than {MAX_TEXT_CHARS:,} characters"
        raise LabError(message, "no model reads that much at every step; shorten it", USAGE)
    if not text.strip():
        raise LabError(f"the {what} file {file} is empty", f"leave --{what} out, or fill it", USAGE)
    return text


def prompt(file: Path, task: str) -> str:
    """A Worker's prompt with no blank that nobody fills; a task that it has no place for is refused."""
    content = read("prompt", file)
    demand_blanks(str(file), content, task)
    return content


def demand_blanks(where: str, content: str, task: str) -> None:
    """LabError (usage) for a prompt with a blank that nobody fills, or no place for its task."""
    known = set(prompting.BLANK.findall(prompting.text("worker")))
    if spaced := SPACED_BLANK.search(content):
        reason = f"{where} has the blank {spaced[0]}, which nobody fills with spaces in it"
        raise LabError(reason, f"write {{{{{spaced[1]}}}}}", USAGE)
    used = set(prompting.BLANK.findall(content))
    for name in sorted(used - known):
        near = difflib.get_close_matches(name, known, n=1) or sorted(known)
        raise LabError(
            f"{where} has the blank {{{{{name}}}}}, which nobody fills",
            f"there is: {', '.join('{{' + one + '}}' for one in near)}",
            USAGE,
        )
    if task and "task" not in used:
        reason = f"{where} has no {{{{task}}}}, so the Worker would never read the task"
        raise LabError(reason, "put {{task}} where it shall stand, or leave --task and run_task out", USAGE)
