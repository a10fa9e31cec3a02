"""HOST: `python -m labkit.gateway RUN_DIR`: the gateway of a run in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

from labkit.errors import USAGE, LabError
from labkit.gateway.server import serve


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m labkit.gateway RUN_DIR", file=sys.stderr)
        return USAGE
    try:
        serve(Path(arguments[0]))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
