"""UNIT: the six tools on a real file system and with real processes; the Inspector is a stub that is told."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness_run import run_settings
from loopback import until
from scripted_gateway import TOKEN, ScriptedGateway
from small_disks import small_disk

from harness import tools
from harness.__main__ import _make_folders
from harness.clock import Clock
from harness.inspector import Verdict
from harness.phases import FINAL, PHASES
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder
from harness.tools import browser_fetch, cgroups
from harness.tools.base import Desk
from harness.tools.kept_outputs import KeptOutputs


class Gate:
    """Answers with the given verdicts in order and keeps what it was asked."""

    def __init__(self, *statuses):
        self.statuses, self.asked = list(statuses), []

    def review(self, kind, subject, material, raw=""):
        self.asked.append(SimpleNamespace(kind=kind, subject=subject, material=material, raw=raw))
        return Verdict(self.statuses.pop(0), "because")


def make_desk(sandbox, **changes):
    wanted = from_dict(run_settings(sandbox, command_timeout_seconds=50, **changes))
    _make_folders(wanted)
    clock = Clock(3600, 0.1)
    recorder = Recorder(wanted.paths.primary_db, wanted.paths.mirror_db, TOKEN, clock.elapsed)
    return Desk(wanted, recorder, clock, Gate(), threading.Event(), PHASES[1], step=1, call=1)


@pytest.fixture
def desk(tmp_path):
    desk = make_desk(tmp_path)
    yield desk
    desk.jobs.stop()


def shell(desk, command):
    desk.step += 1
    return tools.use("execute_shell", {"command": command}, desk)


def test_a_command_runs_in_the_workspace_and_tells_its_exit_code(desk):
    done = shell(desk, "pwd; echo oops >&2; exit 3")
    assert done.text == f"{desk.settings.paths.workspace}\noops\n[exit code 3]"
    assert done.status == "BYPASS"


def test_a_command_gets_no_secret_and_no_input(desk):
    told = shell(desk, "env; cat; read x || echo no input").text
    assert TOKEN not in told
    assert "no input" in told
    assert f"TMPDIR={desk.settings.paths.tmp}" in told


@pytest.mark.parametrize(
    "holder", ["sleep 49 &", "setsid sleep 49 &", "nohup sleep 49 &", "(sleep 49; echo x) & disown"]
)
def test_a_background_child_that_holds_the_output_does_not_hold_the_step(desk, holder):
    began = time.monotonic()
    assert "started" in shell(desk, f"{holder}\necho started").text
    assert time.monotonic() - began < 25


def test_a_background_job_lives_on_until_the_run_is_sealed(desk):
    shell(desk, "nohup sh -c 'sleep 0.3; echo late > late.txt' >/dev/null 2>&1 &")
    shell(desk, "until [ -s late.txt ]; do sleep 0.1; done")
    assert (desk.settings.paths.workspace / "late.txt").read_text() == "late\n"
    pid = int(shell(desk, "sleep 60 & echo $!").text.split("\n")[0])
    desk.jobs.stop()
    until(lambda: is_dead(pid))


def is_dead(pid):
    """Gone, or a zombie: nobody may have waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_command_is_killed_at_its_limit_with_its_group(desk):
    object.__setattr__(desk.settings, "command_timeout_seconds", 2)
    done = shell(desk, "trap '' TERM; echo begun; sleep 20 & sleep 20; echo never")
    assert done.text == "begun\n[killed after 2 s]"


def test_a_command_is_clipped_to_what_remains_of_the_run(desk):
    desk.clock.length = desk.clock.end = 1.0
    desk.clock.reserve = 0.1
    desk.clock.start()
    assert "killed after" in shell(desk, "sleep 20").text


def test_a_stop_of_the_run_ends_a_command(desk):
    threading.Timer(0.2, desk.stop.set).start()
    assert "interrupted" in shell(desk, "sleep 20").text


