"""GUEST: posts events to the gateway and polls it for commands, in one background thread.

A dead gateway never holds the loop up: events stay in run.db and are sent again from the watermark.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
import urllib.error
import urllib.request

from harness.settings import Settings

BATCH = 100
TOO_MUCH = (400, 413)  # what the gateway says of a body beyond its limits
IDLE_SECONDS = 1.0  # between looks when nobody wakes the thread
LONGEST_PAUSE = 5.0
TIMEOUT = 10.0
FINISH_GRACE = 5.0  # seconds that a running command gets after `finish`
READER_KB = 64  # of pages kept; each row is read once
DEAD_SECONDS = 2.0  # of failing pushes after which the end of a run waits no longer


class GatewayLink:
    """Owns the watermark (highest id the gateway holds without a hole) and the commands not yet taken."""

    def __init__(self, settings: Settings, commands_after: int = 0) -> None:
        self.url, self.token = settings.gateway_url.rstrip("/"), settings.token
        self.run_id, self.db = settings.run_id, settings.paths.primary_db
        self.watermark, self.commands_after = 0, commands_after  # the gateway's answer moves it on
        self.problem = ""
        self.stop: threading.Event = threading.Event()  # set when a person says `stop`
        self._finish_at: float | None = None  # when a `finish` arrived that the loop has not taken yet
        self._obeyed, self._acknowledged = 0, 0  # ids: in the record; of these, what the gateway knows
        self._commands: list[dict] = []
        self._lock = threading.Lock()
        self._wake, self._closed = threading.Event(), threading.Event()
        self._tried = threading.Event()  # a round of pushing and asking is over
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._batch = BATCH  # fewer after a refusal: long rows can be too much at once
        self._reader: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="gateway-link")

    def start(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def take_commands(self) -> list[dict]:
        """Commands that arrived since the last call, oldest first, each once."""
        with self._lock:
            taken, self._commands = self._commands, []
            self._finish_at = None
        return taken

    def give_back(self, commands: list[dict]) -> None:
        """They could not be recorded now: the next look takes them again."""
        with self._lock:
            self._commands = [*commands, *self._commands]

    def acknowledge(self, command_id: int) -> None:
        """The record holds every command up to this id; the gateway is told in the background."""
        self._obeyed = max(self._obeyed, command_id)
        self.wake()

    def patience(self) -> float:
        """Seconds that what runs now may still take: endless until a `finish` waits for the step to end."""
        with self._lock:
            if self._finish_at is None:
                return math.inf
            return max(0.0, self._finish_at + FINISH_GRACE - time.monotonic())

    def flush(self, last_id: int, seconds: float) -> bool:
        """Wait until the gateway holds every row up to last_id, at most that long; less if it is dead."""
        began = time.monotonic()
        while self._is_behind(last_id) and time.monotonic() - began < seconds:
            if self.problem and time.monotonic() - began > DEAD_SECONDS:
                break
            self._tried.clear()
            self.wake()
            self._tried.wait(0.05)
        return self.watermark >= last_id

    def _is_behind(self, last_id: int) -> bool:
        return self.watermark < last_id or self._acknowledged < self._obeyed

    def close(self) -> None:
        self._closed.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._let_go()

    def _serve(self) -> None:
        pause = IDLE_SECONDS
        while not self._closed.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            try:
                refused = self._push_all()
                self._poll()  # a person is heard also while the gateway takes no rows
                self._tell_obeyed()
                if refused:
                    raise refused
                self.problem, pause = "", IDLE_SECONDS
                self._tried.set()
            except Exception as error:  # an answer cut in its middle is no OSError; the thread must live on
                self.problem = str(error) or type(error).__name__
                pause = min(LONGEST_PAUSE, pause * 2)
                self._closed.wait(0.2)  # a loop that wakes us each step must not become a storm

    def _push_all(self) -> urllib.error.HTTPError | None:
        """Returns the gateway's refusal, if it answered with one."""
        try:
            while self._push():
                pass
        except urllib.error.HTTPError as error:
            return error
        return None

    def _push(self) -> bool:
        """Send one batch. True: there is more, or the gateway did not take all of it."""
        rows = self._rows()
        is_full = len(rows) == self._batch
        if not is_full:
            self._batch = BATCH
        if not rows:
            return False
        try:
            answer = self._call("/v1/events", {"run_id": self.run_id, "events": rows})
        except urllib.error.HTTPError as error:
            if error.code not in TOO_MUCH or len(rows) == 1:
                raise
            self._batch = len(rows) // 2
            return True
        before, self.watermark = self.watermark, int(answer["watermark"])
        return self.watermark > before and (is_full or self.watermark < rows[-1]["id"])

    def _rows(self) -> list[dict]:
        """Read to the end: an open statement would pin the WAL, an open connection does not."""
        sql = "SELECT * FROM execution_logs WHERE id > ? ORDER BY id LIMIT ?"
        try:
            self._reader = self._reader or self._open()
            return [dict(row) for row in self._reader.execute(sql, (self.watermark, self._batch)).fetchall()]
        except sqlite3.Error:
            self._let_go()
            raise

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=5.0, check_same_thread=False)
        db.row_factory = sqlite3.Row
        db.execute(f"PRAGMA cache_size=-{READER_KB}")
        return db

    def _let_go(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _poll(self) -> None:
        answer = self._call(f"/v1/commands?after={self.commands_after}")
        fresh = [command for command in answer["commands"] if int(command["id"]) > self.commands_after]
        with self._lock:
            self._commands += fresh
            if self._finish_at is None and any(command["name"] == "finish" for command in fresh):
                self._finish_at = time.monotonic()
            self.commands_after = max([self.commands_after, *(int(command["id"]) for command in fresh)])

        if any(command["name"] == "stop" for command in fresh):
            self.stop.set()

    def _tell_obeyed(self) -> None:
        if (obeyed := self._obeyed) > self._acknowledged:
            try:
                self._call("/v1/commands/ack", {"acknowledged": obeyed})
            except urllib.error.HTTPError as error:
                if error.code not in (400, 404):  # a gateway that never will take it
                    raise
            self._acknowledged = obeyed

    def _quiet(self) -> str:
        """Seconds since the loop last gave a sign of life; this thread goes on when the loop hangs."""
        return f"{time.monotonic() - getattr(self.stop, 'looked_at', time.monotonic()):.0f}"

    def _call(self, path: str, body: dict | None = None) -> dict:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        headers["Lab-Quiet"] = self._quiet()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        with self._opener.open(request, timeout=TIMEOUT) as response:
            answer = json.loads(response.read())
        if not isinstance(answer, dict):
            raise ValueError(f"{path} answered no JSON object")
        return answer
