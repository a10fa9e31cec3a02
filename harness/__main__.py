"""GUEST: `python3 -m harness /etc/lab-harness/run.json`: wires the parts, runs, exits 0 once sealed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import threading
import traceback
from pathlib import Path

from harness import commands, prompting, removals, session, settings
from harness.clock import Clock
from harness.commands import StopFlag
from harness.context import Context
from harness.digest import Digest
from harness.ending import Ending
from harness.errors import HarnessError, SettingsError
from harness.final_report import EARLIER_REPORTS, written_reports
from harness.gateway import GatewayLink
from harness.inspector import Inspector
from harness.inventory import Inventory
from harness.model import Model
from harness.money import Purse
from harness.nudges import Nudges
from harness.orchestrator import Orchestrator
from harness.phases import PHASES
from harness.replies import UNANSWERED
from harness.session import Session
from harness.settings import Paths, Settings
from harness.telemetry import events
from harness.telemetry.aside import put_aside
from harness.telemetry.recorder import Recorder
from harness.tools.base import Desk, user_ids
from harness.world import REAL, World


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python3 -m harness RUN.JSON", file=sys.stderr)
        return 2
    try:
        wanted = settings.load(arguments[0])
    except SettingsError as error:
        print(f"harness: {error}", file=sys.stderr)
        return 2
    stop = StopFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    summary = run(wanted, stop)
    print(json.dumps(summary), flush=True)
    return 0 if summary.get("status") == "sealed" else 1


def run(wanted: Settings, stop: threading.Event, world: World = REAL) -> dict:
    """One session from start to sealed. Returns the run summary."""
    _put_earlier_runs_aside(wanted)
    _make_folders(wanted)
    clock = Clock(wanted.length_seconds, wanted.report_reserve_fraction, world.now, world.wait)
    with contextlib.closing(_recorder(wanted, clock, world)) as recorder:
        return _session(wanted, recorder, clock, stop, world)


def _session(wanted: Settings, recorder: Recorder, clock: Clock, stop: threading.Event, world: World) -> dict:
    link = (world.link or GatewayLink)(wanted)
    link.stop = stop
    if summary := session.sealed_summary(recorder):  # started once more after the end, or in mid-seal
        link.start()
        return _bare_ending(wanted, recorder, clock, link, stop, world).go_on(summary)
    try:
        loop = _begin(wanted, recorder, clock, link, stop, world)
    except Exception:
        return _sealed_as_it_is(wanted, recorder, clock, link, stop, world)
    return loop.run()


def _put_earlier_runs_aside(wanted: Settings) -> None:
    """In a guest that was kept. Where run.db's place cannot be cleared no run begins; the mirror may fail."""
    paths = wanted.paths
    try:
        put_aside(paths.telemetry, wanted.run_id)
    except OSError as error:
        raise HarnessError(f"the record of an earlier run in {paths.telemetry} stays: {error}") from error
    with contextlib.suppress(OSError):  # the recorder meets the same fault and reports it
        put_aside(paths.mirror_db.parent, wanted.run_id)


def _recorder(wanted: Settings, clock: Clock, world: World) -> Recorder:
    paths, shown = wanted.paths, (wanted.sandbox, world.shown_as)
    try:
        return Recorder(paths.primary_db, paths.mirror_db, wanted.token, clock.elapsed, world.stamp, shown)
    except (sqlite3.Error, OSError) as error:
        raise HarnessError(f"the record {paths.primary_db} cannot be opened: {error}") from error


def _begin(
    wanted: Settings, recorder: Recorder, clock: Clock, link: GatewayLink, stop: threading.Event, world: World
) -> Orchestrator:
    """Everything up to the first step."""
    earlier = session.load(recorder, wanted.run_id)
    purse = Purse.of(wanted)
    model = Model(wanted, recorder, clock, purse, stop, world)  # begins to load the openai package
    state = earlier or _started(wanted, recorder, world)
    link.commands_after = state.commands_after
    link.start()
    loop = _wire(wanted, recorder, clock, purse, model, link, state, stop, world)
    loop.desk.inventory.begin()
    model.ready()
    clock.start()
    if earlier:
        _resume(loop, earlier)
    return loop


def _sealed_as_it_is(
    wanted: Settings, recorder: Recorder, clock: Clock, link: GatewayLink, stop: threading.Event, world: World
) -> dict:
    """The parts could not be wired: no step can be made, but what was recorded is sealed with a report."""
    said = f"the run could not begin: {traceback.format_exc()[-3000:]}"
    try:
        recorder.event(events.GUARD, guard_reason=said)
    except sqlite3.Error:
        print(f"harness: {said}", flush=True)
    link.start()
    ending = _bare_ending(wanted, recorder, clock, link, stop, world)
    return ending.seal("interrupted")  # in haste: asks no model


def _bare_ending(
    wanted: Settings, recorder: Recorder, clock: Clock, link: GatewayLink, stop: threading.Event, world: World
) -> Ending:
    """One that can seal and no more: it has no model and no memory."""
    return Ending(Desk(wanted, recorder, clock, None, stop, PHASES[0], world=world), None, None, link)


