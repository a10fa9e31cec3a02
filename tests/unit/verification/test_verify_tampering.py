"""TESTS: what was done to a collected run, and what `lab verify` says. The forger makes all sums fit."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from calendar import timegm
from pathlib import Path

import pytest

from labkit.gateway import chain
from labkit.intake import is_complete
from labkit.verification.verify import examine, text

# What a session of some seconds always has.
WORDS = ("RUN_STARTED", "PHASE_STARTED", "WORKER_THOUGHT", "TOOL_CALL", "TOOL_RESULT", "INSPECTOR_DECISION")
COLUMNS = (
    "step_number, timestamp, elapsed_seconds, phase, event_type, tool_name, command_or_input, "
    "sanitized_output, guard_status, guard_reason, prompt_tokens, completion_tokens, cached_tokens, cost_usd"
)
BOTH = ("run.db", "mirror.db")


def found(copy) -> tuple[str, str]:
    """(kind, record) of the first bad record."""
    copy.seal()
    report = copy.examine()
    assert report.first, text(report)
    return report.first.kind, report.first.record


def first_id(copy, word: str) -> int:
    return copy.ask(f"SELECT MIN(id) FROM execution_logs WHERE event_type = '{word}'")[0][0]


def shift(copy, number: int, by: int) -> None:
    """Ids behind `number` move, as a forger would do it so that no hole is left."""
    for database in BOTH:
        copy.sql(
            f"UPDATE execution_logs SET id = -(id + {by}) WHERE id > {number}",
            "UPDATE execution_logs SET id = -id WHERE id < 0",
            database=database,
        )


def test_an_honest_run_holds(honest):
    report = examine(honest)
    assert report.holds, text(report)
    assert report.checked["tool calls"] > 5 and report.checked["results shown again"] > 5


def test_what_only_the_guest_says_is_marked_so(honest):
    report = examine(honest)
    assert any("no other party saw them" in line for line in report.asserted)
    assert "on the guest's word alone" in text(report)


@pytest.mark.parametrize("word", WORDS)
def test_a_row_taken_out_of_both_databases_is_missing(copy, word):
    number = first_id(copy, word)
    for database in BOTH:
        copy.sql(f"DELETE FROM execution_logs WHERE id = {number}", database=database)
    assert found(copy) == ("missing", f"event {number}")


@pytest.mark.parametrize("word", WORDS)
def test_a_row_taken_out_with_the_ids_closed_up_is_missing(copy, word):
    number = first_id(copy, word)
    for database in BOTH:
        copy.sql(f"DELETE FROM execution_logs WHERE id = {number}", database=database)
    shift(copy, number, -1)
    assert found(copy) == ("missing", f"event {number}")


@pytest.mark.parametrize(
    "column", ["sanitized_output", "command_or_input", "timestamp", "phase", "guard_status"]
)
@pytest.mark.parametrize("word", [*WORDS, "RUN_SEALED"])
def test_a_row_changed_in_both_databases_is_altered(copy, word, column):
    number = first_id(copy, word)
    for database in BOTH:
        copy.sql(f"UPDATE execution_logs SET {column} = 'x' WHERE id = {number}", database=database)
    assert found(copy) == ("altered", f"event {number}")


@pytest.mark.parametrize("word", WORDS)
def test_two_rows_that_changed_places_are_altered(copy, word):
    number = first_id(copy, word)
    for database in BOTH:
        copy.sql(
            f"UPDATE execution_logs SET id = -1 WHERE id = {number}",
            f"UPDATE execution_logs SET id = {number} WHERE id = {number + 1}",
            f"UPDATE execution_logs SET id = {number + 1} WHERE id = -1",
            database=database,
        )
    assert found(copy) == ("altered", f"event {number}")


@pytest.mark.parametrize("word", WORDS)
def test_a_row_put_in_between_is_forged(copy, word):
    number = first_id(copy, word)
    shift(copy, number, 1)
    values = COLUMNS.replace("sanitized_output", "'made up'")
    for database in BOTH:
        sql = f"INSERT INTO execution_logs (id, {COLUMNS}) SELECT {number + 1}, {values} FROM execution_logs"
        copy.sql(f"{sql} WHERE id = {number}", database=database)
    assert found(copy) == ("forged", f"event {number + 1}")


def test_a_row_put_behind_the_seal_is_forged(copy):
    last = copy.ask("SELECT MAX(id) FROM execution_logs")[0][0]
    for database in BOTH:
        copy.sql("INSERT INTO execution_logs (event_type) VALUES ('BACKUP')", database=database)
    assert found(copy) == ("forged", f"event {last + 1}")


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_record_with_its_tail_cut_is_truncated(copy, rows):
    last = copy.ask("SELECT MAX(id) FROM execution_logs")[0][0]
    for database in BOTH:
        copy.sql(f"DELETE FROM execution_logs WHERE id > {last - rows}", database=database)
    assert found(copy) == ("truncated", f"event {last - rows + 1}")


@pytest.mark.parametrize(
    ("change", "kind", "table"),
    [
        ("DELETE FROM file_registry WHERE id = 1", "missing", "file_registry"),
        (
            "DELETE FROM file_registry WHERE id = (SELECT MAX(id) FROM file_registry)",
            "missing",
            "file_registry",
        ),
        ("UPDATE file_registry SET file_path = 'notes/other.md' WHERE id = 2", "missing", "file_registry"),
        (
            "INSERT INTO file_registry (file_path, file_type) VALUES ('notes/x.md', 'SCRATCHPAD')",
            "forged",
            "file_",
        ),
        ("DELETE FROM api_requests WHERE id = 3", "missing", "api_requests"),
        ("DELETE FROM api_requests WHERE id = (SELECT MAX(id) FROM api_requests)", "missing", "exchange"),
        ("UPDATE api_requests SET cost_usd = 0 WHERE id = 3", "altered", "api_requests 3"),
        ("UPDATE api_requests SET prompt_tokens = 1 WHERE id = 3", "altered", "api_requests 3"),
        (
            "INSERT INTO api_requests (purpose, status, prompt_tokens) VALUES ('free', 'ok', 5)",
            "forged",
            "api_",
        ),
        ("UPDATE prompts SET content = 'Obey.' WHERE name = 'worker'", "altered", "prompts worker"),
        ("DELETE FROM prompts WHERE name = 'inspector'", "missing", "prompts inspector"),
        (
            "UPDATE workspace_files SET sha256 = 'aa' WHERE path = (SELECT MIN(path) FROM workspace_files)",
            "altered",
            "",
        ),
    ],
)
def test_a_change_of_the_other_tables_in_both_copies_is_found(copy, change, kind, table):
    for database in BOTH:
        copy.sql(change, database=database)
    got, record = found(copy)
    assert got == kind and table in record


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("DELETE FROM execution_logs WHERE id = 5", "missing"),
        ("UPDATE execution_logs SET sanitized_output = 'x' WHERE id = 5", "altered"),
        ("INSERT INTO execution_logs (event_type) VALUES ('BACKUP')", "forged"),
        ("DELETE FROM execution_logs WHERE id > 9", "truncated"),
        ("UPDATE file_registry SET version = 9 WHERE id = 1", "altered"),
        ("DELETE FROM workspace_files", "missing"),
        ("UPDATE session_state SET value = '1' WHERE key = 'step'", "altered"),
        ("UPDATE prompts SET sha256 = 'x' WHERE name = 'digest'", "altered"),
    ],
)
def test_a_mirror_that_was_changed_is_named(copy, change, kind):
    copy.sql(change, database="mirror.db")
    copy.seal()
    first = copy.examine().first
    assert (first.kind, first.where) == (kind, "mirror.db")


def as_written(record: dict) -> str:
    """The body of a record: events stand as the guest wrote them, the rest as the gateway writes."""
    return json.dumps(record["body"], separators=(", ", ": ") if record["kind"] == "event" else (",", ":"))


def relinked(records: list[dict]) -> list[bytes]:
    """The chain made whole again, as somebody who can write the ledger would."""
    prev, lines = chain.GENESIS, []
    for number, record in enumerate(records, start=1):
        line = json.dumps({**record, "n": number, "body": None, "prev": prev}, separators=(",", ":"))
        line = line.replace('"body":null', f'"body":{as_written(record)}', 1).encode() + b"\n"
        prev = hashlib.sha256(line[:-1]).hexdigest()
        lines.append(line)
    return lines


@pytest.mark.parametrize("number", [1, 2, 9])
def test_a_line_taken_out_of_the_ledger_is_missing(copy, number):
    lines = copy.lines("ledger.jsonl")
    copy.put("ledger.jsonl", lines[: number - 1] + lines[number:])
    assert found(copy) == ("missing", f"line {number}")


@pytest.mark.parametrize("number", [1, 2, 9])
@pytest.mark.parametrize("what", ["at", "prev", "kind"])
def test_a_line_changed_in_the_ledger_is_altered(copy, number, what):
    lines = copy.lines("ledger.jsonl")
    record = json.loads(lines[number - 1]) | {what: "2026-01-01T00:00:00Z"}
    lines[number - 1] = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    copy.put("ledger.jsonl", lines)
    assert found(copy) == ("altered", f"line {number}")


def test_two_lines_of_the_ledger_that_changed_places_are_altered(copy):
    lines = copy.lines("ledger.jsonl")
    lines[4], lines[5] = lines[5], lines[4]
    copy.put("ledger.jsonl", lines)
    assert found(copy) == ("altered", "line 5")


def test_a_line_put_into_the_ledger_is_forged(copy):
    lines = copy.lines("ledger.jsonl")
    record = json.loads(lines[6]) | {"at": "2026-01-01T00:00:00Z"}
    copy.put("ledger.jsonl", [*lines[:6], json.dumps(record).encode() + b"\n", *lines[6:]])
    assert found(copy) == ("forged", "line 7")


def test_a_line_added_to_the_ledgers_end_is_forged(copy):
    records = copy.records()
    lines = relinked([*records, {**records[-1], "kind": "event"}])
    copy.put("ledger.jsonl", lines)
    kind, record = found(copy)
    assert (kind, record) == ("forged", f"line {len(lines)}")


@pytest.mark.parametrize("lines", [1, 5])
def test_a_ledger_with_its_tail_cut_is_truncated(copy, lines):
    kept = copy.lines("ledger.jsonl")[:-lines]
    copy.put("ledger.jsonl", kept)
    assert found(copy) == ("truncated", f"line {len(kept) + 1}")


def test_a_ledger_cut_in_the_middle_of_its_last_line_is_truncated(copy):
    whole = b"".join(copy.lines("ledger.jsonl"))
    copy.put("ledger.jsonl", [whole[:-10]])
    assert found(copy)[0] == "truncated"


def test_a_ledger_written_anew_does_not_have_the_sealed_head(copy):
    records = copy.records()
    records[3]["at"] = "2026-01-01T00:00:00Z"
    copy.put("ledger.jsonl", relinked(records))
    assert found(copy) == ("altered", f"line {len(records)}")


@pytest.mark.parametrize("name", ["events.jsonl", "requests.jsonl"])
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda lines: lines[:3] + lines[4:], "missing"),
        (lambda lines: [*lines[:3], lines[3].replace(b"time", b"tame", 1), *lines[4:]], "altered"),
        (lambda lines: [*lines[:3], b"{}\n", *lines[3:]], "forged"),
        (lambda lines: lines[:-2], "truncated"),
        (lambda lines: [*lines, b"{}\n"], "forged"),
    ],
)
def test_the_files_made_from_the_ledger_must_say_what_it_says(copy, name, change, kind):
    copy.put(name, change(copy.lines(name)))
    copy.seal()
    first = copy.examine().first
    assert (first.kind, first.where) == (kind, f"gateway/{name}")


def test_a_record_of_another_start_is_replayed(copy):
    for database in BOTH:
        sql = "UPDATE execution_logs SET sanitized_output = replace(sanitized_output, '5f3a', '0000')"
        copy.sql(f"{sql} WHERE event_type = 'RUN_STARTED'", database=database)
    assert found(copy) == ("replayed", "RUN_STARTED")


def test_a_record_of_another_run_is_replayed(copy):
    copy.sql("UPDATE session_state SET value = '20250101-000000-aaaaaa' WHERE key = 'run_id'")
    assert found(copy) == ("replayed", "session_state")


def test_a_gateway_folder_of_another_run_is_replayed(copy):
    records = copy.records()
    records[0]["body"]["run_id"] = "20250101-000000-aaaaaa"
    copy.put("ledger.jsonl", relinked(records))
    copy.seal()
    kinds = {(finding.kind, finding.where) for finding in copy.examine().findings}
    assert ("replayed", "gateway/ledger.jsonl") in kinds


def test_an_old_run_under_a_new_name_is_replayed(honest, tmp_path):
    other = Path(shutil.copytree(honest, tmp_path / "20261231-235959-ffffff"))
    assert examine(other).first.kind == "replayed"


def test_a_clock_set_back_is_found_where_the_ledger_heard_it(copy):
    """As the guest would have pushed it: the row is in the ledger, too."""
    records = copy.records()
    numbers = [n for n, record in enumerate(records) if record["kind"] == "event"]
    number = records[numbers[8]]["body"]["id"]
    records[numbers[8]]["body"]["timestamp"] = "2026-01-01 00:00:00"
    copy.put("ledger.jsonl", relinked(records))
    for database in BOTH:
        sql = f"UPDATE execution_logs SET timestamp = '2026-01-01 00:00:00' WHERE id = {number}"
        copy.sql(sql, database=database)
    copy.seal()
    said = [finding.what for finding in copy.examine().findings if finding.record == f"event {number}"]
    assert said == ["its clock was set back"]


def an_hour_earlier(text: str, form: str) -> str:
    return time.strftime(form, time.gmtime(timegm(time.strptime(text, form)) - 3600))


def of_the_clock(copy) -> list[str]:
    copy.seal()
    words = ("its clock was set back", "it is dated after this host heard it")
    return [finding.what for finding in copy.examine().findings if finding.what in words]


def test_an_event_dated_after_this_host_heard_it_is_found(copy):
    records = copy.records()
    number = [n for n, record in enumerate(records) if record["kind"] == "event"][8]
    records[number]["body"]["timestamp"] = "2099-01-01 00:00:00"
    copy.put("ledger.jsonl", relinked(records))
    assert of_the_clock(copy) == ["it is dated after this host heard it"]


def test_a_clock_of_this_host_that_was_set_back_accuses_no_guest(copy):
    """By an hour, in the midst of the run; the guest's goes on, or follows it some events later."""
    records = copy.records()
    events = [n for n, record in enumerate(records) if record["kind"] == "event"]
    for record in records[events[10] :]:
        record["at"] = an_hour_earlier(record["at"], "%Y-%m-%dT%H:%M:%SZ")
    copy.put("ledger.jsonl", relinked(records))
    assert of_the_clock(copy) == []
    for number in events[20:]:
        body = records[number]["body"]
        body["timestamp"] = an_hour_earlier(body["timestamp"], "%Y-%m-%d %H:%M:%S")
    copy.put("ledger.jsonl", relinked(records))
    assert of_the_clock(copy) == []


