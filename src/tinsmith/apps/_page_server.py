"""The server of a live page: on 127.0.0.1 only, with the standard library; one HTML file without external resources.

It answers only its own page: other sites open in the browser can neither read from it nor send it requests. Each
connection carries one request, which is limited in size and duration, and the number of connections is limited, so that
no client can stop the training. Every request is answered, and nothing is printed.
"""

from __future__ import annotations

import io
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from .._errors import InputError, refusal
from .._untrusted import parse_json
from ._files import as_json
from ._requests import BUSY, CLOSED_TO_OTHERS, CONNECTIONS, HOST, READ_SECONDS, explain_foreign_request

_STYLE = Path(__file__).with_name("page.css")
_STYLE_HERE = "/* style of all pages */"  # the mark in a page that is replaced by the shared style
_WISHES = ("pause", "resume", "retrain", "stop")
_BODY_BYTES = 1000
_REQUEST_BYTES = 1 << 15
_WRITE_SECONDS = 30.0  # for sending an answer, which may go through ssh
_PICTURES = {".png": "image/png", ".gif": "image/gif"}
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "script-src 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ]
)


@dataclass(frozen=True)
class Wish:
    """A request of the page: "pause", "resume", "stop", or "retrain" for a block."""

    name: str
    row: int = 0
    column: int = 0


class Shown(Protocol):
    """Provides what the page shows. Called from many threads."""

    def describe(self) -> dict[str, Any]: ...

    def get_picture(self, name: str) -> bytes | None: ...

    def wish(self, wish: Wish) -> str: ...


@contextmanager
def serve_page(shown: Shown, page: Path, port: int) -> Iterator[str]:
    """Enter a context that serves an HTML page on a port, and yields its address. Raise InputError if the port is
    taken.
    """
    try:
        server = _Server((HOST, port), _Handler)
    except (OSError, OverflowError) as cause:
        rows = [("port", str(port)), ("because", str(cause))]
        remedy = "Name another port; 0 picks a free one."
        raise InputError(refusal("the page cannot be served", rows, remedy)) from cause
    server.shown, server.page = shown, page
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    shown: Shown
    page: Path

    def __init__(self, *arguments: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Each connection takes a file descriptor, which the training may need.
        if len(self._open) >= CONNECTIONS:
            request.settimeout(READ_SECONDS)
            request.sendall(BUSY)
            self.shutdown_request(request)
        else:
            self._open.add(request)
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections: the terminal shows the training's progress, and a closed page is no error."""


class _Refusal(Exception):
    """Ends a request with an answer: a status code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Request(io.RawIOBase):
    """The bytes of one request. Raises _Refusal if there are too many, or if they arrive too late."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end = time.monotonic() + READ_SECONDS
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._bytes >= _REQUEST_BYTES:
            raise _Refusal(431, f"a request has at most {_REQUEST_BYTES:,} bytes")
        count = self.receive_into(buffer)
        self._bytes += count
        return count

    def receive_into(self, buffer: Any) -> int:
        # With a limit for each read, a client could send single bytes forever.
        self._connection.settimeout(max(self._end - time.monotonic(), 0.001))
        try:
            return self._connection.recv_into(buffer)
        except TimeoutError:
            # Browsers connect in advance, and would take this answer for that to their next request.
            if not self._bytes:
                raise
            raise _Refusal(408, f"a request must be complete after {READ_SECONDS:g} s") from None


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]  (no other server has this handler)
    # Answers of HTTP/0.9 have neither a status nor headers, so its requests are refused in HTTP/1.0.
    default_request_version = request_version = "HTTP/1.0"
    # For answers to requests without a complete first line.
    command = requestline = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._request = _Request(self.connection)
        self.rfile = io.BufferedReader(self._request)

    def handle(self) -> None:
        """Answer one request. The connection is closed afterwards, whatever else the client sends."""
        try:
            self.handle_one_request()
        except _Refusal as refused:
            self._tell(refused.code, {"trouble": str(refused)})
        except OSError:
            # The client is gone.
            pass
        except Exception as error:  # noqa: BLE001  (the page shows it; the training goes on)
            self._tell(500, {"trouble": f"{type(error).__name__}: {error}"})

    def finish(self) -> None:
        super().finish()
        # Closing a connection with unread input resets it, and the client may lose the answer.
        with suppress(OSError, _Refusal):
            self.connection.shutdown(socket.SHUT_WR)
            while self._request.receive_into(bytearray(1 << 16)):
                pass

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.headers.defects or "\0" in self.requestline + "".join(self.headers.values()):
            # Python's parser ends the headers at an invalid line, and ignores the rest.
            raise _Refusal(400, "a line of the headers is invalid")
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        trouble = explain_foreign_request(hosts, origins, self.server.server_port)
        if trouble:
            raise _Refusal(403, trouble)
        return True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(200, "text/html; charset=utf-8", _read_page(self.server.page))
        elif path == "/state":
            self._tell(200, self.server.shown.describe())
        else:
            name, kind = path.removeprefix("/")[:-4], _PICTURES.get(path[-4:])
            shown = self.server.shown.get_picture(name) if kind else None
            if kind is None or shown is None:
                raise _Refusal(404, f"there is nothing at {path}")
            self._answer(200, kind, shown)

    def do_POST(self) -> None:
        name = self.path.removeprefix("/")
        if name not in _WISHES:
            raise _Refusal(404, f"there is no request {name!r}")
        body = self._read_body()
        trouble = self.server.shown.wish(_block(body) if name == "retrain" else Wish(name))
        self._tell(409 if trouble else 200, {"trouble": trouble})

    def _read_body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [] if "Transfer-Encoding" in self.headers else ["0"])
        if not lengths:
            raise _Refusal(411, "a body needs a Content-Length; chunks are not read")
        if len(lengths) > 1 or "Transfer-Encoding" in self.headers or not re.fullmatch("[0-9]+", lengths[0]):
            raise _Refusal(400, "expected one Content-Length, a number of bytes")
        if len(lengths[0]) > len(str(_BODY_BYTES)) or int(lengths[0]) > _BODY_BYTES:
            raise _Refusal(413, f"a body has at most {_BODY_BYTES:,} bytes")
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            raise _Refusal(400, f"the body ended after {len(body)} bytes of {lengths[0]}")
        return body

    def _tell(self, code: int, value: dict[str, Any]) -> None:
        self._answer(code, "application/json", as_json(value).encode())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.connection.settimeout(_WRITE_SECONDS)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": _POLICY,
        }
        with suppress(OSError):
            self.send_response(code)
            for name, value in (headers | CLOSED_TO_OTHERS).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is the library's)
        """Print nothing: the terminal shows the training's progress."""


def _read_page(page: Path) -> bytes:
    """Return an HTML page with the style inserted that all pages share."""
    text, style = (one.read_text(encoding="utf-8") for one in (page, _STYLE))
    return text.replace(_STYLE_HERE, style).encode()


def _block(body: bytes) -> Wish:
    try:
        message = parse_json(body.decode())
        return Wish("retrain", int(message["row"]), int(message["column"]))
    except (KeyError, TypeError, ValueError):
        raise _Refusal(400, 'say which block: {"row": 0, "column": 0}') from None