def _make_folders(wanted: Settings) -> None:
    """Without its folders no run begins. One that had begun is taken up without them: its record goes on."""
    paths = wanted.paths
    own = (paths.notes, paths.scripts, paths.workspace / "tools", paths.shown_outputs, paths.outputs)
    for folder in (paths.telemetry, *own):
        try:
            _make_folder(folder, paths, user_ids(wanted.tool_user))
        except (OSError, KeyError) as error:  # KeyError: the Worker's account is gone
            if not paths.primary_db.exists():
                raise HarnessError(f"the folder {folder} cannot be made: {error}") from error


def _make_folder(folder: Path, paths: Paths, owner: tuple[int, int] | None) -> None:
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o700 if folder == paths.telemetry else 0o777)
    found = folder.stat()
    if owner and folder.is_relative_to(paths.workspace) and (found.st_uid, found.st_gid) != owner:
        os.chown(folder, *owner)


def _started(wanted: Settings, recorder: Recorder, world: World) -> Session:
    """First row and first checkpoint are one transaction: after a crash it is this run's, or empty."""
    told = ("minutes", "budget_usd", "model", "inspector_model", "nonce")
    facts = {name: getattr(wanted, name) for name in told} | {"boot_id": world.boot_id()}
    recorder.event(events.RUN_STARTED, sanitized_output=json.dumps(facts), later=True)
    state = Session(wanted.run_id)
    reports = json.dumps(written_reports(wanted.paths.notes))
    state.save(recorder, {EARLIER_REPORTS: reports, removals.BEFORE: removals.begin(wanted.paths)})
    return state


def _wire(
    wanted: Settings, recorder: Recorder, clock: Clock, purse: Purse, model: Model, link: GatewayLink,
    state: Session, stop: threading.Event, world: World,
) -> Orchestrator:  # fmt: skip
    prompts = _prompts(wanted, recorder)
    inspector = Inspector(
        model, recorder, clock, prompts["inspector"], wanted.inspector_model or wanted.model
    )
    inventory = Inventory(wanted, recorder)
    desk = Desk(wanted, recorder, clock, inspector, stop, PHASES[0], inventory=inventory, world=world)
    context = Context(prompts["worker"], wanted.window_max_steps, wanted.window_min_steps)
    digest = Digest(model, recorder, clock, purse, prompts["digest"], wanted.digest_max_tokens)
    nudges = Nudges(wanted.nudge_every_minutes, state.last_nudge_seconds)
    return Orchestrator(
        wanted, recorder, clock, purse, model, desk, context, digest, nudges, link, state, stop
    )


def _prompts(wanted: Settings, recorder: Recorder) -> dict[str, str]:
    """The stored bytes if the run has them, for machine facts may differ after a restart; else new ones."""
    stored = dict(recorder.query("SELECT name, content FROM prompts"))
    for name, content in prompting.build(wanted).items():
        if name not in stored:  # a kill may have come between two of them
            stored[name] = str(recorder.mask(content))
            recorder.prompt(name, stored[name], prompting.sha256(stored[name]))
    return stored


def _clocks(recorder: Recorder, earlier: Session, reached: float) -> tuple[float, float]:
    """Active and wall seconds: the checkpoint's, and what the record knows of the time behind it."""
    active = max(earlier.elapsed_seconds, reached)
    later = "SELECT COALESCE(SUM(latency_seconds), 0) FROM api_requests WHERE step_number > ?"
    unpaid = recorder.query(f"{later} AND status IN (?, ?)", earlier.step, *UNANSWERED)[0][0]
    return active, earlier.wall_seconds + active - earlier.elapsed_seconds + unpaid


def _resume(loop: Orchestrator, earlier: Session) -> None:
    """Budgets, clocks, window and digest as they were; an interrupted call gets a result, not a rerun."""
    recorder = loop.recorder
    reached = "SELECT MAX(step_number), MAX(elapsed_seconds) FROM execution_logs"
    step, elapsed = recorder.query(reached)[0]
    loop.clock.extend(max(0.0, earlier.length_seconds - loop.clock.length))
    loop.purse.budget = max(loop.purse.budget, earlier.budget_usd)
    loop.notices = [text for text in earlier.notices if text != session.RESTARTED]
    loop.clock.carry_on(*_clocks(recorder, earlier, elapsed), earlier.ends_at_seconds)
    loop.purse.spent = recorder.query("SELECT COALESCE(SUM(cost_usd), 0) FROM api_requests")[0][0]
    loop.purse.chars_per_token = earlier.chars_per_token or loop.purse.chars_per_token
    loop.context.digest, loop.context.steps = earlier.digest, earlier.steps()
    unknown = "SELECT COUNT(*) FROM api_requests WHERE cost_usd IS NULL AND step_number > ?"
    since = recorder.query(unknown, earlier.step)[0][0]  # what these may have cost is not in the checkpoint
    loop.purse.unknown = earlier.unknown_usd + since * loop.purse.worst_case(loop.prompt_chars())
    recorder.step = earlier.step = max(step, earlier.step)
    recorder.phase = earlier.phase or recorder.phase
    said = f"goes on after step {recorder.step}; boot {loop.desk.world.boot_id() or 'unknown'}"
    recorder.event(events.RESUMED, sanitized_output=said)
    session.answer_open_calls(recorder, session.INTERRUPTED)
    commands.made_up_for(loop)
    loop.notices.append(session.RESTARTED)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HarnessError as error:
        print(f"harness: {error}", file=sys.stderr)
        sys.exit(1)
