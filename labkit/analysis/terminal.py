"""HOST: answers in the terminal. Owns tables, JSON, CSV and bars.

What the agents wrote cannot act on the terminal: every character that could is spelled out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from labkit.analysis import load, questions
from labkit.analysis.text import UNSAFE, harmless
from labkit.analysis.thin import thinned

MAX_CELL = 2000
BAR_WIDTH = 24
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
READABLE_TEXT = 16  # the narrowest a column of text may get in a table
UNBROKEN = 64  # a name or a hash up to this length stays whole
MOST_LINES = 12  # of one cell in a table
_BAR_COLUMNS = {"events", "cost_cumulative_usd", "n", "calls", "files", "prompt"}


def show(result: load.Result, console: Console, title: str = "") -> None:
    """A result as a table, with a bar where a column is a count; as records where a table would not fit."""
    if _needed_width(result) > console.width:
        _show_records(result, console, title)
    else:
        _show_table(result, console, title)
    if not result.rows:
        console.print("(no rows)")


def _needed_width(result: load.Result) -> int:
    """Columns of a terminal below which a table folds names and numbers into pieces nobody can read."""
    widths = [len(harmless(name)) for name in result.columns]
    for row in result.rows:
        for index, value in enumerate(row):
            widths[index] = max(widths[index], _readable_width(value, len(row)))
    return sum(widths) + len(" │ ") * len(widths) + 1


def _readable_width(value: object, columns: int) -> int:
    """Of a cell: numbers whole, texts in lines of some words, neither many lines nor broken names."""
    text = _cell(value)
    if _is_number(value) or len(text) <= READABLE_TEXT:
        return len(text)
    word = max((len(word) for word in text.split()), default=0)
    by_lines = len(text) // MOST_LINES if columns > 1 else 0
    return max(READABLE_TEXT, by_lines, word if word <= UNBROKEN else 0)


def _show_records(result: load.Result, console: Console, title: str) -> None:
    """One record a block, one value a line."""
    if title:
        console.print(Text(harmless(title)))
    for number, row in enumerate(result.rows, 1):
        console.print(Text(f"── row {number} of {len(result.rows)} ", style="bold"))
        block = Table.grid(padding=(0, 2))
        block.add_column(justify="right", style="dim", no_wrap=True, max_width=console.width // 3)
        block.add_column(overflow="fold")
        for name, value in zip(result.columns, row, strict=True):
            block.add_row(Text(harmless(name)), Text(_cell(value)))
        console.print(block)


def _show_table(result: load.Result, console: Console, title: str) -> None:
    table = Table(title=Text(harmless(title)) if title else None, title_justify="left")
    bars = _bars(result)
    for index, name in enumerate(result.columns):
        right = any(_is_number(row[index]) for row in result.rows)
        table.add_column(Text(harmless(name)), justify="right" if right else "left", overflow="fold")
    if bars:
        table.add_column("")
    for row, bar in zip(result.rows, bars or [None] * len(result.rows), strict=True):
        cells = [Text(_cell(value)) for value in row]
        table.add_row(*cells, *([Text(bar, style="cyan")] if bar is not None else []))
    console.print(table)


def write_json(result: load.Result, out: TextIO) -> None:
    """An array of objects, one a row. Lossless: characters a terminal acts on are JSON escapes."""
    objects = [dict(zip(result.columns, map(_plain, row), strict=True)) for row in result.rows]
    narrow = bool(out.encoding) and not out.encoding.lower().startswith("utf")  # a locale such as latin-1
    text = json.dumps(objects, ensure_ascii=narrow, indent=1, allow_nan=False, default=str)
    out.write(UNSAFE.sub(lambda match: _json_escape(match[0]), text) + "\n")


def write_csv(result: load.Result, out: TextIO, for_spreadsheets: bool = False) -> None:
    """Comma-separated, with a header; NULL is empty, control characters are spelled out.

    for_spreadsheets: text that one would run as a formula gets a `'` before it. Programs want it as it is.
    """
    writer = csv.writer(out, lineterminator="\n")
    text = _no_formula if for_spreadsheets else harmless
    writer.writerow([text(name) for name in result.columns])
    for row in result.rows:
        writer.writerow([text(v) if isinstance(v, str) else v for v in map(_plain, row)])


def _no_formula(text: str) -> str:
    return f"'{harmless(text)}" if text.startswith(FORMULA_STARTS) else harmless(text)


def show_answers(run_dir: Path, console: Console) -> None:
    """The reference run's seven questions, answered one after the other; long answers thinned."""
    with load.opened(run_dir) as run:
        for number, name in enumerate(questions.SEVEN, 1):
            question = questions.load(name)
            console.print()
            console.print(Text(f"{number}. {question.sentence}", style="bold"))
            show(thinned(name, run.query(name)), console)
            console.print(Text(f"   all of it: lab query {name}", style="dim"))
        for note in run.notes:
            console.print(Text(harmless(f"note: {note}"), style="yellow"))


def _bars(result: load.Result) -> list[str] | None:
    """A bar a row for the first column that counts something; None where there is none."""
    index = next((i for i, name in enumerate(result.columns) if name in _BAR_COLUMNS), None)
    if index is None or len(result.rows) < 2:
        return None
    values = [row[index] if _is_number(row[index]) else 0 for row in result.rows]
    top = max(values, default=0)
    return [_bar(value, top) for value in values]


def _bar(value: float, top: float) -> str:
    if not top > 0 or not value > 0:
        return ""
    return "█" * max(1, round(BAR_WIDTH * value / top)) if value / top >= 1 / (2 * BAR_WIDTH) else "▏"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = harmless(str(_plain(value)).replace("\t", "    "))
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}… ({len(text):,} characters)"


def _plain(value: object) -> object:
    """A value as JSON knows it: blobs as text, decimals as numbers, infinities as None."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]
    return _number(value)


def _number(value: object) -> object:
    try:
        number = float(value)  # Decimal, numpy
    except (TypeError, ValueError):
        return str(value)  # dates, intervals, UUIDs
    return number if abs(number) < float("inf") else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
