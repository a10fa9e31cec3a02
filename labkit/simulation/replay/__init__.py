"""HOST: a recorded run.db as a script. What was recorded is read and said again, never executed."""

from labkit.simulation.replay.recorded import Recorded

__all__ = ["Recorded"]
