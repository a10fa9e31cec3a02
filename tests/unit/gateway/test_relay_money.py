"""TESTS: a connection dropped at each point of a call, and caps: the ledger is at least the bill."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from gateway_in_process import GUEST, TOKEN, InProcess, ScriptedProvider, answer

from labkit.gateway import budget

PRICES = {"price_input_per_mtok": 100.0, "price_output_per_mtok": 200.0, "max_completion_tokens": 100}
POINTS = (
    "connect refused",
    "connect timed out",
    "cut before the headers",
    "silent until the limit",
    "cut in the headers",
    "cut in the body",
    "proxy gave up waiting",
    "answered without a bill",
    "answered with an error inside",
    "gateway dies before it sends",
    "gateway dies while it waits",
    "gateway dies before it writes",
    "answered",
)


class Dead(BaseException):
    """The gateway's process is gone at this point: nothing of it runs any more."""


class Cut(httpx2.AsyncByteStream):
    """A body that breaks off."""

    async def __aiter__(self):
        yield b'{"id": "gen", "choi'
        raise httpx2.ReadError("the connection is gone")


@dataclass
class Bank:
    """A provider that bills what it really did, whatever becomes of its answer.

    Its prompts have about the same density, as one run's have; README.md says what a denser one could do.
    """

    chance: random.Random
    point: str = "answered"
    billed: float = 0.0
    prompt: int = 0

    def reply(self, body: dict) -> httpx2.Response:
        point = self.point
        if point == "connect refused":
            raise httpx2.ConnectError("refused")
        if point == "connect timed out":
            raise httpx2.ConnectTimeout("timed out")
        if point == "gateway dies before it sends":
            raise Dead
        cost = self._bill(body)
        if point == "gateway dies while it waits":
            raise Dead
        if point == "cut before the headers":
            raise httpx2.ReadError("the connection is gone")
        if point == "silent until the limit":
            raise httpx2.ReadTimeout("silent")
        if point == "cut in the headers":
            raise httpx2.RemoteProtocolError("half a header")
        if point == "cut in the body":
            return httpx2.Response(200, stream=Cut())
        if point == "proxy gave up waiting":
            return httpx2.Response(504, text="<html>timeout</html>")
        if point == "answered without a bill":
            return httpx2.Response(200, json={"choices": []})
        if point == "answered with an error inside":
            return httpx2.Response(200, json={"error": {"code": 502}})
        return answer(cost, prompt=self.prompt)

    def _bill(self, body: dict) -> float:
        self.prompt = int(self.chance.uniform(0.27, 0.3) * len(json.dumps(body, separators=(",", ":"))))
        completion = self.chance.randint(1, body["max_completion_tokens"])
        cost = (self.prompt * 100 + completion * 200) / 1e6
        self.billed += cost
        return cost


def call(gateway: InProcess, bank: Bank, point: str) -> None:
    bank.point = "answered" if point == "gateway dies before it writes" else point
    if point == "gateway dies before it writes":
        gateway.budget.settle = lambda *_: (_ for _ in ()).throw(Dead())
    try:
        gateway.chat(messages=[{"role": "user", "content": "x" * bank.chance.randint(1, 4000)}])
    except Dead:
        gateway.restart()
    except BaseExceptionGroup:
        gateway.restart()


@pytest.fixture
def paid(tmp_path, make_config):
    def make(bank: Bank, folder: str = "run", **changes: object) -> InProcess:
        base = {"provider": "paid", "base_url": "http://x.invalid"}
        config = make_config(**base | PRICES | changes)
        return InProcess(tmp_path / folder, config, ScriptedProvider(bank.reply))

    return make


@pytest.mark.parametrize("point", POINTS)
def test_wherever_a_call_breaks_off_the_ledger_is_at_least_the_bill(paid, point):
    bank = Bank(random.Random(point))
    gateway = paid(bank, budget_usd=100.0)
    for _ in range(5):
        call(gateway, bank, point)
    assert len(gateway.requests()) == 5
    charged = sum(line["charged_usd"] for line in gateway.requests())
    assert charged >= bank.billed - 1e-9
    assert charged == pytest.approx(gateway.budget.spent) and gateway.budget.reserved == 0


@pytest.mark.parametrize("seed", range(5))
def test_calls_that_break_off_anywhere_never_pass_the_cap(paid, seed):
    bank = Bank(random.Random(seed))
    gateway = paid(bank, budget_usd=2.0)
    for _ in range(60):
        call(gateway, bank, bank.chance.choice(POINTS))
        assert bank.billed - 1e-9 <= gateway.budget.spent <= 2.0
    assert gateway.chat(messages=[{"role": "user", "content": "x" * 4000}]).status_code == 402


