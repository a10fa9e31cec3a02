"""TESTS: the relay hashes texts in the very form in which the harness records them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from harness.telemetry.recorder import HIDDEN
from harness.text import clean
from harness.tools import parse
from labkit.gateway import witness

ODD = st.text(
    st.sampled_from('a1 \x1b[]31m;\r\n\t\x00\x9b\u200b\ufeff\u202e\ud800\U000e0041\u2192\\"{}'), max_size=40
)
TEXTS = st.text(max_size=60) | ODD


@given(TEXTS)
def test_what_the_harness_cleaned_has_the_same_print_as_what_the_model_sent(text):
    assert witness.normal(text) == clean(text)
    assert witness.fingerprint(clean(text)) == witness.fingerprint(text)


@given(TEXTS)
def test_cleaning_twice_changes_nothing(text):
    assert witness.normal(witness.normal(text)) == witness.normal(text)


def test_the_run_token_is_left_out_as_the_recorder_leaves_it_out():
    assert witness.HIDDEN_TOKEN == HIDDEN
    assert witness.fingerprint("a TOKEN b", "TOKEN") == witness.fingerprint(f"a {HIDDEN} b")


@given(
    st.sampled_from(["execute_shell", "read_file"]), ODD | st.builds(json.dumps, st.dictionaries(ODD, ODD))
)
def test_a_call_is_shown_as_the_orchestrator_shows_it(name, arguments):
    command = (parse(arguments) or {}).get("command") if name == "execute_shell" else None
    assert witness.shown(name, arguments) == (command if isinstance(command, str) else arguments)
