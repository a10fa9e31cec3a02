"""UNIT: the digest: within its tokens, never empty or worse than the last good one, true to the disk."""

from types import SimpleNamespace

import pytest
from harness_run import run_settings
from scripted_gateway import TOKEN
from test_context import step

from harness.clock import Clock
from harness.context import Context
from harness.digest import Digest
from harness.errors import ModelError
from harness.mentions import mark_missing
from harness.money import Purse, Usage
from harness.replies import Reply
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder


class Scripted:
    """A model that gives the given replies in turn; a text is a reply, an exception is raised."""

    def __init__(self, settings, *replies):
        self.settings, self.replies, self.asked = settings, list(replies), []

    def ask(self, purpose, messages, **_):
        self.asked.append(messages)
        said = self.replies.pop(0) if self.replies else ModelError("server", "away")
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, Reply) else Reply(said, (), "stop", Usage(), 0.0)


@pytest.fixture
def made(tmp_path):
    wanted = from_dict(run_settings(tmp_path))
    wanted.paths.notes.mkdir(parents=True)
    clock = Clock(3600, 0.1)
    recorder = Recorder(wanted.paths.primary_db, wanted.paths.mirror_db, TOKEN, clock.elapsed)
    purse, context = Purse(1, 1, 1, 1), Context("system", 6, 2)
    context.pending = [step(number, 1) for number in range(4)]

    def digest(*replies, tokens=200):
        model = Scripted(wanted, *replies)
        return SimpleNamespace(
            digest=Digest(model, recorder, clock, purse, "prompt", tokens), context=context, model=model,
            recorder=recorder, purse=purse, workspace=wanted.paths.workspace,
        )  # fmt: skip

    return digest


def test_a_good_digest_takes_up_what_was_pending(made):
    all_of = made("Working on the probe. Chose WAL because it was 2.7 times faster. Dead end: fsync a row.")
    assert all_of.digest.refresh(all_of.context)
    assert all_of.context.digest.startswith("Working on the probe")
    assert all_of.context.pending == []
    told = all_of.model.asked[0][1]["content"]
    assert all(f"### Step {number}" in told for number in range(4))


@pytest.mark.parametrize(
    "replies",
    [("", "  "), ("x" * 5000, "y" * 5000), (ModelError("server", "away"),),
     (Reply("cut", (), "length", Usage(), 0.0),) * 2],
    ids=["empty", "too long", "no model", "cut"],
)  # fmt: skip
def test_a_bad_digest_keeps_the_last_good_one_and_what_left_the_window(made, replies):
    all_of = made(*replies)
    all_of.context.digest = "the last good one"
    assert not all_of.digest.refresh(all_of.context)
    assert all_of.context.digest == "the last good one"
    assert [known.number for known in all_of.context.pending] == [0, 1, 2, 3]
    all_of.model.replies = ["a new one"]
    assert all_of.digest.refresh(all_of.context)
    assert "### Step 0" in all_of.model.asked[-1][1]["content"]
    assert "the last good one" in all_of.model.asked[-1][1]["content"]


def test_a_first_digest_that_fails_is_replaced_by_the_bare_calls_within_the_same_limit(made):
    all_of = made(ModelError("server", "away"))
    all_of.context.pending = [step(number, 2, size=500) for number in range(50)]
    all_of.digest.refresh(all_of.context)
    assert "No model wrote this digest" in all_of.context.digest
    assert "Step 49" in all_of.context.digest
    assert all_of.purse.tokens(all_of.context.digest) <= 200
    assert len(all_of.context.pending) <= 2 * all_of.context.max_steps


def test_what_could_not_be_sent_again_and_what_cannot_be_seen_does_not_stay_in_the_digest(made):
    all_of = made("Half a pair \ud83d, \x1b[31mred\x1b[0m and \u202ehidden.")
    assert all_of.digest.refresh(all_of.context)
    assert all_of.context.digest == "Half a pair , red and hidden."
    assert all_of.recorder.query("SELECT sanitized_output FROM execution_logs") == [(all_of.context.digest,)]


def test_a_digest_of_invisible_characters_is_an_empty_one(made):
    all_of = made("\u200b\ufeff", "\ud800")
    all_of.context.digest = "the last good one"
    assert not all_of.digest.refresh(all_of.context)
    assert all_of.context.digest == "the last good one"


def test_a_digest_that_was_too_long_is_asked_for_once_more(made):
    all_of = made("x" * 5000, "shorter")
    assert all_of.digest.refresh(all_of.context)
    assert all_of.context.digest == "shorter"
    assert "200 are allowed" in all_of.model.asked[1][-1]["content"]


@pytest.mark.parametrize(
    ("chars", "usage", "size"),
    [
        (1000, Usage(completion=250), 250),
        (1000, Usage(completion=900, reasoning=650), 250),
        (1000, Usage(completion=3), 286),
        (1000, Usage(completion=5000), 286),
        (1000, Usage(), 286),
    ],
    ids=["counted", "reasoning is a part of it", "too few to be true", "too many to be true", "not counted"],
)
def test_tokens_are_counted_by_the_provider_where_that_is_likely_else_by_characters(made, chars, usage, size):
    all_of, text = made(), "x" * chars
    assert all_of.digest.size(Reply(text, (), "stop", usage, 0.0), text) == size


def test_the_count_by_characters_follows_what_the_provider_reports(made):
    all_of = made()
    for _ in range(30):
        all_of.purse.calibrate(10_000, 5000)
    assert all_of.purse.tokens("x" * 1000) == pytest.approx(500, abs=5)


def test_each_file_that_does_not_exist_is_marked_and_no_other(made):
    all_of = made()
    (all_of.workspace / "notes" / "real.md").write_text("x")
    (all_of.workspace / "tools" / "redis").mkdir(parents=True)
    all_of.recorder.register("scripts/moved_v2.py", "SCRIPT", 2)
    text = (
        f"See notes/real.md, notes/invented.md and {all_of.workspace}/notes/real.md. tools/redis is built; "
        f"scripts/moved_v2.py works, moved_v2.py too, moved_v9.py not. {all_of.workspace}/scripts/none.sh. "
        "Node.js, 3.11, https://x.org/notes/far.md, /etc/passwd.txt, notes/*.md, master_v<N>.md, real.md."
    )
    marked = mark_missing(text, all_of.workspace, all_of.recorder)
    assert marked.count("[missing]") == 3
    for name in ("notes/invented.md", "moved_v9.py", "scripts/none.sh"):
        assert f"{name} [missing]" in marked
    assert mark_missing(marked, all_of.workspace, all_of.recorder) == marked
    (all_of.workspace / "notes" / "invented.md").write_text("x")
    assert "invented.md [missing]" not in mark_missing(marked, all_of.workspace, all_of.recorder)


def test_the_digest_in_the_prompt_carries_the_marks(made):
    all_of = made("The figures stand in notes/nowhere.md.")
    all_of.digest.refresh(all_of.context)
    assert all_of.context.outgoing([], "s")[1]["content"].endswith("notes/nowhere.md [missing].")
