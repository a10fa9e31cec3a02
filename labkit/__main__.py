"""HOST: `python -m labkit`: loads the command line, which takes half a second, and starts it."""

from __future__ import annotations

import signal


def main() -> None:
    """As `cli.main`; Ctrl-C while modules are being loaded ends the program without their traceback."""
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not behind a script's `&`
    if hears:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from labkit import cli

    if hears:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
