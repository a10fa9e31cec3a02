"""TESTS: a real headless Chromium, driven over its debugging pipe: no driver, no package, no port."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from descriptors import readable

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SECONDS = 30.0  # an emulated or busy machine is slow


def found() -> str | None:
    """The browser's path, or None where none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page. `do` gives a script's value, `until` waits for a true one, `trouble` is what went wrong."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict:
        return self.browser.send(method, self.session, **parameters)

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def do(self, script: str) -> Any:
        """The value of an expression; Runtime.evaluate is not bound by the page's policy."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = SECONDS) -> Any:
        ends = time.monotonic() + seconds
        while True:
            with contextlib.suppress(AssertionError):  # the page is on its way
                if value := self.do(script):
                    return value
            assert time.monotonic() < ends, f"never came true: {script}\n{self.text()[-1500:]}"
            time.sleep(0.1)

    def text(self) -> str:
        return self.do("document.body ? document.body.innerText : ''") or ""

    def click(self, selector: str) -> None:
        """As a finger does it: at the middle of the element, which must be there to be hit."""
        where = self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " if (!e) return null; e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " const x = r.left + r.width / 2, y = r.top + r.height / 2;"
            " const hit = document.elementFromPoint(x, y);"
            " return r.width && hit && (e === hit || e.contains(hit)) ? [x, y] : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1
            )

    def type(self, selector: str, text: str) -> None:
        self.do(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def shot(self, path: Path) -> None:
        import base64

        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    @property
    def trouble(self) -> list[dict]:
        """What went wrong in the page so far: exceptions, refused scripts, dialogs, downloads."""
        words = {"Runtime.exceptionThrown", "Log.entryAdded", "Page.downloadWillBegin"}
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event for event in mine if event["method"] in words]


class Chromium:
    """The process and its pipe."""

    def __init__(self, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        # The browser wants its pipe at 3 and 4.
        line = ["bash", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', str(found()), *options]
        self.process = subprocess.Popen(
            line, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out, self._buffer = ours_in, ours_out, b""
        self._ids = itertools.count(1)
        self.events: list[dict] = []

    def tab(self) -> Tab:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        return Tab(self, self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        os.write(
            self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0"
        )
        ends = time.monotonic() + SECONDS
        while True:
            answer = self._next(ends)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)
            if answer["method"] == "Page.javascriptDialogOpening":
                raise AssertionError(f"the page opened a dialog: {answer['params']['message']}")

    def _next(self, ends: float) -> dict:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20) if readable(self._in, ends - time.monotonic()) else b""
            assert data, "the browser does not answer"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)


@contextlib.contextmanager
def running(profile: Path) -> Iterator[Callable[[], Tab]]:
    """Gives a function that opens a tab."""
    browser = Chromium(profile)
    try:
        yield browser.tab
    finally:
        browser.close()
