"""HOST: `python -m labkit.gateway RUN_DIR`: the gateway of a run in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

from labkit.errors import OK, USAGE, LabError
from labkit.gateway.server import interrupted, serve


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m labkit.gateway RUN_DIR", file=sys.stderr)
        return USAGE
    run_dir = Path(arguments[0])
    try:
        serve(run_dir)
        return OK
    except KeyboardInterrupt:  # before it was listened for
        error = interrupted(run_dir)
    except LabError as known:
        error = known
    print(f"lab: {error}", file=sys.stderr)
    return error.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