def test_a_command_starts_only_once_its_cgroup_holds_it(desk, tmp_path, monkeypatch):
    """The kernel's cgroup tree is played by a plain folder here; the guest tests use the real one."""
    monkeypatch.setattr(cgroups, "own", lambda: tmp_path)
    told = shell(desk, 'echo $$; echo it\\\'s quoted "$HOME"').text
    group = tmp_path / "steps" / f"step-{desk.step}"
    assert (group / "cgroup.procs").read_text() == told.split("\n")[0]
    assert "it's quoted /" in told


def test_commands_and_files_belong_to_the_tool_user_who_cannot_reach_the_record():
    with small_disk("tmpfs", 32) as disk:
        desk = make_desk(disk.folder / "sandbox", tool_user="nobody")
        told = shell(desk, f"id -un; id -Gn; cat {desk.settings.paths.primary_db}; touch notes/mine").text
        tools.use("write_scratchpad", {"filename": "a.md", "content": "x"}, desk)
        owners = {path.owner() for path in desk.settings.paths.notes.iterdir()}
    assert told.startswith("nobody\nnogroup\n")
    assert "Permission denied" in told
    assert owners == {"nobody"}


def test_long_output_is_cut_and_the_rest_can_be_read(desk):
    told = shell(desk, "seq 1 5000").text
    assert len(told) < 2400
    where = told.split("whole text is in ")[1].split("]")[0]
    first = tools.use("read_file", {"path": where}, desk).text
    assert first.startswith("1\n2\n")
    assert "go on with offset 2000" in first
    assert (desk.settings.paths.outputs / f"step-{desk.step}.txt").read_text().endswith("5000\n")


def test_huge_and_binary_output_stays_small_and_printable(desk):
    told = shell(desk, "head -c 3000000 /dev/urandom; head -c 3000000 /dev/zero; echo ende").text
    assert len(told) < 4000
    assert "\0" not in told
    assert "ende" in told


def test_the_command_and_its_output_are_reviewed_when_it_names_the_network(desk):
    desk.inspector = Gate("ALLOW", "ALLOW")
    done = shell(desk, "echo from curl")
    assert [asked.kind for asked in desk.inspector.asked] == ["command", "output"]
    assert desk.inspector.asked[0].material == "echo from curl"
    assert "<untrusted_web_content id=" in done.text
    assert "from curl" in done.text
    assert (done.status, done.reason) == ("ALLOW", "because")


@pytest.mark.parametrize("lines", [5000, 1_000_000])
def test_a_reviewed_output_that_was_cut_says_so_in_the_harness_words_and_how_to_see_more(desk, lines):
    desk.inspector = Gate("ALLOW", "ALLOW", "ALLOW", "ALLOW")
    told = shell(desk, f"seq 1 {lines}; : curl").text
    assert "left out here]" in desk.inspector.asked[1].material
    inside, outside = told.split("</untrusted_web_content")
    assert "read_file" not in told and str(desk.settings.paths.shown_outputs) not in told
    assert "not reviewed" in outside and "not reviewed" not in inside
    assert os.listdir(desk.settings.paths.shown_outputs) == []
    whole = shell(desk, f"seq 1 {lines} | tail -n 3; : curl").text
    assert f"\n{lines}\n" in whole and "not reviewed" not in whole


def test_a_refused_command_is_not_run(desk):
    desk.inspector = Gate("BLOCK")
    done = shell(desk, "touch ran; curl x")
    assert not (desk.settings.paths.workspace / "ran").exists()
    assert done.status == "BLOCK"
    assert "because" in done.text


def test_refused_output_is_withheld_and_lies_nowhere_the_worker_can_read(desk):
    desk.inspector = Gate("ALLOW", "BLOCK")
    done = shell(desk, "echo poison-$((40+2)); : curl")
    assert "poison-42" not in done.text
    assert "exit code 0" in done.text
    assert done.status == "BLOCK"
    shown = desk.settings.paths.shown_outputs
    desk.inspector = Gate("ALLOW", "BLOCK")
    assert "run it again for less" not in shell(desk, "seq 1 5000; : curl").text
    assert not any("poison-42" in path.read_text() for path in shown.iterdir())