@pytest.mark.parametrize("seen", ["x", 5, [], {"messages": 5}, {"messages": [5], "calls": "x", "text": None}])
def test_what_the_kit_would_never_write_is_no_reason_to_break_off(copy, seen):
    records = copy.records()
    for record in records:
        if record["kind"] == "exchange":
            record["body"]["seen"] = seen
    copy.put("ledger.jsonl", relinked(records))
    copy.seal()
    report = copy.examine()
    assert report.findings and report.checked["files"] > 5


def test_a_bill_above_the_ledger_tells_of_calls_that_the_relay_did_not_see(copy):
    records = copy.records()
    body = {"hash": "h", "usd": 5.0, "revoked": True}
    lines = relinked([*records, {"at": records[-1]["at"], "kind": "bill", "body": body}])
    copy.put("ledger.jsonl", lines)
    manifest = json.loads((copy.folder / "manifest.json").read_text())
    manifest["ledger"] = vars(chain.end_of(copy.folder / "gateway"))
    (copy.folder / "manifest.json").write_text(json.dumps(manifest))
    assert found(copy) == ("missing", "an exchange")


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "gateway/gateway.json"])
def test_a_changed_file_shows_in_the_sums(copy, name):
    (copy.folder / name).write_bytes((copy.folder / name).read_bytes() + b"\n")
    first = copy.examine().first
    assert (first.kind, first.record) == ("altered", name)


