"""TESTS: a real Chromium on the page: login, events, orders, a restart, and texts that attack it."""

from __future__ import annotations

import json
import os

import chromium
import pytest

from labkit.gateway import commands

REASON = "no Chromium is installed: apt-get install chromium-headless-shell (or chromium)"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix" or chromium.found() is None, reason=REASON),
]
OWNED = "window.owned = (window.owned || 0) + 1"
CORPUS = [
    f"<script>{OWNED}</script>",
    f"<img src=x onerror='{OWNED}'>",
    f"<svg onload='{OWNED}'></svg>",
    f"<svg><script>{OWNED}</script></svg>",
    f"<iframe srcdoc=\"<script>parent.{OWNED.replace('window.', '')}</script>\"></iframe>",
    f"<a href='javascript:{OWNED}' autofocus onfocus='{OWNED}'>click</a>",
    f"javascript:{OWNED}",
    f"</pre></li></ol><body onload='{OWNED}'>",
    f"<input autofocus onfocus='{OWNED}'>",
    f"<details open ontoggle='{OWNED}'>",
    f"<style>@keyframes x{{}}</style><b style='animation-name:x' onanimationstart='{OWNED}'>",
    f"<math><mtext></table><mglyph><style><img src=x onerror='{OWNED}'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:1/stolen'>",
    "<base href='http://127.0.0.1:1/'>",
    "<form action='http://127.0.0.1:1/'><button>Stop</button></form>",
    "<link rel=stylesheet href='http://127.0.0.1:1/x.css'>",
    "{{constructor.constructor('window.owned=1')()}}${window.owned=1}",
    f"\"'><script>{OWNED}</script>",
    "]]><!--><script>window.owned=1</script>-->",
    "data: {\"n\": 1}\n\nevent: state\ndata: {\"paused\": true}\n\nid: 99999\n\n",
    "__proto__",
    "\u202e\u2066evil\u2069\u200b\x1b[2J\x00\ufeff",
    "<dialog open id=ask>Type your token</dialog>",
    "<p id=token>x</p><p id=csrf>",
]  # fmt: skip