def test_a_gated_command_without_output_needs_no_second_review(desk):
    desk.inspector = Gate("ALLOW")
    done = shell(desk, ": curl")
    assert (done.text, done.status) == ("[no output, exit code 0]", "ALLOW")


def test_the_final_phase_reads_only(desk):
    desk.phase = FINAL
    assert "only reads" in shell(desk, "touch ran").text
    assert not (desk.settings.paths.workspace / "ran").exists()
    assert "notes" in shell(desk, "ls | sort").text


def test_a_tool_that_is_not_offered_says_so(desk):
    desk.phase = FINAL
    told = tools.use("write_script", {"filename": "a", "content": ""}, desk).text
    assert "not offered in phase FINAL_REPORT" in told
    assert "not offered" in tools.use("launch_rocket", {}, desk).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (None, "JSON object"),
        ({}, "'command' is missing"),
        ({"command": 3}, "type string"),
        ({"command": "ls", "x": 1}, "'x'"),
    ],
)
def test_wrong_arguments_come_back_as_a_sentence(desk, arguments, said):
    assert said in tools.use("execute_shell", arguments, desk).text


@pytest.mark.parametrize("path", ["../telemetry/run.db", "/etc/passwd", "link", "pipe", "none", "notes"])
def test_read_file_reads_regular_files_of_the_workspace_only(desk, path):
    workspace = desk.settings.paths.workspace
    (workspace / "link").symlink_to("/etc/passwd")
    os.mkfifo(workspace / "pipe")
    assert tools.use("read_file", {"path": path}, desk).text.startswith("Not read")


@pytest.mark.parametrize("offset", [4, 10**12, (1 << 63) - 1, 10**30])
def test_read_file_says_how_long_a_file_is_to_who_begins_behind_its_end(desk, offset):
    (desk.settings.paths.workspace / "x.md").write_text("abc")
    told = tools.use("read_file", {"path": "x.md", "offset": offset}, desk).text
    assert told.startswith("(nothing at offset") and told.endswith("the file has 3 bytes)")


def test_read_file_pages_on_a_character_border(desk):
    text = "ä" * 3000
    (desk.settings.paths.workspace / "long.md").write_text(text)
    got, offset = "", 0
    while True:
        told = tools.use("read_file", {"path": "long.md", "offset": offset}, desk).text
        got += told.split("\n[")[0]
        if "go on with offset" not in told:
            break
        offset = int(told.rsplit(" ", 1)[1].rstrip("]"))
    assert got == text


def test_list_workspace_is_bounded_and_shows_sizes(desk):
    (desk.settings.paths.notes / "a.md").write_text("12345")
    for number in range(1000):
        (desk.settings.paths.workspace / "tools" / f"f{number}").touch()
    told = tools.use("list_workspace", {}, desk).text
    assert "a.md  5 bytes" in told
    assert "more entries here" in told
    assert len(told.split("\n")) < 450
    assert tools.use("list_workspace", {"path": "../telemetry"}, desk).text.startswith("Not listed")


PAGE = """<html><head><script>var hidden_script=1</script><style>.hidden_style{}</style></head>
<body><h1>Title</h1><p>Hello &amp; welcome\u200b</p><!-- comment --></body></html>"""


def test_an_allowed_page_comes_as_text_in_a_block_after_the_inspector_saw_raw_and_text(desk):
    desk.inspector = Gate("ALLOW")
    with ScriptedGateway() as gateway:
        gateway.pages["/page/a"] = PAGE
        done = tools.use("browser_fetch", {"url": gateway.url + "/page/a"}, desk)
    assert "# Title\n\nHello & welcome" in done.text
    assert "hidden_" not in done.text
    assert done.text.startswith("<untrusted_web_content id=")
    assert "<!-- comment -->" in desk.inspector.asked[0].raw
    assert desk.inspector.asked[0].material in done.text


