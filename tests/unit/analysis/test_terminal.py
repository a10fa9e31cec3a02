"""TESTS: answers as a person and as a program read them."""

import csv
import io
import json
from datetime import datetime
from decimal import Decimal

import pytest
import synthetic_run
from rich.console import Console

from labkit.analysis import load, questions, terminal, thin
from labkit.analysis.load import Result
from labkit.analysis.text import dollars

EVIL = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\x9b31m\u202etxt.exe\u200b\x7f\r"


def shown(call, *args, width=110):
    out = io.StringIO()
    call(*args, Console(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue()


def test_the_seven_answers_come_one_after_the_other_with_bars(run_dir, counts):
    text = shown(terminal.show_answers, run_dir)
    assert [f"{n}. " in text for n in range(1, 8)] == [True] * 7
    assert "What did the Worker write" in text and "MASTER_SUMMARY" in text
    assert f"{counts.tools['execute_shell']} │ ████" in text
    assert len(text.splitlines()) < 140


def test_text_of_the_agents_cannot_act_on_the_terminal():
    text = shown(terminal.show, Result([EVIL, "n"], [(EVIL, 1), (f"{EVIL}\nsecond line", 2)]))
    assert not set(text) & set("\x1b\x07\x9b\u202e\u200b\x7f\r")
    assert "\\x1b]0;owned\\x07\\x1b[2J[red]x[/red]\\x9b31m\\u202etxt.exe\\u200b\\x7f\\r" in text
    assert "second line" in text


def test_notes_about_unreadable_values_are_shown(tmp_path):
    import sqlite3

    folder, _ = synthetic_run.build(tmp_path, steps=4)
    with sqlite3.connect(folder / "run.db") as connection:
        connection.execute("INSERT INTO execution_logs (cost_usd) VALUES ('free')")
    assert "execution_logs.cost_usd: 1 value(s) are not DOUBLE" in shown(terminal.show_answers, folder)


def test_json_is_an_array_of_objects_that_loses_nothing():
    out = io.StringIO()
    row = (
        EVIL,
        None,
        2**70,
        0.1,
        True,
        Decimal("1.5"),
        b"\xff",
        [1, "a"],
        datetime(2026, 9, 6),
        float("nan"),
    )
    terminal.write_json(Result([f"c{n}" for n in range(len(row))], [row]), out)
    assert not set(out.getvalue()) & set("\x1b\x07\x9b\u202e\u200b\x7f\r")
    values = list(json.loads(out.getvalue())[0].values())
    assert values == [EVIL, None, 2**70, 0.1, True, 1.5, "\ufffd", [1, "a"], "2026-09-06 00:00:00", None]


def test_an_empty_answer_is_an_empty_array_and_a_csv_header():
    empty = Result(["a", "b"], [])
    outs = io.StringIO(), io.StringIO()
    terminal.write_json(empty, outs[0])
    terminal.write_csv(empty, outs[1])
    assert json.loads(outs[0].getvalue()) == []
    assert outs[1].getvalue() == "a,b\n"
    assert "(no rows)" in shown(terminal.show, empty)


def test_csv_reads_back_with_quotes_breaks_and_nulls(run_dir, counts):
    out = io.StringIO()
    terminal.write_csv(Result(["a", "n"], [('say "hi",\nthere\x1b', 1), (None, 2.5)]), out)
    assert list(csv.reader(io.StringIO(out.getvalue()))) == [
        ["a", "n"],
        ['say "hi",\nthere\\x1b', "1"],
        ["", "2.5"],
    ]


def test_a_huge_cell_is_cut_with_its_length():
    text = shown(terminal.show, Result(["a"], [("x" * 50_000,)]))
    assert "(50,000" in text and len(text) < 5000


@pytest.mark.parametrize("values", [(0, 0), (None, None), (-3, -1), (float("nan"), 1.0), (float("inf"), 2)])
def test_values_no_bar_can_be_drawn_for_are_shown_all_the_same(values):
    text = shown(terminal.show, Result(["kind", "n"], [("a", values[0]), ("b", values[1])]))
    assert " a " in text and " b " in text


def test_a_long_run_is_put_into_wider_buckets_that_lose_no_event():
    rows = [(float(minute), "EXPLORATION", 2) for minute in range(480)] + [(None, None, 5)]
    short = thin.thinned("activity_over_time", Result(["minute", "phase", "events"], rows))
    assert len(short.rows) <= thin.MAX_LINES + 1
    assert sum(row[2] for row in short.rows) == 965
    assert short.rows[1][0] == 30


def test_a_long_curve_keeps_its_first_and_last_point():
    result = Result(["minute", "cost"], [(n, n / 100) for n in range(745)])
    short = thin.thinned("cumulative_cost", result)
    assert (short.rows[0], short.rows[-1]) == (result.rows[0], result.rows[-1])
    assert len(short.rows) == thin.MAX_LINES


def test_a_short_run_is_shown_minute_by_minute(tmp_path):
    rows = [(0.0, "EXPLORATION", 4), (1.0, "DEVELOPMENT", 6), (2.0, "FINAL_REPORT", 3)]
    result = Result(["minute", "phase", "events"], rows)
    assert thin.thinned("activity_over_time", result).rows == rows


def test_every_shown_number_of_a_run_is_in_its_json(run_dir):
    out = io.StringIO()
    terminal.write_json(load.query(run_dir, "event_types"), out)
    text = shown(terminal.show, load.query(run_dir, "event_types"))
    assert all(item["event_type"] in text and str(item["n"]) in text for item in json.loads(out.getvalue()))


WIDE = "SELECT * FROM execution_logs ORDER BY id LIMIT 3"


def test_a_table_too_wide_for_the_terminal_is_shown_as_records(run_dir):
    result = load.query(run_dir, WIDE)
    lines = shown(terminal.show, result, width=80).splitlines()
    heads = [line.strip() for line in lines if line.startswith("──")]
    assert heads == [f"── row {number} of 3" for number in (1, 2, 3)]
    assert max(map(len, lines)) <= 80
    firsts = [line.split()[1] for line in lines if line.split()[:1] == ["event_type"]]
    assert firsts == [row[result.columns.index("event_type")] for row in result.rows]


@pytest.mark.parametrize(
    "text", ["notes/a_note_with_a_long_name_00003.md", "f" * 64, "word " * 300], ids=["path", "hash", "page"]
)
def test_names_are_not_broken_and_pages_not_squeezed_into_a_column(text):
    wide = Result(["id", "timestamp", "one", "more"], [(1, "2026-01-01 12:00:00", text, "a few words of it")])
    lines = shown(terminal.show, wide, width=80).splitlines()
    assert lines[0].startswith("── row 1 of 1") and max(map(len, lines)) <= 80
    assert text.split()[0] in " ".join(lines)
    assert "── row" not in shown(terminal.show, Result(["one"], [(text,)]), width=80)


def test_the_same_answer_is_a_table_where_it_fits_and_for_programs_it_is_always_the_same(run_dir):
    result = load.query(run_dir, WIDE)
    assert "── row" not in shown(terminal.show, result, width=400)
    out = io.StringIO()
    terminal.write_csv(result, out)
    assert len(list(csv.reader(io.StringIO(out.getvalue())))) == 4


@pytest.mark.parametrize("question", questions.names())
def test_the_named_questions_are_tables_at_80_columns(run_dir, question):
    assert "── row" not in shown(terminal.show, load.query(run_dir, question), width=80)


def test_long_text_of_an_agent_in_a_record_is_folded_and_cannot_act(run_dir):
    result = Result([f"name{n}" for n in range(12)], [(EVIL + "word " * 60, *range(11))])
    text = shown(terminal.show, result, width=80)
    assert "── row 1 of 1" in text and text.count("word") == 60
    assert not set(text) & set("\x1b\x07\x9b\u202e\u200b\x7f\r")
    assert max(map(len, text.splitlines())) <= 80


def test_an_empty_answer_of_many_columns_says_that_there_are_no_rows(run_dir):
    result = load.query(run_dir, "SELECT * FROM execution_logs WHERE false")
    assert shown(terminal.show, result, width=80).strip().endswith("(no rows)")


FORMULAS = ["=1+1", "+1", "-1", "@x", "\t=1", "plain", ""]


def test_csv_gives_cells_as_they_are_and_disarms_formulas_when_told():
    result = Result(["=name", "n"], [(text, -1) for text in FORMULAS])
    as_they_are, safe = io.StringIO(), io.StringIO()
    terminal.write_csv(result, as_they_are)
    terminal.write_csv(result, safe, for_spreadsheets=True)
    assert [row[0] for row in csv.reader(io.StringIO(as_they_are.getvalue()))] == ["=name", *FORMULAS]
    told = list(csv.reader(io.StringIO(safe.getvalue())))
    assert [row[0] for row in told] == ["'=name", "'=1+1", "'+1", "'-1", "'@x", "'\t=1", "plain", ""]
    assert {row[1] for row in told[1:]} == {"-1"}  # a number is no formula


@pytest.mark.parametrize(
    ("usd", "said"),
    [(1.5, "$1.50"), (0, "$0.00"), (0.002, "$0.002"), (0.1 + 0.2, "$0.30"), (12.345, "$12.345")],
)
def test_an_amount_below_a_cent_is_not_told_as_nothing(usd, said):
    assert dollars(usd) == said