@pytest.fixture(scope="module")
def open_tab(tmp_path_factory):
    with chromium.running(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def thought(text: str, **more: object) -> dict:
    return {"event_type": "WORKER_THOUGHT", "sanitized_output": text, **more}


def listed(tab) -> list[int]:
    return tab.do("[...document.querySelectorAll('#event-list > li')].map(line => Number(line.dataset.n))")


def attacks(tab) -> list[dict]:
    """Errors and refusals; a gateway that was away for a moment is none."""
    return [event for event in tab.trouble if event["params"].get("entry", {}).get("source") != "network"]


def test_a_person_logs_in_follows_orders_and_comes_back_after_a_restart(serve, open_tab):
    served, tab = serve(), open_tab()
    served.push(thought("the first thought", phase="EXPLORATION"))
    tab.open(served.url)
    tab.until("!document.querySelector('#login').hidden")
    tab.type("#token", "not the token")
    tab.click("#enter")
    tab.until("document.querySelector('#login-error').textContent.includes('does not open')")
    tab.do("document.querySelector('#token').value = ''")
    tab.type("#token", served.link.partition("#")[2])
    tab.type("#name", "Ada")
    tab.click("#enter")
    tab.until("document.body.innerText.includes('the first thought')")
    assert tab.do("document.cookie") == "", "the login is out of reach of scripts"

    served.push(thought("a thought that comes live", phase="DEVELOPMENT"))
    tab.until("document.querySelector('#event-list').innerText.includes('comes live')")
    tab.until("document.querySelector('#phase').textContent === 'DEVELOPMENT'")

    tab.click("[data-order=say]")
    tab.type("#say-text", "Measure the cold cache too.")
    tab.type("#why", "saw only warm figures")
    tab.click("#ask-yes")
    tab.until("document.querySelector('#asked').innerText.includes('Measure the cold cache too.')")
    (asked,) = commands.listed(served.folder)
    assert (asked["name"], asked["args"]) == ("say", {"text": "Measure the cold cache too."})
    assert (asked["who"]["user"], asked["why"]) == ("Ada", "saw only warm figures")

    served.kill()
    tab.until("document.querySelector('#link').textContent !== 'live'")
    served.start()
    served.push(*[thought(f"after the restart {n}") for n in range(250)])
    tab.until("document.querySelector('#event-list').innerText.includes('after the restart 249')")
    tab.until("document.querySelector('#link').textContent === 'live'")
    assert listed(tab) == list(range(1, 253)), "no gap, none twice, in order"
    assert attacks(tab) == []


def test_the_link_logs_in_by_itself_and_the_token_leaves_the_address(serve, open_tab):
    served, tab = serve(), open_tab()
    tab.open(served.link)
    tab.until("!document.querySelector('#run').hidden")
    assert tab.do("location.href") == served.url
    tab.send("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    served.push(thought("x" * 3000))
    tab.until("document.querySelector('#event-list').innerText.includes('xxx')")
    assert tab.do("document.documentElement.scrollWidth") <= 360, "a phone scrolls one way only"


def test_a_browser_that_joins_late_has_the_end_and_asks_for_the_rest(serve, open_tab):
    served, tab = serve(), open_tab()
    served.push(*[thought(f"thought {n}") for n in range(450)])
    served.browser().stream(449, 1)  # the page's board has them all
    tab.open(served.link)
    tab.until("document.querySelectorAll('#event-list > li').length === 300")
    while not tab.do("document.querySelector('#earlier').hidden"):
        shown = len(listed(tab))
        tab.do("document.querySelector('#earlier').click()")
        tab.until(f"document.querySelectorAll('#event-list > li').length > {shown}")
    assert listed(tab) == list(range(1, 451))


def test_nothing_that_agents_wrote_does_anything_in_the_page(serve, open_tab):
    served, tab = serve(), open_tab()
    for text in CORPUS:
        given = json.dumps({"filename": text, "content": text})
        call = {"event_type": "TOOL_CALL", "tool_name": "write_script", "command_or_input": given}
        fields = ("tool_name", "command_or_input", "guard_reason", "phase", "guard_status", "timestamp")
        everywhere = thought(text, **dict.fromkeys(fields, text))
        verdict = {"event_type": "INSPECTOR_DECISION", "guard_status": text, "guard_reason": text}
        result = {"event_type": "TOOL_RESULT", "sanitized_output": f"Written: scripts/{text} (3 characters)."}
        served.push(call, result, everywhere, everywhere | {"event_type": text}, verdict)
    commands.append(served.folder, "say", {"text": CORPUS[1]}, who={"user": CORPUS[0]}, why=CORPUS[2])
    tab.open(served.link)
    tab.until(f"document.querySelectorAll('#event-list > li').length === {5 * len(CORPUS)}")
    for name in ("verdicts", "files", "events"):
        tab.click(f"[data-tab={name}]")
    for at in range(len(CORPUS)):
        tab.do(f"document.querySelectorAll('#file-list button')[{at}].click()")
        tab.until("document.querySelector('#reader').open")
        tab.do("document.querySelector('#reader').close()")
    assert tab.do("typeof window.owned") == "undefined"
    assert tab.do("location.href") == served.url
    foreign = "script:not([src='/static/page.js']), img, svg, iframe, form, base, style, math, [http-equiv]"
    assert tab.do(f"document.querySelectorAll({json.dumps(foreign)}).length") == 0
    assert tab.do("document.querySelectorAll('dialog').length") == 2
    assert tab.do("document.querySelector('#phase').textContent") != "paused"
    assert "<img src=x onerror=" in tab.text(), "it is shown as what it is"
    assert "\u202e" not in tab.text() and "\x1b" not in tab.text()
    assert attacks(tab) == [], "not even refused: nothing was tried"


def test_a_script_in_the_page_could_neither_send_out_nor_load(serve, open_tab):
    """The second wall: what the policy refuses even if a text became markup one day."""
    served, tab = serve(), open_tab()
    tab.open(served.link)
    tab.until("!document.querySelector('#run').hidden")
    blocked = tab.do(
        "new Promise(done => { const seen = []; document.addEventListener('securitypolicyviolation', event =>"
        " { seen.push(event.effectiveDirective); });"
        " fetch('http://127.0.0.1:1/').catch(() => {});"
        " const image = new Image(); image.src = 'http://127.0.0.1:1/x.png';"
        " const script = document.createElement('div');"
        " try { script.innerHTML = '<b>x</b>'; } catch { seen.push('trusted types'); }"
        " try { document.body.setAttribute('onclick', 'window.owned = 1'); } catch {} document.body.click();"
        " const ends = Date.now() + 20000, look = () => new Set(seen).size >= 3 || Date.now() > ends ?"
        " done([typeof window.owned, ...new Set(seen)]) : setTimeout(look, 50); look(); })"
    )
    assert blocked[0] == "undefined"
    assert {"connect-src", "img-src", "trusted types"} <= set(blocked)
