"""HOST: whole sessions in seconds: the real harness, a virtual clock, a provider that misbehaves on cue."""

from labkit.simulation.script import Script, shipped
from labkit.simulation.session import Result, keep, simulate

__all__ = ["Result", "Script", "keep", "shipped", "simulate"]
