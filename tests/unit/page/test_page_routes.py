"""TESTS: the page's door, its stream and its buttons, over real sockets to a real gateway process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import threading

import httpx2
import pytest
from loopback import gateway_config

from labkit.gateway import commands, network
from labkit.gateway.files import line_of
from labkit.gateway.page import access
from labkit.gateway.page.board import Board
from labkit.gateway.page.names import names_of
from labkit.gateway.page.stream import Stream

EVIL = "<img src=x onerror=alert(1)>\x1b]0;owned\x07\u202egnirts"


def note(name: str, content: str) -> list[dict]:
    tool = {"tool_name": "write_scratchpad"}
    given = json.dumps({"filename": name, "content": content})
    said = f"Written: notes/{name} (9 characters)."
    return [
        {"event_type": "TOOL_CALL", "command_or_input": given, **tool},
        {"event_type": "TOOL_RESULT", "sanitized_output": said, **tool},
    ]


def test_without_a_login_nothing_of_the_run_is_told(serve):
    served = serve()
    with httpx2.Client(base_url=served.url, trust_env=False) as http:
        for path in ("/state", "/events", "/rows", "/row/1", "/file/1"):
            assert http.get(path).status_code == 401
        assert http.post("/command", json={"name": "stop"}).status_code == 401
        assert http.post("/login", json={"token": "wrong"}).status_code == 401
        assert http.post("/login", content=rb'{"token": "\ud800"}').status_code == 401
        assert http.post("/login", content=b"[" * 9000).status_code == 400
    assert commands.listed(served.folder) == []


def test_the_guests_token_opens_nothing_here_and_the_pages_nothing_there(serve):
    served = serve()
    token = access.read(served.folder)["token"]
    with httpx2.Client(base_url=served.url, trust_env=False) as http:
        assert http.post("/login", json={"token": "guest-token-of-this-test"}).status_code == 401
        assert http.get("/state", headers=dict(served.guest.headers)).status_code == 401
        assert http.get("/v1/commands?after=0", headers=dict(served.guest.headers)).status_code == 404
    headers = {"authorization": f"Bearer {token}"}
    assert served.guest.get("/v1/commands?after=0", headers=headers).status_code == 401
    assert served.guest.get("/state").status_code == 404


def test_the_token_lies_in_a_private_file_and_the_cookie_is_out_of_reach_of_scripts_and_other_sites(serve):
    served = serve()
    if os.name == "posix":
        assert stat.S_IMODE((served.folder / "page.json").stat().st_mode) == 0o600
    cookie = served.browser().answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    token = access.read(served.folder)["token"]
    assert token not in (served.folder / "gateway.log").read_text() and token not in cookie


def test_the_policy_runs_no_script_but_the_pages_own_and_no_other_origin_is_answered(serve):
    served = serve()
    with httpx2.Client(base_url=served.url, trust_env=False) as http:
        for path in ("/", "/static/page.js", "/state", "/static/nothing"):
            answer = http.get(path, headers={"origin": "http://evil.example"})
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert answer.headers["x-content-type-options"] == "nosniff"
        html = http.get("/").text
    assert "<script>" not in html and " on" + "click=" not in html and "style=" not in html


@pytest.mark.parametrize(
    "name", ["evil.example:8422", "127.0.0.1.evil.example", "[evil]", "", "evil.localhost"]
)
def test_a_foreign_name_that_was_made_to_lead_here_gets_nothing(serve, name):
    served = serve()
    token, here = access.read(served.folder)["token"], served.url.split("/")[2]
    browser = served.browser()
    with httpx2.Client(base_url=served.url, trust_env=False, cookies=browser.http.cookies) as http:
        for host, fine in ((name, False), (here, True)):
            headers = {"host": host, "origin": f"http://{host}", "x-lab-csrf": browser.facts["csrf"]}
            answers = [http.get(path, headers=headers) for path in ("/", "/static/page.js", "/state")]
            answers += [http.post("/command", json={"name": "pause"}, headers=headers)]
            answers += [http.post("/login", json={"token": token}, headers=headers)]
            assert {answer.status_code for answer in answers} == {200 if fine else 421}
            assert len(commands.listed(served.folder)) == fine


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST.:1", "[::1]:8422", "192.0.2.7", socket.gethostname()]
)
def test_the_page_may_be_called_by_any_address_and_by_this_machines_own_names(serve, name):
    served = serve()
    with httpx2.Client(base_url=served.url, trust_env=False) as http:
        assert http.get("/", headers={"host": name}).status_code == 200


def test_a_machine_whose_own_name_has_a_domain_is_known_without_it_too():
    assert names_of("Lab.Example.org") == {"lab.example.org", "lab", "lab.local"}
    assert names_of("lab") == {"lab", "lab.local"} and names_of("") == set()


def test_an_order_is_recorded_with_the_persons_name_and_reason(serve):
    served = serve()
    browser = served.browser("Ada L.")
    assert browser.order("say", args={"text": "look at fsync"}, why="saw the note", key="k1").json() == {
        "id": 1
    }
    assert browser.order("say", args={"text": "look at fsync"}, why="saw the note", key="k1").json() == {
        "id": 1
    }
    (asked,) = commands.listed(served.folder)
    assert asked["who"] == {"by": "page", "user": "Ada L.", "from": "127.0.0.1"}
    assert (asked["name"], asked["why"], asked["state"]) == ("say", "saw the note", "queued")
    assert "Ada L." in (served.folder / "commands.jsonl").read_text()
    (told,) = served.guest.get("/v1/commands?after=0").json()["commands"]
    assert told["who"]["user"] == "Ada L." and told["args"] == {"text": "look at fsync"}


def test_an_order_that_another_page_forges_is_refused(serve):
    served = serve()
    browser = served.browser()
    proof = {"x-lab-csrf": browser.facts["csrf"]}
    foreign = [{"origin": origin} | proof for origin in ("http://evil.example", "http://127.0.0.1:1", "null")]
    for headers in ({}, {"x-lab-csrf": "0" * 64}, {"x-lab-csrf": ""}, *foreign):
        assert browser.http.post("/command", json={"name": "stop"}, headers=headers).status_code == 403
    assert commands.listed(served.folder) == []


def test_what_cannot_be_meant_comes_back_as_a_sentence(serve):
    browser = serve().browser()
    for order, more in (
        ("dance", {}),
        ("extend", {}),
        ("extend", {"args": {"minutes": -3}}),
        ("say", {"args": []}),
    ):
        answer = browser.order(order, **more)
        assert answer.status_code == 400 and answer.json()["error"]


def test_a_browser_that_was_away_gets_each_event_once_in_order_over_restarts_too(serve):
    served = serve()
    served.push(*[{"event_type": "WORKER_THOUGHT", "sanitized_output": f"t{n}"} for n in range(300)])
    browser = served.browser()
    first = browser.stream(0, 300)
    served.kill()
    served.start()
    served.push(*[{"event_type": "WORKER_THOUGHT", "sanitized_output": f"t{n}"} for n in range(300, 700)])
    second = browser.stream(first[-1]["n"], 400)  # the same cookie: a restart logs nobody out
    assert [row["text"] for row in first + second] == [f"t{n}" for n in range(700)]
    assert [row["n"] for row in first + second] == list(range(1, 701))


def test_a_browser_that_is_back_before_a_new_gateway_has_read_its_events_hears_none_twice(tmp_path):
    rows = [{"id": n, "event_type": "BACKUP", "sanitized_output": f"t{n}"} for n in range(1, 11)]
    (tmp_path / "events.jsonl").write_bytes(b"".join(line_of(row) for row in rows))
    board = Board(tmp_path, gateway_config("a-token"), lambda: 0.0)

    async def heard() -> list[str]:
        pieces = Stream(board).pieces(8)
        told = [await anext(pieces) for _ in range(3)]  # it is there, and the board has read nothing yet
        board.poll()
        told += [await anext(pieces) for _ in range(2)]
        await pieces.aclose()
        return [piece.partition("\n")[0] for piece in told if piece.startswith("id: ")]

    assert board.count == 0
    assert asyncio.run(heard()) == ["id: 9", "id: 10"]


def test_events_arrive_while_the_stream_is_open(serve):
    served = serve()
    browser = served.browser()
    got: list[dict] = []
    reader = threading.Thread(target=lambda: got.extend(browser.stream(0, 1)))
    reader.start()
    served.push({"event_type": "WORKER_THOUGHT", "sanitized_output": "now"})
    reader.join(timeout=60)
    assert [row["text"] for row in got] == ["now"]


def test_the_state_tells_phase_step_money_verdicts_files_and_pause(serve):
    served = serve()
    verdict = {"event_type": "INSPECTOR_DECISION", "guard_status": "BLOCK", "guard_reason": "it commands"}
    served.push({"event_type": "PHASE_STARTED", "phase": "EXPLORATION", "step_number": 4}, verdict)
    served.push(
        *note("fsync.md", "# fsync\n1.5 ms"), {"event_type": "TOOL_RESULT", "sanitized_output": "Not written"}
    )
    served.push({"event_type": "COMMAND", "command_or_input": json.dumps({"id": 1, "name": "pause"})})
    commands.append(served.folder, "extend", {"minutes": 7, "budget_usd": 2.0})
    browser = served.browser()
    browser.stream(0, 6)
    facts = browser.http.get("/state").json()
    state = facts["state"]
    assert (state["phase"], state["step"], state["blocks"]) == ("EXPLORATION", 4, 1)
    assert (state["length"], state["budget"], state["paused"]) == (10 * 60, 3.0, True)
    assert [row["reason"] for row in facts["verdicts"]] == ["it commands"]
    assert [(file["kind"], file["name"]) for file in facts["files"]] == [("note", "notes/fsync.md")]
    assert browser.http.get(f"/file/{facts['files'][0]['n']}").json()["content"] == "# fsync\n1.5 ms"
    assert browser.http.get("/file/1").status_code == 404


def test_the_page_shows_the_mode_of_the_network_as_it_began_and_as_it_was_switched(serve):
    served = serve()
    browser = served.browser()

    def shown() -> str:
        return browser.http.get("/state").json()["state"]["network"]

    assert shown() == "", "a gateway by hand: nobody said"
    (served.folder / "run.json").write_text('{"network": "open"}')
    assert shown() == "open"
    network.note(served.folder, "sealed", {"user": "ada"}, "it looked odd")
    assert shown() == "sealed"


def test_what_an_agent_wrote_keeps_no_character_that_hides_or_steers(serve):
    served = serve()
    served.push(
        {"event_type": EVIL, "sanitized_output": EVIL + "x" * 5000, "phase": EVIL, "tool_name": EVIL},
        *note(EVIL, EVIL),
    )
    browser = served.browser()
    (row, *_) = browser.stream(0, 3)
    assert row["cut"] and len(row["text"]) < 2000
    whole = browser.http.get("/row/1").json()
    assert len(whole["text"]) > 5000
    told = json.dumps([row, whole, browser.http.get("/state").json(), browser.http.get("/file/2").json()])
    assert not {"\\u001b", "\\u0007", "\\u202e"} & {told[i : i + 6] for i in range(len(told))}


def test_a_taken_port_moves_the_page_and_never_stops_the_gateway(serve):
    first = serve()
    second = serve(page_port=first.config.page_port, run_id="20261129-201202-aaaaaa")
    assert second.url != first.url
    assert second.browser().facts["state"]["run"] == "20261129-201202-aaaaaa"
    with httpx2.Client(base_url=first.url, cookies=second.browser().http.cookies, trust_env=False) as http:
        assert http.get("/state").status_code == 401, "one run's login opens no other run"


def test_without_an_address_no_page_is_served(serve):
    served = serve(page_bind="", page_port=0)
    assert access.link(served.folder) == ""
    assert served.guest.get("/healthz").status_code == 200


def test_a_sealed_run_takes_no_orders_and_its_token_is_gone_with_the_gateway(serve):
    from labkit.gateway import process

    served = serve()
    browser = served.browser()
    summary = json.dumps({"status": "sealed", "stop_reason": "report delivered"})
    served.push({"event_type": "RUN_SEALED", "sanitized_output": summary})
    browser.stream(0, 1)
    assert browser.order("stop").status_code == 409
    assert browser.http.get("/state").json()["state"]["sealed"] == "report delivered"
    process.stop(served.folder)
    assert not (served.folder / "page.json").exists()
