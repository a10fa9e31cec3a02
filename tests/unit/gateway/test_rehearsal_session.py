"""TESTS: whole sessions with the rehearsal's Worker through a real gateway; the tool results are scripted."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field

import pytest

from labkit.gateway.providers.rehearsal.worker import Worker

ALL_SIX = (
    "execute_shell",
    "write_scratchpad",
    "write_script",
    "browser_fetch",
    "read_file",
    "list_workspace",
)
ARGUMENTS = {
    "execute_shell": ("command",),
    "write_scratchpad": ("filename", "content"),
    "write_script": ("filename", "content"),
    "browser_fetch": ("url",),
    "read_file": ("path",),
    "list_workspace": (),
}
OFFERED = {
    "EXPLORATION": tuple(name for name in ALL_SIX if name != "write_script"),
    "DEVELOPMENT": ALL_SIX,
    "SYNTHESIS": ALL_SIX,
    "FINAL_REPORT": ("execute_shell", "write_scratchpad", "read_file", "list_workspace"),
}
WINDOW = 6


def schema(name: str) -> dict:
    properties = {argument: {"type": "string"} for argument in ARGUMENTS[name]}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@dataclass
class Session:
    """The harness's loop in small: a window of whole steps, a status at the end, results that are made up."""

    ask: object  # (messages, tools) -> assistant message as a dict
    calls: list[tuple[str, str, dict]] = field(default_factory=list)  # (phase, tool, arguments)
    thoughts: list[str] = field(default_factory=list)
    steps: list[list[dict]] = field(default_factory=list)
    results: object = None  # (tool, arguments) -> text

    def step(self, phase: str) -> bool:
        """One step; False when the Worker answered without a tool call."""
        system = [{"role": "system", "content": "Rules. Phase: is named in the status."}]
        window = [message for step in self.steps[-WINDOW:] for message in step]
        status = {"role": "user", "content": f"Status\nPhase: {phase}\nStep: {len(self.steps)}"}
        message = self.ask(system + window + [status], [schema(name) for name in OFFERED[phase]])
        self.thoughts.append(message["content"])
        assistant = {"role": "assistant", **copy.deepcopy(message)}
        self.steps.append([assistant])
        for call in assistant.get("tool_calls") or []:
            call["id"] = f"c{len(self.calls):05d}"  # as the harness does: ids are its own
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            assert name in OFFERED[phase], f"{name} was not offered in {phase}"
            assert set(arguments) == set(ARGUMENTS[name]), "arguments must follow the schema"
            self.calls.append((phase, name, arguments))
            content = self.results(name, arguments) if self.results else f"result {len(self.calls)} of {name}"
            self.steps[-1].append({"role": "tool", "tool_call_id": call["id"], "content": content})
        return bool(message.get("tool_calls"))

    def play(self, **lengths: int) -> None:
        for phase, length in lengths.items():
            for _ in range(length):
                if not self.step(phase) and phase == "FINAL_REPORT":
                    break

    def written(self, tool: str) -> list[str]:
        return [arguments["filename"] for _, name, arguments in self.calls if name == tool]


def over_http(running):
    def ask(messages: list[dict], tools: list[dict]) -> dict:
        reply = running.openai.chat.completions.create(
            model="test/model", messages=messages, tools=tools, user="worker"
        )
        message = reply.choices[0].message
        calls = [call.model_dump() for call in message.tool_calls or []]
        return {"content": message.content} | ({"tool_calls": calls} if calls else {})

    return ask


def in_memory() -> Session:
    return Session(Worker("http://192.168.150.1:8421/rehearsal/pages").reply)


def test_a_session_of_a_few_minutes_has_all_tools_notes_scripts_a_master_and_a_report(run_gateway):
    session = Session(over_http(run_gateway()))
    session.play(EXPLORATION=14, DEVELOPMENT=16, SYNTHESIS=8, FINAL_REPORT=10)
    used = Counter(name for _, name, _ in session.calls)
    assert set(used) == set(ALL_SIX)
    notes, scripts = session.written("write_scratchpad"), session.written("write_script")
    assert len(notes) >= 10 and "master_v1.md" in notes and "final_report_v1.md" in notes
    assert scripts[:2] == ["micro_bench.py", "micro_bench_v2.py"]
    assert len(set(notes)) == len(notes), "no name is written twice"
    assert "finished" in session.thoughts[-1]