def test_a_summary_that_says_something_else_than_the_seal_is_altered(copy):
    summary = json.loads((copy.folder / "summary.json").read_text())
    (copy.folder / "summary.json").write_text(json.dumps(summary | {"files_lost": 5}))
    assert found(copy) == ("altered", "files_lost")


def test_a_registered_note_that_is_gone_from_the_workspace_is_missing(copy):
    (path,) = copy.ask(
        "SELECT path FROM workspace_files WHERE lost IS NULL AND size > 0 ORDER BY path LIMIT 1"
    )[0]
    copy.sql(f"INSERT OR IGNORE INTO file_registry (file_path) VALUES ('{path}')")
    (copy.folder / "workspace" / path).unlink()
    copy.seal()
    assert ("missing", f"workspace/{path}") in {(one.kind, one.where) for one in copy.examine().findings}


def test_a_note_with_other_content_is_altered(copy):
    (path,) = copy.ask("SELECT path FROM workspace_files WHERE sha256 IS NOT NULL ORDER BY path LIMIT 1")[0]
    (copy.folder / "workspace" / path).write_text("something else entirely, and longer than it was" * 100)
    assert found(copy) == ("altered", f"workspace_files {path}")


def test_a_ledger_that_was_removed_is_missing_and_not_an_older_kits(copy):
    (copy.folder / "gateway/ledger.jsonl").unlink()
    assert found(copy) == ("missing", "the ledger")


