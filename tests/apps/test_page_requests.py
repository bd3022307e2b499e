"""Requests to the pages of `--live` and `--view` from elsewhere, and broken ones, byte by byte."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from tinsmith import ConfigError
from tinsmith.apps import _page_server
from tinsmith.apps._requests import CONNECTIONS
from tinsmith.apps.learn_image import live_page
from tinsmith.apps.scenes import _viser_server, viewer_page

OWN = "Host: 127.0.0.1:PORT"
GET = "GET / HTTP/1.1"
PAUSE = f"POST /pause HTTP/1.1\n{OWN}\n"
UPGRADE = "Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\n"
UPGRADE += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: viser-vVERSION"

# Headers, and the status that both pages answer.
SITES = [
    (OWN, 200),
    ("Host: localhost:PORT", 200),
    ("Host: LOCALHOST:PORT", 200),
    ("Host: [::1]:PORT", 200),
    (f"{OWN}\nOrigin: http://127.0.0.1:PORT", 200),
    (f"{OWN}\nOrigin: http://localhost:PORT", 200),
    ("Accept: */*", 403),
    ("Host: tinsmith.example:PORT", 403),
    ("Host: 127.0.0.1:1", 403),
    ("Host: localhost", 403),
    ("Host: 0.0.0.0:PORT", 403),
    ("Host: 127.0.0.1:PORT.example", 403),
    ("Host: 127.0.0.1:PORT@example", 403),
    (f"{OWN}\nHost: tinsmith.example", 403),
    (f"{OWN}\nOrigin: http://tinsmith.example", 403),
    (f"{OWN}\nOrigin: null", 403),
    (f"{OWN}\nOrigin:", 403),
    (f"{OWN}\nOrigin: https://127.0.0.1:PORT", 403),
    (f"{OWN}\nOrigin: http://127.0.0.1:1", 403),
    (f"{OWN}\nOrigin: http://127.0.0.1:PORT\nOrigin: http://tinsmith.example", 403),
]
# Of the live page: a whole request, the status, and words of the answer.
BROKEN = [
    (f"{PAUSE}\n", 200, '{"trouble": ""}'),
    (f"{PAUSE}Content-Length: 2\n\n{{}}", 200, ""),
    (f"{PAUSE}Content-Length: 0\n\nPOST /stop HTTP/1.1\n{OWN}\n\n", 200, ""),
    (f"{PAUSE}Content-Length: -5\n\n{{}}", 400, "expected one Content-Length, a number of bytes"),
    (f"{PAUSE}Content-Length: +2\n\n{{}}", 400, ""),
    (f"{PAUSE}Content-Length: 0_2\n\n{{}}", 400, ""),
    (f"{PAUSE}Content-Length: 2\nContent-Length: 3\n\n{{}}", 400, ""),
    (f"{PAUSE}Content-Length: 2\nTransfer-Encoding: chunked\n\n0\n\n", 400, ""),
    (f"{PAUSE}Transfer-Encoding: chunked\n\n2\n{{}}\n0\n\n", 411, "chunks are not read"),
    (f"{PAUSE}Content-Length: 1001\n\n", 413, "at most 1,000 bytes"),
    (f"{PAUSE}Content-Length: {'9' * 5000}\n\n", 413, ""),
    (f"{PAUSE}Content-Length: 10000000\n\n{'a' * 10_000_000}", 413, ""),
    (f"{PAUSE}Content-Length: 1000\nOrigin: null\n\n", 403, "expected http://127.0.0.1:PORT or http://localhost:PORT"),
    (f"POST /retrain HTTP/1.1\n{OWN}\nContent-Length: 1000\n\n{'[' * 1000}", 400, "say which block"),
    (f'POST /retrain HTTP/1.1\n{OWN}\nContent-Length: 25\n\n{{"row":1e999, "column":1}}', 400, "say which block"),
    (f"{GET}\n{OWN}\n" + "".join(f"X-{number}: 1\n" for number in range(10_000)) + "\n", 431, ""),
    (f"{GET}\n{OWN}\nX: {'a' * 1_000_000}\n\n", 431, "at most 32,768 bytes"),
    (f"{GET}\n{OWN}\n" + f"X: {'a' * 1000}\n" * 50 + "\n", 431, ""),
    (f"GET /{'a' * 100_000} HTTP/1.1\n{OWN}\n\n", 431, ""),
    (f"{GET}\n{OWN}\nno header\nOrigin: http://tinsmith.example\n\n", 400, "a line of the headers is invalid"),
    (f"{GET}\n{OWN}\nX: \0\n\n", 400, ""),
    (f"GET /\0 HTTP/1.1\n{OWN}\n\n", 400, ""),
    ("GET /state\n\n", 403, "Host: expected"),
    (f"GET / HTTP/2.0\n{OWN}\n\n", 505, ""),
    ("\x16\x03\x01\x02\0\x01\0\x01\n\n", 400, ""),
    (f"DELETE / HTTP/1.1\n{OWN}\n\n", 501, ""),
]


def send(port, request, *, is_ended=False):
    """Send a request, in which PORT is the server's; return the answer's status and text."""
    version = getattr(sys.modules.get("viser"), "__version__", "")
    raw = request.replace("PORT", str(port)).replace("VERSION", version).replace("\n", "\r\n").encode("latin-1")
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(raw)
        if is_ended:
            client.shutdown(socket.SHUT_WR)
        # What is sent away may be reset, after its answer.
        with suppress(ConnectionResetError):
            while not answer.startswith(b"HTTP/1.1 101") and (more := client.recv(1 << 16)):
                answer += more
    return int(answer.split(b" ", 2)[1]) if answer else None, answer.decode("latin-1")


def port_of(page):
    return int(page.url.rstrip("/").rpartition(":")[2])


@pytest.fixture(params=["live", "view"])
def serve(request):
    """Serve each of the pages in turn."""
    if request.param == "view":
        pytest.importorskip("viser", reason="viser, of the extra `view`, serves the viewer")
        return lambda: viewer_page("tinsmith")
    return live_page


def test_other_sites_are_refused(serve):
    answer = ""
    with serve() as page:
        for headers, status in SITES:
            got, answer = send(port_of(page), f"{GET}\n{headers}\n\n")
            assert got == status, headers
            assert "Cross-Origin-Resource-Policy: same-origin" in answer and "X-Frame-Options: DENY" in answer
        assert f"run `ssh -L {port_of(page)}:127.0.0.1:{port_of(page)}` and open http://localhost:" in answer


def test_websockets_of_other_sites_are_refused(capfd):
    pytest.importorskip("viser", reason="viser, of the extra `view`, serves the viewer")
    with viewer_page("tinsmith") as viewer:
        for headers, status in SITES:
            got, _ = send(port_of(viewer), f"{GET}\n{headers}\n{UPGRADE}\n\n")
            assert got == (101 if status == 200 else status), headers
        other_version = UPGRADE.replace("VERSION", "0.0.1")
        status, answer = send(port_of(viewer), f"{GET}\n{OWN}\n{other_version}\n\n")
        assert status == 400 and "reload the page" in answer
        for request, *_ in BROKEN:
            with suppress(ConnectionError):  # websockets answers nothing but GET
                send(port_of(viewer), request)
        assert send(port_of(viewer), f"{GET}\n{OWN}\n\n")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_viewer_without_protection_is_not_served(monkeypatch):
    pytest.importorskip("viser", reason="viser, of the extra `view`, serves the viewer")
    monkeypatch.setattr(_viser_server, "_refuse_others", lambda process_request, *_: process_request)
    with pytest.raises(ConfigError, match="cannot be protected from other sites") as refused:
        with viewer_page("tinsmith"):
            pytest.fail("it is served")
    assert "expected  403" in str(refused.value) and "got       200" in str(refused.value)


def test_broken_requests_are_answered(capfd, monkeypatch):
    with live_page() as live:
        for request, status, words in BROKEN:
            got, answer = send(port_of(live), request)
            assert got == status and words.replace("PORT", str(port_of(live))) in answer, request[:200]
            assert answer.count("HTTP/1.") == 1
        status, answer = send(port_of(live), f"{PAUSE}Content-Length: 200\n\n{{}}", is_ended=True)
        assert status == 400 and "the body ended after 2 bytes of 200" in answer
        monkeypatch.setattr(live, "describe", lambda: 1 / 0)
        status, answer = send(port_of(live), f"GET /state HTTP/1.1\n{OWN}\n\n")
        assert status == 500 and '{"trouble": "ZeroDivisionError: division by zero"}' in answer
        assert not live._stop.is_requested
    assert capfd.readouterr() == ("", "")


def test_slow_clients_are_disconnected(serve, monkeypatch):
    for module in (_page_server, _viser_server):
        monkeypatch.setattr(module, "READ_SECONDS", 0.5)
    with serve() as page, socket.create_connection(("127.0.0.1", port_of(page)), timeout=20) as client:
        start = time.monotonic()
        try:
            while time.monotonic() < start + 10:
                client.sendall(b"G")
                time.sleep(0.1)
        except ConnectionError:
            pass
        assert time.monotonic() < start + 5
    if serve is live_page:
        with serve() as page:
            assert send(port_of(page), f"{PAUSE}Content-Length: 200\n\n{{}}")[0] == 408
            # A browser that connects in advance would take an answer for that of its next request.
            assert send(port_of(page), "") == (None, "")


def test_idle_connections_do_not_exhaust_file_descriptors(serve, monkeypatch):
    for module in (_page_server, _viser_server):
        monkeypatch.setattr(module, "READ_SECONDS", 1.0)
    with ExitStack() as stack:
        with serve() as page:
            taken = len(os.listdir("/dev/fd"))
            connect = partial(socket.create_connection, ("127.0.0.1", port_of(page)), timeout=20)
            clients = [stack.enter_context(connect()) for _ in range(150)]
            assert sum(client.recv(12) == b"HTTP/1.1 503" for client in clients) > 50
            assert len(os.listdir("/dev/fd")) < taken + len(clients) + CONNECTIONS + 10  # some are being closed
            deadline = time.monotonic() + 20
            while send(port_of(page), f"{GET}\n{OWN}\n\n")[0] == 503:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            stack.enter_context(connect())
            start = time.monotonic()
        assert time.monotonic() < start + 2  # a connection that is open does not hold it
