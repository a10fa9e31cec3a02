"""HOST: `lab demo`: the whole road once, with the rehearsal model: no key, no internet, no money."""

from __future__ import annotations

from labkit import collecting, doctor, plan, presence, provision, reverting, session
from labkit.analysis import terminal
from labkit.config import Lab
from labkit.errors import UNREACHABLE, LabError
from labkit.gateway import commands
from labkit.progress import Progress, Terminal
from labkit.watch import watch

MINUTES = 3
NEXT = """
What to type next
  lab run --model rehearsal --minutes 10   another rehearsal, longer
  export OPENROUTER_API_KEY=...            a real one needs a key; then
  lab run --minutes 120 --budget 2         two hours for two dollars at most
  lab query list                           the named questions
  lab query "SELECT ..."                   one of your own
  lab runs                                 what was collected so far
  lab down                                 remove the guest, not runs and images
"""


def run(lab: Lab) -> None:
    """Doctor, up, a 3-minute session, collect, the seven answers, revert, what to type next.

    Safe to repeat: image and snapshot are used again. Raises LabError where a step fails.
    """
    progress, console = Progress(), Terminal()
    with progress.step("1/7 looking at this machine"):
        _demand_ready(doctor.examine(lab), progress)
    session.refuse_uncollected(lab, discard=False, thrown_away_by="lab revert --discard")
    progress.say("2/7 the guest and its snapshot (first time: 6-15 minutes)")
    provision.up(lab, progress)
    progress.say(f"3/7 {MINUTES} minutes with the rehearsal model (q leaves the view, Ctrl-C ends it early)")
    folder = session.begin(lab, plan.make(lab, minutes=MINUTES, model=plan.REHEARSAL), False, progress)
    outcome = watch(
        folder,
        on_interrupt=lambda: commands.append(folder, "finish"),
        console=Terminal(stderr=True),
        guest_gone=presence.Watcher(lab.name).word,
    )
    if outcome.how == "guest":
        raise LabError(
            f"the guest is {outcome.word} in the middle of run {folder.name}",
            "`lab status` says what to type",
            UNREACHABLE,
        )
    if outcome.how != "sealed":
        raise LabError(
            f"run {folder.name} goes on without this view",
            "`lab watch` shows it; `lab collect` when it is over",
        )
    with progress.step(f"4/7 collecting run {folder.name}"):
        target = collecting.collect(lab, folder, on_task=progress.detail, say=progress.say)
    progress.say("5/7 the seven questions")
    terminal.show_answers(target, console)
    with progress.step("6/7 reverting the guest"):
        receipt = reverting.revert(lab)
    console.tell(receipt.line())
    progress.say("7/7 done")
    console.tell(f"\nThe run is in {target}")
    console.print(NEXT, highlight=False)


def _demand_ready(findings: list[doctor.Finding], progress: Progress) -> None:
    for finding in findings:
        if finding.state == "fail":
            raise LabError(f"this machine is not ready: {finding.check}: {finding.detail}", finding.cure)
        if finding.state == "warn" and finding.check != "key":
            progress.say(f"{finding.check}: {finding.detail}")
