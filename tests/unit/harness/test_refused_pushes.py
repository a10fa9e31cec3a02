"""HARNESS: a gateway that takes no rows, or fewer at once: nothing stays behind, and a person is heard."""

from types import SimpleNamespace

import pytest
from loopback import until
from scripted_gateway import TOKEN, ScriptedGateway

from harness.gateway import GatewayLink
from harness.telemetry import events
from harness.telemetry.recorder import Recorder

ROWS = 250


@pytest.fixture
def gateway():
    with ScriptedGateway() as gateway:
        yield gateway


@pytest.fixture
def link(tmp_path, gateway):
    recorder = Recorder(tmp_path / "a/run.db", tmp_path / "b/run.db", "", lambda: 1.0)
    for _ in range(ROWS):
        recorder.event(events.GUARD)
    paths = SimpleNamespace(primary_db=tmp_path / "a/run.db")
    link = GatewayLink(SimpleNamespace(gateway_url=gateway.url, token=TOKEN, run_id="r", paths=paths))
    yield link
    link.close()


def test_rows_that_are_too_much_at_once_are_sent_in_smaller_batches(gateway, link):
    gateway.most_rows = 7
    link.start()
    until(lambda: link.watermark == ROWS)
    assert sorted(gateway.events) == list(range(1, ROWS + 1))


def test_a_person_is_heard_while_the_gateway_takes_no_rows(gateway, link):
    gateway.most_rows = 0
    gateway.commands = [{"id": 1, "name": "stop", "args": {}}]
    link.start()
    assert link.stop.wait(60)
    assert gateway.events == {} and link.watermark == 0
    gateway.most_rows = 100
    until(lambda: link.watermark == ROWS)
