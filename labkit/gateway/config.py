"""HOST: what a gateway is started with (`gateway.json`), and the limits that follow from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labkit.errors import USAGE, LabError
from labkit.gateway import fields
from labkit.gateway.files import write_private

FILE_NAME = "gateway.json"
CORRECT = "correct it, or start a new run with `lab run`"
WALL_FACTOR = 2  # the run's own wall limit is twice its minutes ...
WALL_GRACE_SECONDS = 30 * 60  # ... and the gateway stays a little longer for the last events


def now_utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def token_hash(token: str) -> str:
    """SHA-256 of a run token, in hex: what gateway.json keeps instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class GatewayConfig:
    """Settings of one gateway. Money in dollars, prices per million tokens, times in UTC."""

    run_id: str
    bind: str
    port: int
    provider: str  # a name from run_providers; `rehearsal` is served by the gateway itself
    base_url: str
    key_env: str
    models: tuple[str, ...]
    token_sha256: str
    budget_usd: float
    price_input_per_mtok: float
    price_output_per_mtok: float
    max_completion_tokens: int
    minutes: float
    pages_base: str = ""  # public base of this gateway as the guest sees it, for the rehearsal pages
    started_at: str = dataclasses.field(default_factory=now_utc)
    key_file: str = ""  # empty: ~/.config/vm-lab/<provider>.key
    rehearsal_latency_seconds: float = 0.3
    downtime_seconds: float = 0.0  # that a person who resumed the run forgave; no part of its wall limit
    nonce: str = ""  # of this start of the run; telemetry of another one is refused. Empty: none is asked for
    boot_id: str = ""  # of the guest, as the host saw it when it started the session; empty: it did not
    guest_address: str = ""  # the only source the token is good from; empty: any
    token_life_seconds: float = 6 * 3600.0  # without a word from the guest; each word renews it
    day_budget_usd: float = 0.0  # for all runs of this host together; 0: no cap
    days_dir: str = ""  # where they count what they spent
    page_bind: str = ""  # where a person's live page is served; empty: nowhere
    page_port: int = 0  # 0: any
    management_key_env: str = ""  # set: a key of this run's own is made with it, limited to the budget

    def __post_init__(self) -> None:
        if wrong := fields.problem(vars(self)):
            raise LabError(f"gateway settings of run {self.run_id!r}: {wrong}", "correct run.yml", USAGE)
        object.__setattr__(self, "models", tuple(self.models))

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return datetime.fromisoformat(self.started_at).timestamp()

    def wall_over(self, now: float | None = None, extra_minutes: float = 0.0) -> bool:
        """True when the gateway has outlived any run it could serve. extra_minutes: of `lab extend`."""
        length = (self.minutes + extra_minutes) * 60
        limit = self.started + WALL_FACTOR * length + WALL_GRACE_SECONDS + self.downtime_seconds
        return (time.time() if now is None else now) > limit

    def save(self, run_dir: Path) -> Path:
        """Write RUN_DIR/gateway.json, readable by its owner only."""
        path = Path(run_dir) / FILE_NAME
        write_private(path, json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        return path

    @classmethod
    def load(cls, run_dir: Path) -> GatewayConfig:
        """Read RUN_DIR/gateway.json; LabError (usage) when it is missing or anything in it can't be."""
        path = Path(run_dir) / FILE_NAME
        values = _read(path)
        wrong = fields.problem(values) if isinstance(values, dict) else "it is no JSON object"
        needed = (one.name for one in dataclasses.fields(cls) if _has_no_default(one))
        missing = [] if wrong else [name for name in needed if name not in values]
        if wrong or missing:
            raise LabError(f"{path}: {wrong or f'{missing[0]} is missing'}", CORRECT, USAGE)
        return cls(**values)


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _read(path: Path) -> object:
    """The JSON of a regular file: a pipe would be waited for, for ever and without a word."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise LabError(f"{path} is no regular file", CORRECT, USAGE)
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"no gateway settings at {path}", "`lab run` writes them", USAGE) from None
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}", CORRECT, USAGE) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise LabError(f"{path} is no JSON: {where}", CORRECT, USAGE) from None
    except (ValueError, RecursionError):  # bytes that are no text; a number or a nest beyond all use
        raise LabError(f"{path} is no JSON", CORRECT, USAGE) from None