@pytest.mark.parametrize(
    "told", ["", ', "usage": {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.0001}']
)
def test_a_guest_that_hangs_up_in_a_stream_is_charged_the_worst_case(paid, told):
    """Whatever the provider said of the bill by then: it goes on, and bills what it goes on with."""

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self):
            while True:
                yield b'data: {"choices": [{"delta": {"content": "x"}}]%s}\n\n' % told.encode()
                await asyncio.sleep(0.01)

    bank = Bank(random.Random(1))
    bank.reply = lambda body: httpx2.Response(200, stream=Endless())  # type: ignore[method-assign]
    gateway = paid(bank, budget_usd=1.0)
    body = {"model": "test/model", "messages": [{"role": "user", "content": "x"}], "stream": True}
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b""}
    scope |= {"headers": [(b"authorization", f"Bearer {TOKEN}".encode())], "client": (GUEST, 1)}

    async def hang_up() -> None:
        heard = iter([{"type": "http.request", "body": json.dumps(body).encode()}])

        async def receive() -> dict:
            for item in heard:
                return item
            await asyncio.sleep(0.1)
            return {"type": "http.disconnect"}

        async def send(_message: dict) -> None:
            pass

        await gateway.app({**scope, "app": gateway.app}, receive, send)

    asyncio.run(hang_up())
    (line,) = gateway.requests()
    assert line["status"] == "cut" and line["charged_usd"] >= 100 * 200 / 1e6


@pytest.fixture
def one_day(monkeypatch):
    """Midnight does not come while a test runs."""
    monkeypatch.setattr(budget, "now_utc", lambda: "2026-01-02T12:00:00Z")


def test_the_day_caps_all_runs_of_the_host_together(paid, tmp_path, one_day):
    bank = Bank(random.Random(2))
    day = {"day_budget_usd": 1.0, "days_dir": str(tmp_path / "spending"), "budget_usd": 100.0}
    runs = [paid(bank, f"run-{n}", run_id=f"20261129-201202-00000{n}", **day) for n in range(3)]
    codes = [gateway.chat().status_code for _ in range(40) for gateway in runs]
    assert codes[:3] == [200, 200, 200] and codes[-3:] == [402, 402, 402]
    assert 0.9 < bank.billed <= 1.0
    refused = runs[0].chat().json()["error"]
    assert refused["code"] == "budget_exhausted" and "run_day_budget_usd" in refused["message"]


def test_the_days_money_survives_a_restart_and_a_lost_file(paid, tmp_path, one_day):
    bank = Bank(random.Random(3))
    day = {"day_budget_usd": 1.0, "days_dir": str(tmp_path / "spending"), "budget_usd": 100.0}
    gateway = paid(bank, **day)
    gateway.chat()
    (file,) = (tmp_path / "spending").glob("*/*.json")
    file.unlink()
    gateway.restart()
    today = gateway.requests()[0]["time"][:10]
    assert gateway.budget.days.spent(today) == pytest.approx(gateway.budget.spent)


def test_the_next_day_has_its_own_money(paid, tmp_path):
    bank = Bank(random.Random(4))
    gateway = paid(bank, day_budget_usd=0.5, days_dir=str(tmp_path / "spending"), budget_usd=100.0)
    gateway.budget.days.add("2020-01-01", 5.0)
    assert gateway.chat().status_code == 200


def test_the_rehearsals_pretended_dollars_are_no_days_money(paid, tmp_path):
    bank = Bank(random.Random(5))
    gateway = paid(bank, provider="rehearsal", day_budget_usd=0.0001, days_dir=str(tmp_path / "spending"))
    assert gateway.chat().status_code == 200
    assert not (tmp_path / "spending").exists()


def test_a_days_file_that_cannot_be_read_is_not_taken_for_nothing(paid, tmp_path, one_day):
    bank = Bank(random.Random(6))
    gateway = paid(bank, day_budget_usd=1.0, days_dir=str(tmp_path / "spending"))
    gateway.chat()
    today = gateway.requests()[0]["time"][:10]
    (tmp_path / "spending" / today / "20250101-000000-aaaaaa.json").write_text("{")
    refused = gateway.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "gateway_disk")


DAY = "2026-01-02"


def in_the_way(gateway: InProcess) -> Path:
    """As a full disk, for the day's share of this run: its file can't be written. Gone, it can."""
    partial = Path(gateway.config.days_dir) / DAY / f".{gateway.config.run_id}.partial"
    partial.mkdir(parents=True)
    return partial


def test_a_days_share_that_cannot_be_written_loses_no_charge_and_doubles_none(paid, tmp_path, one_day):
    bank = Bank(random.Random(7))
    gateway = paid(bank, day_budget_usd=50.0, days_dir=str(tmp_path / "spending"), budget_usd=100.0)
    reply, obstacle = bank.reply, []

    def full_disk_meanwhile(body: dict) -> httpx2.Response:
        obstacle.append(in_the_way(gateway))
        return reply(body)

    gateway.provider.reply = full_disk_meanwhile
    assert gateway.chat().status_code == 200, "it is paid for: handed on"
    assert gateway.budget.spent == pytest.approx(bank.billed) and gateway.budget.reserved == 0
    assert gateway.budget.days.spent(DAY) == pytest.approx(bank.billed)
    obstacle[0].rmdir()
    gateway.restart()
    assert gateway.budget.spent == pytest.approx(bank.billed)
    assert gateway.budget.days.spent(DAY) == pytest.approx(bank.billed)


def test_what_a_full_disk_kept_from_being_set_aside_is_not_set_aside(paid, tmp_path, one_day):
    bank = Bank(random.Random(8))
    gateway = paid(bank, day_budget_usd=50.0, days_dir=str(tmp_path / "spending"), budget_usd=100.0)
    in_the_way(gateway)
    assert [gateway.chat().status_code for _ in range(3)] == [507] * 3
    assert bank.billed == gateway.budget.days.spent(DAY) == gateway.budget.reserved == 0
