"""HOST: whole sessions in seconds: the real harness, a virtual clock, a provider that misbehaves on cue."""

from labkit.simulation.result import Result
from labkit.simulation.sandbox import keep
from labkit.simulation.script import Script, shipped
from labkit.simulation.session import simulate

__all__ = ["Result", "Script", "keep", "shipped", "simulate"]
