"""TESTS: what has to hold of a session that was struck and went on, whatever the moment was."""

from __future__ import annotations

import re
from collections import Counter

from struck import TABLES, Left, Session

from harness.phases import PHASES
from harness.session import RESTARTED, from_rows

PLACES = ("telemetry/run.db", "mirror/run.db", "telemetry/sealed/run.db")
COST = 0.001  # of a call, as session_host.py bills it
DOCUMENTED = {
    "time limit reached", "report delivered", "finished by a person", "stopped by a person", "interrupted",
    "budget exhausted", "disk limit reached", "wall limit reached", "model unreachable",
}  # fmt: skip


def faults(session: Session, left: Left | None) -> list[str]:
    """Everything that is wrong with a session that went on after `left`, in words. Empty: nothing."""
    if missing := [place for place in PLACES if not (session.sandbox / place).exists()]:
        return [f"there is no {', no '.join(missing)}: {session.talk()[-600:]}"]
    wrong = [*_copies(session), *_record(session), *_calls(session, left), *_ending(session)]
    if left:
        wrong += [*_nothing_lost(session, left), *_goes_on(session, left)]
    return wrong


def _copies(session: Session) -> list[str]:
    wrong = []
    for place in PLACES:
        if session.rows("PRAGMA integrity_check", place) != [("ok",)]:
            wrong.append(f"{place} fails its integrity check")
    for table in TABLES:
        rows = [session.rows(f"SELECT * FROM {table} ORDER BY 1", place) for place in PLACES]
        wrong += [f"{table} differs in {PLACES[n]}" for n in (1, 2) if rows[n] != rows[0]]
    return wrong


def _record(session: Session) -> list[str]:
    columns = "id, elapsed_seconds, step_number, phase, event_type, guard_reason"
    rows = session.rows(f"SELECT {columns} FROM execution_logs ORDER BY id")
    order = [phase.name for phase in PHASES]
    words = Counter(row[4] for row in rows)
    wrong = []
    if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
        wrong.append("ids have holes")
    if [row[1] for row in rows] != sorted(row[1] for row in rows):
        wrong.append("elapsed_seconds go back")
    if [row[2] for row in rows] != sorted(row[2] for row in rows):
        wrong.append("step numbers go back")
    if [row[3] for row in rows] != sorted((row[3] for row in rows), key=order.index):
        wrong.append("phases go back")
    if any("could not begin" in str(row[5]) for row in rows):  # it may have ended before it had started
        words["RUN_STARTED"] = max(1, words["RUN_STARTED"])
    wrong += [f"{words[word]} events {word}" for word in ("RUN_STARTED", "RUN_SEALED") if words[word] != 1]
    if rows and rows[-1][4] != "RUN_SEALED":
        wrong.append(f"the last event is {rows[-1][4]}")
    return [*wrong, *(f"a traceback: {row[5][-600:]}" for row in rows if "Traceback" in str(row[5]))]