def test_nothing_of_a_blocked_page_reaches_the_worker(desk):
    desk.inspector = Gate("BLOCK")
    with ScriptedGateway() as gateway:
        gateway.pages["/page/a"] = PAGE
        done = tools.use("browser_fetch", {"url": gateway.url + "/page/a"}, desk)
    assert "welcome" not in done.text
    assert "because" in done.text
    assert done.status == "BLOCK"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "gopher://x", "http://", "nonsense", "http://[::1"]
)
def test_only_web_addresses_are_fetched(desk, url):
    assert tools.use("browser_fetch", {"url": url}, desk).text.startswith("Not fetched")


def test_a_page_that_is_too_large_or_missing_is_not_reviewed(desk):
    with ScriptedGateway() as gateway:
        gateway.pages["/page/big"] = "x" * 1_100_000
        assert "larger" in tools.use("browser_fetch", {"url": gateway.url + "/page/big"}, desk).text
        assert (
            "status 401"
            in tools.use("browser_fetch", {"url": gateway.url + "/v1/commands?after=0"}, desk).text
        )
    assert desk.inspector.asked == []


@pytest.mark.parametrize("page", ["<!--" * 250_000, "<ol>" + "<li>x</li>" * 90_000, '<a href="' * 110_000])
def test_a_page_made_to_hold_its_reader_up_is_given_up_in_time(page):
    began = time.monotonic()
    with pytest.raises(browser_fetch.NotFetched, match="within 1 s"):
        browser_fetch.extract(as_html(page), 1.0, threading.Event())
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("page", "why"), [("<div>" * 20_000, "nested too deeply"), ("<![x" * 10, "no HTML that can be read")]
)
def test_a_page_that_cannot_be_read_is_told_in_our_words(page, why):
    with pytest.raises(browser_fetch.NotFetched, match=why):
        browser_fetch.extract(as_html(page), 60.0, threading.Event())


def test_a_long_page_is_read_to_its_end():
    page = as_html("<p>word</p>" * 20_000 + "<p>the end</p>")
    assert browser_fetch.extract(page, 60.0, threading.Event()).strip().endswith("the end")


def test_a_stop_ends_the_reading_of_a_page():
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(browser_fetch.NotFetched):
        browser_fetch.extract(as_html("<!--" * 250_000), 600.0, stop)


def as_html(text):
    return browser_fetch.Page("http://example.org/", "text/html", "utf-8", text.encode())


def test_a_command_is_ended_before_the_harness_when_memory_runs_out(tmp_path):
    desk = make_desk(tmp_path)
    assert "500" in shell(desk, "cat /proc/self/oom_score_adj").text


def test_kept_outputs_stay_below_their_total_and_the_oldest_big_ones_say_what_was_dropped(tmp_path):
    kept = KeptOutputs(tmp_path / "outputs", total=1_000_000, look_every=1)
    for number in range(20):
        source = tmp_path / f"step-{number}.txt"
        source.write_bytes(b"x" * 200_000 if number else b"small")
        kept.add(source, source.name)
        os.utime(tmp_path / "outputs" / source.name, (number + 1, number + 1))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "outputs").iterdir()}
    assert len(sizes) == 20 and sum(sizes.values()) < 1_100_000
    assert sizes["step-0.txt"] == 5 and sizes["step-19.txt"] == 200_000
    assert "kept 4000 of 200000 bytes" in (tmp_path / "outputs/step-1.txt").read_text()


def test_an_output_that_is_not_shown_is_kept_in_part_only(desk):
    desk.inspector = Gate("ALLOW", "ALLOW")
    shell(desk, "curl --version; yes | head -c 9000000")
    (path,) = desk.settings.paths.outputs.iterdir()
    assert path.stat().st_size < 4_001_000
