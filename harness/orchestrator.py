"""GUEST: the loop. `step` is the whole of it; stopping is an exception (errors.EndRun)."""

from __future__ import annotations

import threading

from harness import ballast, commands, failed_steps, tools
from harness.backup import back_up
from harness.calls import act
from harness.clock import Clock
from harness.context import Context
from harness.digest import Digest
from harness.ending import Ending
from harness.errors import EndRun, Interrupted, NoMoney
from harness.final_report import written_reports
from harness.gateway import GatewayLink
from harness.guards import GUARDS, JUMP, View
from harness.model import Model
from harness.money import Purse
from harness.nudges import Nudges, repetition_nudge, time_nudge
from harness.phases import FINAL, PHASES, Phase, phase_at
from harness.repetition import CHANGE, CHANGE_STEPS, Alarm, Repetition, named
from harness.replies import Reply
from harness.session import Session
from harness.settings import Settings
from harness.status import status
from harness.steps import as_step, runnable
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import clean
from harness.tools.base import Desk, Outcome

STEPS_AFTER_REPORT = 2
PROMPT_EXTRAS = 6000  # characters of a prompt that are not memory: tools, status, nudges


class Orchestrator:
    """One run, from its first step to sealed. The parts are made in __main__.py."""

    def __init__(
        self, settings: Settings, recorder: Recorder, clock: Clock, purse: Purse, model: Model, desk: Desk,
        context: Context, digest: Digest, nudges: Nudges, link: GatewayLink, session: Session,
        stop: threading.Event,
    ) -> None:  # fmt: skip
        self.settings, self.recorder, self.clock, self.purse = settings, recorder, clock, purse
        self.model, self.desk, self.context, self.digest = model, desk, context, digest
        self.nudges, self.link, self.session, self.stop = nudges, link, session, stop
        self.ending = Ending(desk, model, context, link)
        self.repetition = Repetition(settings.repeat_limit, settings.repeat_window, **session.repetition)
        self.phase: Phase | None = next((p for p in PHASES if p.name == session.phase), None)
        if self.phase:  # a resumed run
            desk.phase, model.final = self.phase, self.phase is FINAL
        context.pending = session.pending_steps()
        self.steps_since_report = 0
        self.failures = 0
        self.compacted = False
        self.notices: list[str] = []  # said once, before the next call

    def run(self) -> dict:
        """Steps until something ends the run; then the ladder and the seal. Returns the summary."""
        self.desk.patience = self.model.hurry = self.link.patience
        if not self.session.cause:
            ballast.place(self.settings.paths.tmp, self.desk.world.ballast_bytes)
        stop_reason = commands.last_words(self, self._loop())
        return self.ending.seal(stop_reason)

    def _loop(self) -> str:
        while True:
            try:
                self.step()
                self.failures = 0
            except EndRun as end:
                return self.session.cause or end.stop_reason
            except Interrupted:
                return "interrupted"
            except NoMoney as error:
                if self.model.final:
                    return self.session.cause or "budget exhausted"
                self._jump("money", str(error), "budget exhausted")
            except Exception as error:
                if reason := failed_steps.failed(self, error):
                    return self.session.cause or reason

    def step(self) -> None:
        self.end_if_over()
        commands.obey(self)
        self.desk.step = self.recorder.step = self.session.step = self.session.step + 1
        self._enter_phase()
        self._compact()
        nudges = self._nudges()
        reply = self._ask(nudges)
        results = [act(self, number, call) for number, call in enumerate(runnable(reply), start=1)]
        self._remember(nudges, reply, results)
        self.desk.inventory.after_step()
        self._backup()
        self.checkpoint()
        self._end_if_delivered(reply)

    # What comes before the model is asked

    def end_if_over(self) -> None:
        if self.stop.is_set():
            raise Interrupted("asked to stop")
        if self.clock.wall_remaining() <= 0:
            raise EndRun("wall limit reached")
        if self.clock.remaining() <= 0 or (self.clock.in_reserve() and not self.ending.report.any_yet()):
            raise EndRun("time limit reached")

    def _enter_phase(self) -> None:
        """Time and guards decide the phase; a cause set by a guard or a person means the final one."""
        self._check_jumps()
        phase = self._phase_now()
        if phase is self.phase:
            return
        self.phase = self.desk.phase = phase
        self.recorder.phase = self.session.phase = phase.name
        self.model.final = phase is FINAL
        self.session.reports_before = written_reports(self.settings.paths.notes)
        self.recorder.event(events.PHASE_STARTED, sanitized_output=phase.goal)

    def _phase_now(self) -> Phase:
        """A longer run (`lab extend`) never goes back, but from the final report to more synthesis."""
        if self.session.cause:
            return FINAL
        phase = phase_at(self.clock.fraction())
        if self.phase is None or phase.starts_at >= self.phase.starts_at:
            return phase
        return PHASES[-2] if self.phase is FINAL else self.phase

    def _check_jumps(self) -> None:
        view = self._view(None)
        for guard in GUARDS:
            if guard.action == JUMP and not self.session.cause and (reason := guard.check(view)):
                self._jump(guard.name, reason, guard.stop_reason or "")

    def _jump(self, guard: str, reason: str, stop_reason: str) -> None:
        """The next step is in the final phase, and the run will end for this reason."""
        self.session.cause = stop_reason
        failed_steps.tell(self.recorder, events.GUARD, guard_reason=f"{guard}: {reason}; {JUMP}")
        if guard == "disk" and ballast.free(self.settings.paths.tmp):
            self.recorder.event(events.GUARD, guard_reason="the ballast was freed for the report")

    def _view(self, repeated: str | None) -> View:
        chars = self.prompt_chars()
        self.purse.keep_for(chars)
        return View(
            disk_percent=self.desk.world.disk_percent(self.settings.paths.workspace),
            disk_limit_percent=self.settings.disk_limit_percent,
            spent=self.purse.spent + self.purse.unknown,
            worst_next=self.purse.worst_case(chars),
            budget=self.purse.budget,
            reserve=self.purse.reserve,
            repeated=repeated,
        )

    def prompt_chars(self) -> int:
        """About as long as the next prompt will be."""
        return self.context.chars() + PROMPT_EXTRAS

    def _compact(self) -> None:
        self.compacted = self.context.drop()
        if self.compacted:
            self.digest.refresh(self.context)

    def _nudges(self) -> list[dict]:
        texts = list(self.notices)  # said again if this step fails: they go once it is remembered
        if self.nudges.due(self.clock.elapsed(), self.clock.length):
            texts.append(time_nudge(self.desk.phase.name, self.clock.elapsed(), self.clock.remaining()))
        if alarm := self.repetition.found():
            texts.append(self._circling(alarm))
        for text in texts:
            self.recorder.event(events.SYSTEM_NUDGE, sanitized_output=text)
        return [{"role": "user", "content": text} for text in texts]

    def _circling(self, alarm: Alarm) -> str:
        """What the Worker is told; on the last rung it has to go on otherwise."""
        self.recorder.event(events.GUARD, guard_reason=f"repetition: {alarm.rung}: {alarm.what}")
        if alarm.rung == CHANGE:
            self.desk.close(alarm.tool, CHANGE_STEPS)
            if self.context.drop(at_once=True):
                self.compacted = True
                self.digest.refresh(self.context)
        return repetition_nudge(alarm, self.desk.phase.written_with)

    # The model, and what comes after

    def _ask(self, nudges: list[dict]) -> Reply:
        cause, phase = self.session.cause, self.desk.phase
        news = self.compacted, bool(nudges), cause, self.desk.jobs.told()
        told = status(self.recorder, phase, self.clock, self.purse, *news)
        messages = self.context.outgoing(nudges, told)
        offered = tools.schemas(self.desk.offered())
        reply = self.model.ask("worker", messages, offered, deadline=max(5.0, self.clock.for_work()))
        said = {"sanitized_output": clean(reply.text).strip()}
        is_followed = bool(runnable(reply))  # by a TOOL_CALL, at once
        self.recorder.event(events.WORKER_THOUGHT, reply.usage, reply.cost, later=is_followed, **said)
        if reply.cut:
            self.recorder.event(
                events.API_ERROR, sanitized_output="reply cut by the token limit; no call of it was run"
            )
        return reply

    def _remember(self, nudges: list[dict], reply: Reply, results: list[Outcome]) -> None:
        calls = [named(call.name, tools.parse(call.arguments), call.arguments) for call in runnable(reply)]
        self.repetition.saw(list(zip(calls, results, strict=True)))
        self.context.add(as_step(self.session.step, nudges, reply, results, self.recorder.mask))
        self.notices = []

    def _backup(self) -> None:
        if self.settings.backup_every_steps and self.session.step % self.settings.backup_every_steps == 0:
            back_up(self.settings, self.recorder, self.stop, self.desk.world.backup)

    def checkpoint(self) -> None:
        session = self.session
        session.elapsed_seconds, session.wall_seconds = self.clock.elapsed(), self.clock.wall_elapsed()
        session.spent_usd, session.unknown_usd = self.purse.spent, self.purse.unknown
        session.chars_per_token, session.last_nudge_seconds = self.purse.chars_per_token, self.nudges.last
        session.ends_at_seconds, session.watermark = self.clock.end, self.link.watermark
        session.digest, session.repetition = self.context.digest, self.repetition.dump()
        session.notices = list(self.notices)
        session.keep(self.context.steps, self.context.pending)
        session.save(self.recorder)
        self.link.wake()

    def _end_if_delivered(self, reply: Reply) -> None:
        if self.desk.phase is not FINAL:
            return
        if not set(self.ending.report.any_yet()) - set(self.session.reports_before):
            return
        self.steps_since_report += 1
        if not reply.tool_calls or self.steps_since_report > STEPS_AFTER_REPORT:
            raise EndRun("report delivered")
