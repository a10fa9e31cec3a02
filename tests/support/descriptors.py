"""TESTS: waiting for a descriptor by poll: select() knows none above 1023, and a long run may have more."""

import select


def readable(descriptor: int, seconds: float) -> bool:
    """Whether something can be read (or the other end was closed) within so many seconds."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))