def test_a_run_of_an_older_kit_gets_a_clear_sentence(copy):
    for name in ("ledger.jsonl", "ledger.head"):
        (copy.folder / "gateway" / name).unlink()
    manifest = json.loads((copy.folder / "manifest.json").read_text())
    del manifest["ledger"]
    (copy.folder / "manifest.json").write_text(json.dumps(manifest))
    copy.seal()
    report = copy.examine()
    assert not report.holds and not report.findings
    assert "kept no chain" in text(report)


def test_an_empty_list_of_sums_is_truncated_and_the_run_is_not_whole(copy):
    (copy.folder / "SHA256SUMS").write_text("")
    first = copy.examine().first
    assert (first.kind, first.where) == ("truncated", "SHA256SUMS")
    assert not is_complete(copy.folder)


@pytest.mark.parametrize("name", ["run.db", "manifest.json"])
def test_a_list_of_sums_without_what_every_collect_lists_is_missing_it(copy, name):
    path = copy.folder / "SHA256SUMS"
    path.write_text("".join(s for s in path.read_text().splitlines(True) if not s.endswith(f"  {name}\n")))
    findings = copy.examine().findings
    assert [(one.kind, one.record) for one in findings] == [("missing", name)]
    assert not is_complete(copy.folder)


@pytest.mark.parametrize(
    "name", ["workspace/evil.md", "outputs/x.txt", "gateway/x", "backup/x", "workspace/x-wal"]
)
def test_a_file_put_where_only_collect_writes_is_forged(copy, name):
    (copy.folder / name).parent.mkdir(exist_ok=True)
    (copy.folder / name).write_text("x")
    assert [(one.kind, one.record) for one in copy.examine().findings] == [("forged", name)]


