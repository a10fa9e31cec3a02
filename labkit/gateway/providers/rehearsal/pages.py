"""HOST: the two pages that the rehearsal's Worker fetches: one harmless, one with an injected instruction."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("pages")


def read(name: str) -> str | None:
    """The HTML of a page by its name without `.html`; None for any other name, paths included."""
    pages = {path.stem: path for path in FOLDER.glob("*.html")}
    return pages[name].read_text(encoding="utf-8") if name in pages else None
