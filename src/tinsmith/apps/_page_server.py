"""The server of a live page: on 127.0.0.1 only, with the standard library; one HTML file without external resources.

It answers only its own page: other sites open in the browser can neither read from it nor send it requests.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from .._errors import InputError, refusal

_STYLE = Path(__file__).with_name("page.css")
_STYLE_HERE = "/* style of all pages */"  # in a page: what all of them share goes here
_HOST = "127.0.0.1"
_WISHES = ("pause", "resume", "retrain", "stop")
_MOST = 1000  # bytes of a request
_PICTURES = {".png": "image/png", ".gif": "image/gif"}
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "script-src 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
    ]
)


@dataclass(frozen=True)
class Wish:
    """A request of the page: "pause", "resume", "stop", or "retrain" for a block."""

    name: str
    row: int = 0
    column: int = 0


class Shown(Protocol):
    """The source of what the page shows; called from many threads."""

    def describe(self) -> dict[str, Any]: ...

    def get_picture(self, name: str) -> bytes | None: ...

    def wish(self, wish: Wish) -> str: ...


@contextmanager
def serving(shown: Shown, page: Path, port: int) -> Iterator[str]:
    """Within, serve the page, an HTML file; yields its address. Raises InputError if the port is taken."""
    try:
        server = _Server((_HOST, port), _Handler)
    except (OSError, OverflowError) as cause:
        rows = [("port", str(port)), ("because", str(cause))]
        remedy = "Name another port; 0 picks a free one."
        raise InputError(refusal("the page cannot be served", rows, remedy)) from cause
    server.shown, server.page = shown, page
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    shown: Shown
    page: Path


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]  (no other server has this handler)
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self._is_ours():
            return
        if path == "/":
            self._answer(200, "text/html; charset=utf-8", _read_page(self.server.page))
        elif path == "/state":
            self._tell(200, self.server.shown.describe())
        else:
            name, kind = path.removeprefix("/")[:-4], _PICTURES.get(path[-4:])
            shown = self.server.shown.get_picture(name) if kind else None
            if kind is None or shown is None:
                self._tell(404, {"trouble": f"there is nothing at {path}"})
            else:
                self._answer(200, kind, shown)

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST))
        name = self.path.removeprefix("/")
        if not self._is_ours():
            return
        if name not in _WISHES:
            self._tell(404, {"trouble": f"there is no wish {name!r}"})
            return
        try:
            wish = _block(json.loads(body)) if name == "retrain" else Wish(name)
        except (KeyError, TypeError, ValueError):
            self._tell(400, {"trouble": 'say which block: {"row": 0, "column": 0}'})
            return
        trouble = self.server.shown.wish(wish)
        self._tell(409 if trouble else 200, {"trouble": trouble})

    def _is_ours(self) -> bool:
        """Whether the request comes from our own page, not from another site or under a foreign name."""
        own = [f"{host}:{self.server.server_port}" for host in (_HOST, "localhost")]
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in own and origin in (None, *(f"http://{name}" for name in own)):
            return True
        self._tell(403, {"trouble": "only the page itself may ask"})
        return False

    def _tell(self, code: int, value: dict[str, Any]) -> None:
        self._answer(code, "application/json", json.dumps(_finite(value)).encode())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", _POLICY),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is the library's)
        """Say nothing: the terminal shows the training's progress."""


def _read_page(page: Path) -> bytes:
    """A page with the style that all of them share."""
    text, style = (one.read_text(encoding="utf-8") for one in (page, _STYLE))
    return text.replace(_STYLE_HERE, style).encode()


def _block(message: dict[str, int]) -> Wish:
    return Wish("retrain", int(message["row"]), int(message["column"]))


def _finite(value: Any) -> Any:
    """JSON has neither nan nor infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    return [_finite(held) for held in value] if isinstance(value, (list, tuple)) else value