def test_a_file_of_the_users_beside_the_record_is_a_note_in_the_singular(copy):
    (copy.folder / "my-remarks.txt").write_text("x")
    report = copy.examine()
    assert report.holds
    assert any(note.startswith("1 file came after") for note in report.notes)


@pytest.mark.parametrize("manifest", [None, "{}"])
def test_a_manifest_that_lost_the_ledgers_head_is_missing_it(copy, manifest):
    (copy.folder / "manifest.json").unlink()
    if manifest:
        (copy.folder / "manifest.json").write_text(manifest)
    assert found(copy) == ("missing", "the ledger's head")


def test_an_emptied_ledger_is_truncated_and_said_to_be_empty(copy):
    copy.put("ledger.jsonl", [])
    assert found(copy) == ("truncated", "the ledger")
    assert "the file is empty" in text(copy.examine())


def test_a_ledger_that_is_gone_with_its_head_in_the_manifest_is_missing(copy):
    (copy.folder / "manifest.json").write_text("{}")
    (copy.folder / "gateway/ledger.jsonl").unlink()
    assert found(copy) == ("missing", "the ledger")


def test_prompts_taken_out_of_run_db_alone_are_missing_there(copy):
    there = copy.ask("SELECT COUNT(*) FROM prompts")[0][0]
    copy.sql("DELETE FROM prompts")
    copy.seal()
    first = copy.examine().first
    assert (first.kind, first.where) == ("missing", "run.db")
    assert f"run.db lacks {there} rows of prompts that mirror.db has" in first.what


def test_what_no_line_of_the_ledger_covers_is_named(honest):
    said = text(examine(honest))
    assert "contents of notes, scripts, backup, outputs and console.log" in said
    assert "whoever can write the whole folder can make SHA256SUMS anew" in said
