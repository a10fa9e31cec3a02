"""HOST: `lab collect`: decides whether the guest is asked, or stopped and its disks are read."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from labkit import asking, dead_disks, offline, ownership, playbooks, presence, runs, snapshot, state
from labkit.config import Lab
from labkit.errors import UNREACHABLE, LabError
from labkit.gateway import process
from labkit.gateway.events import EventTail, run_summary
from labkit.gateway.files import read_lines
from labkit.gateway.views import EVENTS
from labkit.guest import Hypervisor
from labkit.intake import is_complete
from labkit.ssh import Shell

SSH_SECONDS = 45  # a guest that runs has been up for long: this is no boot
ROOM_SECONDS = 30
OUTAGE_SECONDS = 3600  # a provider that is away, or asks to be let be, is waited for without an event
QUIET_SECONDS = 60  # beyond that, and the longest command and the longest model call of the run
FORCED = "asked for with --offline"
END_SECONDS = 60  # in which a harness that has sealed its run ends: a slow mirror holds it up
LOOK_SECONDS = 0.5
STOP_SECONDS = 20  # in which a session that hears of it ends what runs, writes its report and seals
# Where the session is: active, sealed, or neither: it could go on. Nothing where the guest can't say.
STANDS = """
systemctl is-active --quiet lab-harness.service && echo active && exit
[ -d {telemetry} ] || exit
[ -e {telemetry}/sealed/run.db ] && echo sealed || echo open
"""
# Tasks whose failure the guest's disks would not cure: the refusal, and what runs on this host.
NOT_THE_GUESTS = ("Refuse to collect a session that still runs", "Bring the run to the hypervisor")

# Ansible and the collector write a little everywhere, and the collector copies both databases beside run.db.
ROOM = """
for folder in /tmp /root {telemetry}; do
    file=$(mktemp "$folder/.lab-room-XXXXXX") && head -c 1048576 /dev/zero >"$file"; code=$?
    find "$file" -delete
    [ $code = 0 ] || {{ echo "$folder"; exit 1; }}
