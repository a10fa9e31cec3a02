"""A loopback gateway for tests: chat, events and commands, with a script of replies and faults.

It answers 400 to a message list that a real provider would refuse, keeps every request body, and plays a
fault only when the script says so. Contract: docs/interfaces.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "test-token-b53a1c"
ALLOW = {"text": '{"verdict": "ALLOW", "reason": "ordinary"}'}
BLOCK = {"text": '{"verdict": "BLOCK", "reason": "it tries to steer its reader"}'}


def call(name: str, **arguments: object) -> dict:
    """A scripted reply that makes one tool call."""
    return {"text": f"I will use {name}.", "calls": [(name, arguments)]}


def say(text: str) -> dict:
    return {"text": text}


def fault(kind: str, **more: object) -> dict:
    """kind: status (with status=), html, empty, in_body (with code=), cut, slow (with seconds=), reset."""
    return {"fault": kind, **more}


class ScriptedGateway:
    """Start it, point a run at `url`, read `requests`, `events` and `broken` afterwards.

    replies[purpose]: scripted replies, used in order (the last one repeats), or a function of the body.
    """

    def __init__(self, **replies: list[dict] | Callable[[dict], dict]) -> None:
        self.replies: dict[str, list[dict] | Callable[[dict], dict]] = {
            "inspector": [ALLOW],
            "digest": [say("Working on the probe. Notes hold the figures.")],
            "report": [say("# Report\n\nWritten with tools off.")],
            **replies,
        }
        self.requests: list[dict] = []
        self.events: dict[int, dict] = {}
        self.commands: list[dict] = []
        self.pages: dict[str, str] = {}  # '/page/x' -> HTML, served without a token
        self.refused: list[str] = []
        self.up = True
        self.most_rows = 100  # of one push; more are refused as too much
        self.cost: float | None = 0.0001
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ScriptedGateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, purpose: str) -> list[dict]:
        return [body for body in self.requests if body.get("user") == purpose]

    def chat(self, body: dict) -> dict:
        """The scripted reply to one request body."""
        with self._lock:
            self.requests.append(body)
            purpose = body.get("user", "worker")
            script = self.replies[purpose]
            if callable(script):
                return script(body)
            at = self._used.get(purpose, 0)
            self._used[purpose] = at + 1
            return script[min(at, len(script) - 1)]

    def take(self, rows: list[dict]) -> int:
        """Store event rows; the highest id up to which there is no hole."""
        with self._lock:
            for row in rows:
                self.events.setdefault(row["id"], row)
            mark = 0
            while mark + 1 in self.events:
                mark += 1
            return mark

    def _handler(gateway) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                if self.path.startswith("/page/"):
                    return self._send(200, gateway.pages[self.path], "text/html")
                if not self._allowed():
                    return None
                after = int(self.path.split("after=")[1])
                fresh = [command for command in gateway.commands if command["id"] > after]
                return self._json(200, {"commands": fresh})

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if not self._allowed():
                    return None
                body = json.loads(raw)
                if self.path == "/v1/events" and len(body["events"]) > gateway.most_rows:
                    return self._error(413, "too much at once", "bad_request")
                if self.path == "/v1/events":
                    return self._json(200, {"watermark": gateway.take(body["events"])})
                if problem := broken(body["messages"]):
                    gateway.refused.append(problem)
                    return self._error(400, problem, "bad_request")
                return self._play(gateway.chat(body), body)

            def _allowed(self) -> bool:
                if not gateway.up:
                    self._error(503, "the gateway is away", "away")
                elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self._error(401, "who are you", "bad_token")
                else:
                    return True
                return False

            def _play(self, reply: dict, body: dict) -> None:
                kind = reply.get("fault")
                if kind == "status":
                    return self._error(reply["status"], "scripted", reply.get("code", "scripted"), reply)
                if kind == "html":
                    return self._send(200, "<html><body>Bad gateway</body></html>", "text/html")
                if kind == "empty":
                    return self._json(200, completion({"text": ""}, body, gateway.cost))
                if kind == "nothing":
                    return self._send(200, "", "application/json")
                if kind == "in_body":
                    return self._json(200, {"error": {"code": reply["code"], "message": "scripted"}})
                if kind == "cut":
                    text = json.dumps(completion(say("cut in the mid"), body, None))
                    return self._send(200, text, "application/json", cut=len(text) // 2)
                if kind == "slow":
                    time.sleep(reply["seconds"])
                if kind == "drip":
                    return self._drip(reply["seconds"])
                return self._json(200, completion(reply, body, gateway.cost))

            def _drip(self, seconds: float) -> None:
                """Bytes keep coming, so that no read ever times out, and never become a reply."""
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "100000")
                self.end_headers()
                ends = time.monotonic() + seconds
                while time.monotonic() < ends:
                    try:
                        self.wfile.write(b" ")
                        self.wfile.flush()
                    except OSError:
                        return
                    time.sleep(0.05)
                self.close_connection = True

            def _error(self, status: int, message: str, code: str, more: dict | None = None) -> None:
                body = {"error": {"message": message, "type": "lab_gateway", "code": code}}
                headers = {"Retry-After": str(more["retry_after"])} if more and "retry_after" in more else {}
                self._send(status, json.dumps(body), "application/json", headers=headers)

            def _json(self, status: int, body: dict) -> None:
                self._send(status, json.dumps(body), "application/json")

            def _send(
                self, status: int, text: str, kind: str, cut: int | None = None, headers: dict | None = None
            ) -> None:
                raw = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(raw)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw[:cut])
                if cut is not None:
                    self.close_connection = True

        return Handler


def completion(reply: dict, body: dict, cost: float | None) -> dict:
    """An OpenAI chat completion as a provider would send it, usage included."""
    message: dict = {"role": "assistant", "content": reply.get("text")}
    if "calls" in reply:
        message["tool_calls"] = [
            {
                "id": reply.get("ids", {}).get(at, f"call_{time.monotonic_ns()}_{at}"),
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for at, (name, given) in enumerate(reply["calls"])
        ]
    prompt = len(json.dumps(body["messages"])) // 4
    usage: dict = {
        "prompt_tokens": prompt,
        "completion_tokens": 40,
        "total_tokens": prompt + 40,
        "prompt_tokens_details": {"cached_tokens": prompt // 2},
        "completion_tokens_details": {"reasoning_tokens": 10},
    }
    if cost is not None:
        usage["cost"] = cost
    finish = reply.get("finish", "tool_calls" if "calls" in reply else "stop")
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


def broken(messages: list[dict]) -> str:
    """Why a provider would refuse these messages; '' if not. Written apart from the harness's own check."""
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"message {at}: orphan tool result"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"message {at}: {len(waiting)} tool calls have no result"
        if message["role"] == "assistant":
            waiting = [made["id"] for made in message.get("tool_calls", [])]
    return "the last tool calls have no result" if waiting else ""
