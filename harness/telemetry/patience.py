"""GUEST: calls that the kernel may never return from: a thread makes them, the caller waits so long.

A frozen file system or a device without an answer holds whoever writes in the kernel, and no signal reaches
there. The thread may be held; the run is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NoAnswerError(OSError):
    """The call has not returned in time, or an earlier one still has not."""


@dataclass
class _Call:
    work: Callable[[], Any]
    late: Callable[[], None]
    result: Any = None
    error: BaseException | None = None
    over: bool = False
    given_up: bool = False


class Patience:
    """Waits `seconds` for each call. One call at a time; the caller's thread must always be the same."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._asked, self._answered, self._decided = threading.Lock(), threading.Lock(), threading.Lock()
        self._asked.acquire()
        self._answered.acquire()
        self._call: _Call | None = None
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Whether a call that was given up has not returned yet."""
        call = self._call
        return call is not None and call.given_up

    def start(self, work: Callable[[], Any], late: Callable[[], None]) -> None:
        """Begin a call; `finish` tells its end. late: what the thread does after a call that was given up.

        Raises NoAnswerError at once while a call that was given up has not returned.
        """
        if self.held:
            raise NoAnswerError("it has still not answered")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
        self._call = _Call(work, late)
        self._asked.release()

    def finish(self) -> Any:
        """What the call returned or raised; None where none was begun. NoAnswerError after `seconds`."""
        call = self._call
        if call is None or call.given_up:
            return None
        if not self._answered.acquire(timeout=self.seconds):
            with self._decided:
                call.given_up = not call.over
            if call.given_up:
                raise NoAnswerError(f"it has not answered for {self.seconds:g} s")
            self._answered.acquire()
        self._call = None
        if call.error is not None:
            raise call.error
        return call.result

    def end(self) -> None:
        """No call comes any more: its thread ends, unless it is held. A later `start` begins another one."""
        if self._thread is not None and self._call is None:
            self._asked.release()
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while True:
            self._asked.acquire()
            call = self._call
            if call is None:
                return
            try:
                call.result = call.work()
            except BaseException as error:
                call.error = error
            with self._decided:
                call.over = True
            if call.given_up:
                call.late()
                self._call = None
            else:
                self._answered.release()