def test_on_a_very_slow_guest_the_session_still_has_what_it_must_have():
    session = in_memory()
    session.play(EXPLORATION=9, DEVELOPMENT=10, SYNTHESIS=4, FINAL_REPORT=2)
    assert {name for _, name, _ in session.calls} == set(ALL_SIX)
    assert {"master_v1.md", "final_report_v1.md"} <= set(session.written("write_scratchpad"))


def test_a_session_of_300_steps_keeps_measuring_and_never_repeats_itself():
    session = in_memory()
    session.play(EXPLORATION=100, DEVELOPMENT=100, SYNTHESIS=90, FINAL_REPORT=10)
    notes = session.written("write_scratchpad")
    assert len(notes) > 90 and len(set(notes)) == len(notes)
    asked = [json.dumps(call) for call in session.calls]
    assert all(max(Counter(asked[i : i + 6]).values()) < 3 for i in range(len(asked)))


def test_the_pages_and_the_network_program_are_among_the_first_moves():
    session = in_memory()
    session.play(EXPLORATION=9)
    urls = [arguments["url"] for _, name, arguments in session.calls if name == "browser_fetch"]
    assert [url.rpartition("/")[2] for url in urls] == ["fsync-notes.html", "speed-tricks.html"]
    commands = [arguments["command"] for _, name, arguments in session.calls if name == "execute_shell"]
    assert any(command.startswith("curl ") for command in commands)


def test_notes_quote_what_the_tools_really_said():
    session = in_memory()
    session.results = lambda tool, arguments: f"<{tool} said 4711>"
    session.play(EXPLORATION=6)
    (note,) = [a["content"] for _, name, a in session.calls if name == "write_scratchpad"][:1]
    assert note.count("<execute_shell said 4711>") == 2


def test_a_report_that_was_refused_is_written_as_the_next_version():
    session = in_memory()
    session.results = lambda tool, arguments: (
        "Not written: final_report_v1.md already exists"
        if arguments.get("filename") == "final_report_v1.md"
        else "ok"
    )
    session.play(FINAL_REPORT=6)
    assert session.written("write_scratchpad") == ["final_report_v1.md", "final_report_v2.md"]


def test_the_report_does_not_wait_for_a_phase_that_was_skipped():
    session = in_memory()
    session.play(EXPLORATION=1, FINAL_REPORT=3)
    assert session.written("write_scratchpad") == ["final_report_v1.md"]


def test_the_same_request_again_is_answered_with_the_same_move():
    worker = Worker("http://x")
    messages = [{"role": "user", "content": "Phase: EXPLORATION"}]
    tools = [schema("execute_shell"), schema("list_workspace")]
    assert worker.reply(messages, tools) == worker.reply(messages, tools)


def test_a_restarted_gateway_goes_on_where_the_worker_was(run_gateway):
    running = run_gateway()
    session = Session(over_http(running))
    session.play(EXPLORATION=5)
    running.stop()
    running.start()
    session.play(EXPLORATION=5)
    notes = session.written("write_scratchpad")
    assert len(set(notes)) == len(notes) >= 2
    assert [name for _, name, _ in session.calls].count("list_workspace") == 1


@pytest.mark.skipif(os.name != "posix" or not shutil.which("cc"), reason="runs the Worker's commands in bash")
def test_every_command_of_the_script_works_when_it_is_really_run(tmp_path):
    """The script is only believable if its programs run. Only curl needs the network; it is left out."""
    for folder in ("notes", "scripts", "tools", "tmp"):
        (tmp_path / folder).mkdir()
    failures = []

    def really(tool: str, arguments: dict) -> str:
        if tool in ("write_script", "write_scratchpad"):
            folder = "scripts" if tool == "write_script" else "notes"
            (tmp_path / folder / arguments["filename"]).write_text(arguments["content"])
        if tool != "execute_shell" or arguments["command"].startswith("curl"):
            return "ok"
        command = ["bash", "-c", arguments["command"]]
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        if done.returncode or not (done.stdout + done.stderr).strip():
            failures.append((arguments["command"], done.stderr))
        return done.stdout + done.stderr

    session = in_memory()
    session.results = really
    session.play(EXPLORATION=21, DEVELOPMENT=18, SYNTHESIS=9, FINAL_REPORT=3)
    removal = [entry for entry in failures if entry[0].startswith("rm ")]
    assert [entry for entry in failures if entry not in removal] == []
    report = (tmp_path / "notes" / "final_report_v1.md").read_text()
    assert "ratio" in report and "MB/s" in report and "notes/master_v1.md" in report