done
free=$(df -Pk {telemetry} | awk 'END {{ print $4 }}')
copies=$(du -ck {telemetry}/run.db* {mirror}/run.db* 2>/dev/null | awk 'END {{ print $1 }}')
[ "$free" -gt "$copies" ] || {{ echo {telemetry}; exit 1; }}
"""


def collect(
    lab: Lab,
    folder: Path,
    stop: bool = False,
    force_offline: bool = False,
    on_task: Callable[[str], None] = lambda _name: None,
    say: Callable[[str], None] = lambda _text: None,
) -> Path:
    """Bring the run of gateway folder `folder` to the caller's runs/; returns its folder there.

    stop: end a session that still runs; without it that is refused. A guest that is off, or does not answer,
    or is too full to be asked is stopped (said first) and its disks are read.
    """
    if before := collected_before(lab, folder):
        say("it was collected before: nothing to do")
        return before
    target = _target(folder)
    with Hypervisor() as hypervisor:
        ownership.refuse_foreign(hypervisor, lab.name, lab.dir)
        word = hypervisor.state(lab.name)
    if word != "running":
        return _from_disks(
            lab, folder, target, f"the guest is {word}", say, is_on=word in ("paused", "crashed")
        )
    reason = FORCED if force_offline else _why_it_cannot_be_asked(lab, folder, stop)
    if not reason:
        reason = _ask(lab, folder, target, stop, on_task)
    if not reason:
        return target
    if not stop and presence.state_of(lab.name) == "running":  # libvirt takes a while to see that QEMU died
        _refuse_while_alive(lab, folder, reason)
    return _from_disks(lab, folder, target, reason, say)


def collected_before(lab: Lab, folder: Path) -> Path | None:
    """Where the whole run is already, which is then noted as collected; None when it is not."""
    if not is_complete(_target(folder)):
        return None
    state.update(lab.dir, collected=True)
    return _target(folder)


def _target(folder: Path) -> Path:
    return runs.default_root().resolve() / folder.name


def ask_to_stop(lab: Lab, folder: Path, say: Callable[[str], None]) -> None:
    """As `lab stop` does, so that the record has who asked; waits. A session that hears nothing is left."""
    tail = EventTail(folder)
    if presence.state_of(lab.name) != "running" or not process.alive(folder) or run_summary(tail.rows()):
        return
    ends = time.monotonic() + STOP_SECONDS
    try:
        asked = asking.ask(folder, "stop", None, "lab collect --stop")
    except LabError as error:  # sealed by now, or a host's disk that takes no command
        return say(error.message)
    if asked["state"] == "queued":
        return say("its session has not heard that it is to stop: it is stopped in the guest")
    while not run_summary(tail.rows()) and time.monotonic() < ends:
        time.sleep(0.2)


def _why_it_cannot_be_asked(lab: Lab, folder: Path, stop: bool) -> str:
    """Empty when the guest answers over SSH and has room for what collecting writes there.

    A session that runs, or could go on, and is not to be stopped is a LabError before Ansible starts.
    """
    stands = ""
    sandbox = lab.guest["lab_sandbox"]
    places = {name: shlex.quote(f"{sandbox}/{name}") for name in ("telemetry", "mirror")}
    try:
        with Shell(lab.address, lab.keys_dir, seconds=SSH_SECONDS) as shell:
            if not stop:
                stands = stands_at(folder, lambda: shell.run(STANDS.format(**places), ROOM_SECONDS)[1])
            code, said = (0, "") if stands == "active" else shell.run(ROOM.format(**places), ROOM_SECONDS)
    except LabError as error:
        return f"{error.message} (waited {SSH_SECONDS} s)"
    demand_over(folder, stands)
    where = (said.split() or ["an unknown place"])[-1][:200]
    return f"the guest's disk is full at {where}" if code else ""


def stands_at(folder: Path, ask: Callable[[], str]) -> str:
    """One of the words of STANDS, or empty. A harness that has sealed its run is given time to end.

    ask: what the guest answers to STANDS. Its shell may say something of its own before.
    """
    ends = time.monotonic() + END_SECONDS
    while True:
        word = (ask().split() or [""])[-1]
        if word != "active" or not _sealed(folder) or time.monotonic() > ends:
            return word
        time.sleep(LOOK_SECONDS)


def _sealed(folder: Path) -> bool:
    return run_summary(EventTail(folder).rows()) is not None


def demand_over(folder: Path, stands: str) -> None:
    """LabError for a session that runs in the guest, or that `lab run --resume` could let go on."""
    if stands == "active" and _sealed(folder):
        raise LabError(
            f"run {folder.name} is sealed, but its harness has not ended",
            "`lab collect --stop` ends it and brings the run home",
        )
    if stands == "active":
        raise LabError(
            "the session is still running", "`lab finish` asks it to end, `lab collect --stop` stops it now"
        )
    is_whole = all((folder / name).is_file() for name in ("run.json", "gateway.json"))
    if stands == "open" and is_whole and not _sealed(folder):
        begun = "stands still" if next(read_lines(folder / EVENTS), None) else "never began"
        raise LabError(
            f"run {folder.name} is not over: its session {begun}, and its gateway would go with it",
            f"`lab run --resume {folder.name}` goes on with it;"
            " `lab collect --stop` gives that up and brings home what there is",
        )


def _ask(lab: Lab, folder: Path, target: Path, stop: bool, on_task: Callable[[str], None]) -> str:
    """Collect from a guest that answers. Returns why that failed in the guest, empty when it worked."""
    seen: list[str] = []

    def note(task: str) -> None:
        seen.append(task)
        on_task(task)

    try:
        playbooks.run(
            "collect",
            lab,
            note,
            lab_collect_stop=stop,
            lab_gateway_folder=str(folder),
            lab_run_target=str(target),
        )
    except LabError as error:
        if not seen or seen[-1].split(" : ")[-1] in NOT_THE_GUESTS:
            raise
        return error.message
    return ""


def _refuse_while_alive(lab: Lab, folder: Path, reason: str) -> None:
    """A guest that can't be reached may be at work all the same: its events tell."""
    events = folder / EVENTS
    quiet = time.time() - events.stat().st_mtime if events.is_file() else float("inf")
    longest = max(lab.run["run_command_timeout_seconds"], lab.run["run_request_timeout_seconds"])
    patience = longest + OUTAGE_SECONDS + QUIET_SECONDS
    if quiet > patience or not process.alive(folder) or _sealed(folder):
        return
    raise LabError(
        f"{reason}, but its session sent an event {quiet:.0f} s ago and may still run",
        "`lab watch` shows it; `lab collect --stop` stops the guest and reads its disks",
        UNREACHABLE,
    )


def _from_disks(
    lab: Lab, folder: Path, target: Path, reason: str, say: Callable[[str], None], is_on: bool = True
) -> Path:
    place = snapshot.Place(lab.name, lab.dir, lab.address)
    if dead_disks.present(place.disks_dir):
        dead_disks.demand_room(place.dir)
        say(f"{reason}: {'it is switched off and ' if is_on else ''}its disks are read")
    else:
        say(f"{reason}, and no disk of it is left: the gateway's events become the record")
    snapshot.switch_off(place)
    made = offline.bring(place, lab.guest["lab_sandbox"], folder, target, reason)
    for line in offline.said(made):
        say(line)
    return made
