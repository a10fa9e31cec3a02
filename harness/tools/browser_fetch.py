"""GUEST: tool browser_fetch: one page, as text, after the Inspector said ALLOW."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from harness.page_text import Unreadable, markdown
from harness.text import clean, clip, unquoted, untrusted
from harness.tools.base import Desk, Outcome, schema

NAME = "browser_fetch"
SCHEMA = schema(
    NAME,
    "Fetch a web page (http or https) and read it as text. The Inspector reads it before you do.",
    url={"type": "string", "description": "The full address"},
)
MAX_BYTES, MAX_REDIRECTS, SECONDS = 1_000_000, 5, 30.0
READING_SECONDS = 60.0  # to make text of it: an emulated processor takes ten times as long as a real one
RAW_SHOWN = 20_000  # characters of the raw page that the Inspector gets beside the text
PERMITTED = "Look for another source on the same matter, or go on without it and write down what is missing."


@dataclass(frozen=True)
class Page:
    """What a server sent: final address, bare content type, charset, at most MAX_BYTES of body."""

    url: str
    kind: str
    charset: str
    body: bytes


class NotFetched(Exception):
    """Why there is no page; in our words, nothing of the server's."""


def run(arguments: dict, desk: Desk) -> Outcome:
    url = arguments["url"].strip()
    try:
        seconds = min(SECONDS, desk.clock.for_work())
        page = desk.world.page(url, seconds) if desk.world.page else fetch(url, seconds, desk.stop)
        text = clip(clean(extract(page, _reading(desk), desk.stop)), desk.settings.output_limit_chars)
    except NotFetched as problem:
        return Outcome(f"Not fetched: {problem}.")
    if not text.strip():
        return Outcome("The page has no readable text.")
    raw = clip(page.body.decode(page.charset, errors="replace"), RAW_SHOWN)
    verdict = desk.inspector.review("page", page.url, text, raw)
    if not verdict.allowed:
        why = f"Reason: {unquoted(verdict.reason)}. {PERMITTED}"
        text = f"Withheld: the Inspector did not let this page through. {why}"
        return Outcome(text, verdict.status, verdict.reason)
    return Outcome(untrusted(text, page.url, desk.world.mark()), verdict.status, verdict.reason)


def _reading(desk: Desk) -> float:
    return min(READING_SECONDS, desk.clock.for_work())


def fetch(url: str, seconds: float, stop: threading.Event) -> Page:
    """GET within `seconds` in all (name look-up and a dripping server included). Raises NotFetched."""
    _check(url)
    url = quote(url, safe="%/:=&?~#+!$,;'@()*[]")
    box: list[Page | Exception] = []
    thread = threading.Thread(target=_fetch_into, args=(box, url, seconds), daemon=True)
    thread.start()
    ends = time.monotonic() + seconds + 1
    while not box and thread.is_alive() and time.monotonic() < ends and not stop.is_set():
        thread.join(0.1)
    if not box:
        raise NotFetched(f"no complete answer within {seconds:.0f} s")
    if isinstance(box[0], Exception):
        raise NotFetched(_in_words(box[0])) from box[0]
    return box[0]


def _fetch_into(box: list, url: str, seconds: float) -> None:
    try:
        box.append(_get(url, time.monotonic() + seconds))
    except Exception as error:  # handed to the thread that waits
        box.append(error)


def _get(url: str, ends: float) -> Page:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Redirects())
    request = urllib.request.Request(
        url, headers={"User-Agent": "lab-harness/1.0", "Accept": "text/html,*/*"}
    )
    with opener.open(request, timeout=max(0.1, ends - time.monotonic())) as answer:
        body = b""
        while len(body) <= MAX_BYTES and (part := answer.read1(65536)):
            body += part
            if time.monotonic() > ends:
                raise NotFetched("the server sends too slowly")
        if len(body) > MAX_BYTES:
            raise NotFetched(f"the page is larger than {MAX_BYTES} bytes")
        headers = answer.headers
        return Page(
            answer.geturl(), headers.get_content_type(), _charset(headers.get_content_charset()), body
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = MAX_REDIRECTS

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        _check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise NotFetched("this is not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotFetched("only http and https addresses can be fetched")


def _in_words(error: Exception) -> str:
    if isinstance(error, NotFetched):
        return str(error)
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered with status {error.code}"
    if isinstance(error, TimeoutError):
        return "the server did not answer in time"
    if isinstance(error, urllib.error.URLError):
        return f"the server could not be reached ({type(error.reason).__name__})"
    return f"the transfer failed ({type(error).__name__})"


def _charset(name: str | None) -> str:
    """The server's charset if Python knows it as a text encoding, else UTF-8."""
    try:
        b"a".decode(name or "utf-8")
    except (LookupError, UnicodeError):
        return "utf-8"
    return name or "utf-8"


def extract(page: Page, seconds: float, stop: threading.Event) -> str:
    """The page's text: HTML through markdownify without scripts and styles; other text as it is."""
    if page.kind in ("text/html", "application/xhtml+xml"):
        try:
            return markdown(page.body, page.charset, seconds, stop)
        except Unreadable as reason:
            raise NotFetched(str(reason)) from None
    if page.kind.startswith("text/") or page.kind.endswith(("json", "xml", "javascript")):
        return page.body.decode(page.charset, errors="replace")
    raise NotFetched("it is not a text page")