def _calls(session: Session, left: Left | None) -> list[str]:
    sql = (
        "SELECT event_type, tool_name, sanitized_output FROM execution_logs "
        "WHERE event_type IN ('TOOL_CALL', 'TOOL_RESULT') ORDER BY id"
    )
    rows = session.rows(sql)
    wrong = []
    if [row[0] for row in rows] != ["TOOL_CALL", "TOOL_RESULT"] * (len(rows) // 2):
        wrong.append("a call has not exactly one result, right behind it")
    ran_twice = [line for line, times in Counter(session.side()).items() if times > 1]
    wrong += [f"a command ran twice: {line}" for line in ran_twice]
    wrong += [f"a tool ran twice: {note}" for note in _second_versions(session)]
    told = sum(str(row[2]).startswith("interrupted:") for row in rows)
    expected = int(left.has_open_call()) + left.interrupted() if left else 0
    if told != expected:
        wrong.append(f"{told} results say interrupted, {expected} calls were")
    done = {re.search(r"(?:done|external) (\w+)", row[2]) for row in rows if row[0] == "TOOL_RESULT"} - {None}
    unrun = {match[1] for match in done} - {line.split()[-1] for line in session.side()}
    return [*wrong, *(f"the record says {name} ran, and it did not" for name in unrun)]


def _second_versions(session: Session) -> list[str]:
    places = [session.sandbox / "workspace" / folder for folder in ("notes", "scripts")]
    names = [path.name for place in places if place.is_dir() for path in place.iterdir()]
    return [name for name in names if re.fullmatch(r"n_\w+_v\d+\.\w+", name)]


def _ending(session: Session) -> list[str]:
    try:
        summary = session.summary()
    except (OSError, ValueError) as error:
        return [f"no summary.json: {error}"]
    wrong = []
    if not (session.sandbox / "workspace" / summary["final_report"]).is_file():
        wrong.append(f"no report: {summary['final_report']!r}")
    if summary["stop_reason"] not in DOCUMENTED:
        wrong.append(f"stop_reason {summary['stop_reason']!r} is not documented")
    if summary["status"] != "sealed" or not summary["sha256"]:
        wrong.append("not sealed")
    if summary["mirror"] != "ok":
        wrong.append(f"mirror: {summary['mirror']}")
    held = session.rows("SELECT COUNT(*), (SELECT SUM(cost_usd) FROM api_requests) FROM execution_logs")[0]
    if (summary["events"], summary["cost_usd"]) != (held[0], round(held[1] or 0, 6)):
        wrong.append(f"the summary has {summary['events']}, {summary['cost_usd']} and the record {held}")
    if sorted(session.gateway.events) != list(range(1, held[0] + 1)):
        wrong.append(f"the gateway has {len(session.gateway.events)} of {held[0]} events")
    return wrong


def _nothing_lost(session: Session, left: Left) -> list[str]:
    aside = [str(found.relative_to(session.sandbox)) for found in session.sandbox.rglob("earlier/*/run.db")]
    wrong = [
        f"the run's own record was put aside: {place}"
        for place in aside
        if session.rows("SELECT 1 FROM sqlite_master WHERE name = 'execution_logs'", place)
        and session.rows("SELECT 1 FROM execution_logs", place)
    ]
    for table, rows in left.rows.items():
        if table == "workspace_files":  # rows of a known file are replaced, and say so
            continue
        lost = rows - set(session.rows(f"SELECT * FROM {table}"))
        wrong += [f"{len(lost)} committed rows of {table} are gone: {sorted(lost)[0]}"] if lost else []
    final = {row[0]: row for row in session.rows("SELECT * FROM execution_logs")}
    names = [name for _, name, *_ in session.rows("PRAGMA table_info(execution_logs)")]
    for row_id, acknowledged in left.acknowledged.items():
        if final.get(row_id) != tuple(acknowledged[name] for name in names):
            wrong.append(f"event {row_id} was acknowledged and is another now")
    if session.side()[: len(left.side)] != left.side:
        wrong.append("what commands had written is gone")
    return wrong


def _goes_on(session: Session, left: Left) -> list[str]:
    """Window, digest, clock and purse of the first call after the kill, against the last checkpoint."""
    if "window" not in left.state or left.state.get("status") == "sealed" or not _asked_again(session, left):
        return []
    messages, wrong = session.first_request(), []
    steps = from_rows(left.state).steps()
    window = [message for step in steps for message in step.messages]
    is_cut = len(steps) > session.settings["window_max_steps"]
    if not is_cut and messages[2 : 2 + len(window)] != window:
        wrong.append("the window is not the checkpoint's")
    if not is_cut and left.state["digest"] not in messages[1]["content"]:
        wrong.append("the digest is not the checkpoint's")
    if not any(RESTARTED in str(message["content"]) for message in messages):
        wrong.append("the Worker was not told of the restart")
    spent = sum(row[13] or 0 for row in left.rows["api_requests"])
    told = float(re.search(r"^Money: \$([\d.]+) of", messages[-1]["content"], re.M)[1])
    if not spent - 1e-6 <= told <= spent + COST * is_cut + 1e-6:
        wrong.append(f"the purse had spent {spent:.4f} and goes on at {told:.4f}")
    resumed = session.rows("SELECT elapsed_seconds FROM execution_logs WHERE event_type = 'RESUMED'")
    reached = max([float(left.state["elapsed_seconds"]), *(row[3] for row in left.rows["execution_logs"])])
    if len(resumed) != len(left.events("RESUMED")) + 1 or abs(resumed[-1][0] - reached) > 0.01:
        wrong.append(f"the clock had reached {reached} and goes on at {resumed}")
    return wrong


def _asked_again(session: Session, left: Left) -> bool:
    """Whether the session that went on asked the Worker at all: near its end there may be no need to."""
    sql = "SELECT COUNT(*) FROM api_requests WHERE purpose = 'worker'"
    before = sum(row[3] == "worker" for row in left.rows["api_requests"])
    return session.rows(sql)[0][0] > before
