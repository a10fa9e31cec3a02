"""GUEST: decides which shell commands the Inspector must see: those that name a network or package program,
and those that pipe into a shell what cannot be read in the command.

In doubt a command is gated. What this cannot catch (a name put together at run time, a script file that opens
a socket) stands in harness/README.md.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z0-9_.+/-]+")
_NETWORK_TEXT = re.compile(
    r"(?i)\b(?:https?|ftps?|ssh|git|wss?)://|\bgit@|/dev/(?:tcp|udp)/"
    r"|\b(?:urllib\d?|requests|httpx2?|aiohttp|http\.client|http\.server|httplib|ftplib|smtplib|poplib|imaplib"
    r"|xmlrpc|telnetlib|paramiko|socket|socketserver|asyncio\.open_connection|create_connection"
    r"|LWP|Net::HTTP|IO::Socket|Socket|HTTP::Tiny|open-uri|net/http|fsockopen|curl_init|XMLHttpRequest)\b"
    r"|\bfetch\s*\(|\brequire\(\s*['\"](?:node:)?(?:https?|net|dgram|tls)['\"]"
)
# `... | bash`, `| sudo sh -s`, `| $x`: the command before the pipe makes what will run.
_INTO_SHELL = re.compile(r"(?<!\|)\|&?\s*(?:sudo\s+(?:-\S+\s+)*)?(?:\S*/)?(?:(?:ba|da|k|z)?sh\b|\$)")


def gated_by(command: str, programs: list[str]) -> str | None:
    """The word because of which a command is reviewed, or None. Also sees through cu''rl and c\\url."""
    names = set(programs)
    for variant in (command, re.sub(r"['\"\\]", "", command)):
        for token in _WORD.findall(variant):
            if (word := token.rstrip(".").rsplit("/", 1)[-1]) in names:
                return word
        if found := _NETWORK_TEXT.search(variant) or _INTO_SHELL.search(variant):
            return found.group(0)
    return None
