"""Viser's server, closed to other sites, with a page of our title that suits phones.

Viser 1.1.1 accepts a WebSocket from any origin and under any host name, and has no option for it: every website that
its user visits could read the scene and press its buttons. It calls `websockets.asyncio.server.serve`, whose documented
options can refuse requests; viser passes none of them on. So that function is replaced while viser starts; this is the
only private fact about viser that tinsmith's safety relies on. `_require_protection` checks it with foreign requests:
if a version of viser starts in another way, it is stopped, never served unprotected.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from html import escape
from http.client import HTTPConnection, HTTPException
from typing import Any

from ..._errors import ConfigError, InputError, refusal
from ..._extras import missing_package
from .._requests import BUSY, CLOSED_TO_OTHERS, CONNECTIONS, HOST, READ_SECONDS, explain_foreign_request

_MESSAGE_BYTES = 1 << 20  # the page sends only its camera and its buttons
_BACKLOG = 64  # asyncio accepts so many connections at once before they are counted
_TITLE = b"<title>Viser</title>"
# Viser's panel for narrow windows leaves a third of the width unused, and its buttons are too low for a finger.
_PHONES = """<style>@media (max-width: 36em) {
  [style*="width: 20em"] { width: 100% !important; }
  .mantine-Button-root { min-height: 40px; }
}</style>"""


@contextmanager
def serve_viser(title: str, port: int) -> Iterator[Any]:
    """Enter a context that runs a `viser.ViserServer` which answers only its own page; yield the server.

    Raises:
        ConfigError: viser is not installed, or this version cannot be protected.
        InputError: the port is taken.
    """
    try:
        # Slow to load, and in an extra.
        import viser
    except ImportError as error:
        raise missing_package("the viewer", "view", "viser", "leave out --view") from error
    _require_free(port)
    connections = _Connections()
    with _silence(), _protection(connections, f"viser-v{viser.__version__}", title):
        server = viser.ViserServer(host=HOST, port=port, label=title, verbose=False)
    try:
        # A client's message could make viser open a tunnel to the internet.
        server.request_share_url = lambda *_, **__: None
        _require_protection(server.get_port(), viser.__version__)
        yield server
    finally:
        with _silence():
            connections.close()
            server.stop()


class _Connections(set[Any]):
    """The open connections of a server, which can all be aborted."""

    is_closed = False

    def close(self) -> None:
        """Abort all connections, also later ones: viser would wait for clients that do not answer."""
        self.is_closed = True
        for connection in list(self):
            connection.loop.call_soon_threadsafe(connection.transport.abort)


@contextmanager
def _protection(connections: _Connections, protocol: str, title: str) -> Iterator[None]:
    """Make each `websockets` server that a `with` block starts refuse other sites, give its page a title, and record
    its connections.
    """
    from websockets.asyncio import server

    serve = server.serve

    class Connection(server.ServerConnection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # Each connection takes a file descriptor, which the training may need.
            if connections.is_closed or len(connections) >= CONNECTIONS:
                transport.write(BUSY)
                transport.close()
            else:
                connections.add(self)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.discard(self)
            super().connection_lost(exc)

    def serve_protected(*arguments: Any, process_request: Callable[[Any, Any], Any], **options: Any) -> Any:
        # Do not print clients' errors: the terminal shows the training's progress.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        options |= {
            "process_request": _refuse_others(process_request, protocol, title),
            "create_connection": Connection,
            "logger": logging.Logger("tinsmith.viewer", logging.CRITICAL + 1),
            "open_timeout": READ_SECONDS,
            "max_size": _MESSAGE_BYTES,
            "backlog": _BACKLOG,
        }
        return serve(*arguments, **options)

    server.serve = serve_protected
    try:
        yield
    finally:
        server.serve = serve


def _refuse_others(process_request: Callable[[Any, Any], Any], protocol: str, title: str) -> Callable[[Any, Any], Any]:
    """Wrap the callback that answers HTTP requests so that it refuses foreign ones, including the first one of a
    WebSocket, and gives the page a title.
    """

    def answer(connection: Any, request: Any) -> Any:
        hosts, origins, protocols = map(request.headers.get_all, ("Host", "Origin", "Sec-WebSocket-Protocol"))
        trouble = explain_foreign_request(hosts, origins, connection.local_address[1])
        if trouble:
            response = connection.respond(403, trouble + "\n")
        elif "Upgrade" in request.headers and protocols != [protocol]:
            # Viser would print that it closes the connection.
            response = connection.respond(400, f"expected the protocol {protocol}; reload the page\n")
        else:
            response = process_request(connection, request)
        if response is not None:
            if response.headers.get("Content-Type", "").startswith("text/html"):
                _adapt_page(response, title)
            response.headers.update(CLOSED_TO_OTHERS)
        return response

    return answer


def _adapt_page(response: Any, title: str) -> None:
    """Give viser's page a title and a style for phones. Viser 1.1.1 has options for neither."""
    is_packed = response.headers.get("Content-Encoding") == "gzip"
    page = gzip.decompress(response.body) if is_packed else response.body
    page = page.replace(_TITLE, f"<title>{escape(title)}</title>{_PHONES}".encode(), 1)
    response.body = gzip.compress(page) if is_packed else page
    del response.headers["Content-Length"]
    response.headers["Content-Length"] = str(len(response.body))


def _require_protection(port: int, version: str) -> None:
    """Raise ConfigError unless the server refuses a foreign host name and a WebSocket from a foreign site."""
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGluc21pdGggdmlld2VyIQ==",
    }
    for headers in ({"Host": f"tinsmith.example:{port}"}, upgrade | {"Origin": "http://tinsmith.example"}):
        connection = HTTPConnection(HOST, port, timeout=READ_SECONDS)
        try:
            connection.request("GET", "/", headers=headers)
            status: object = connection.getresponse().status
        except (OSError, HTTPException) as cause:
            status = cause
        finally:
            connection.close()
        if status != 403:
            rows = [("viser", version), ("expected", "403 for a request of another site"), ("got", str(status))]
            remedy = "Install viser 1.1.1, or leave out --view."
            raise ConfigError(refusal("the viewer cannot be protected from other sites", rows, remedy))


def _silence() -> AbstractContextManager[object]:
    """Suppress what viser 1.1.1 prints when it starts and stops, even with `verbose=False`."""
    return redirect_stdout(io.StringIO())


def _require_free(port: int) -> None:
    """Raise InputError if the port is taken: viser would silently use the next one."""
    import socket

    try:
        with socket.create_server((HOST, port)):
            pass
    except (OSError, OverflowError) as cause:
        rows = [("port", str(port)), ("because", str(cause))]
        remedy = "Name another port; 0 picks a free one."
        raise InputError(refusal("the viewer cannot be served", rows, remedy)) from cause
