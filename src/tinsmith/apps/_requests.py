"""Requests to a page on this machine: which ones are the page's own, and the limits of `--live` and `--view` alike.

A page on 127.0.0.1 is reached by every program and every website of this machine's user. A browser reports the site
that asks as `Origin`, and the name under which it found the server as `Host`: a foreign name is an attack by DNS
rebinding. Programs other than browsers send no `Origin`, and are as free as the user who runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

HOST = "127.0.0.1"
CONNECTIONS = 32
"""At the same time, of one page; a browser opens up to six for a tab."""
READ_SECONDS = 5.0
"""For the whole of a request; also for the handshake of a WebSocket."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n\r\ntoo many connections\n"
"""The answer to a connection beyond `CONNECTIONS`."""
CLOSED_TO_OTHERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of each answer: other sites show it neither as a picture nor in a frame, in which a click would be theirs."""


def explain_foreign_request(hosts: Sequence[str], origins: Sequence[str], port: int) -> str:
    """Return why a request does not come from the page on this port, or an empty string if it does.

    Args:
        hosts: the values of its `Host` headers; there must be one.
        origins: the values of its `Origin` headers; there may be one.
        port: the server's.
    """
    # A browser leaves the port of http out.
    names = [name + (f":{port}" if port != 80 else "") for name in (HOST, "localhost", "[::1]")]
    own = [f"http://{name}" for name in names]
    for header, values, expected in (("Host", hosts, names), ("Origin", origins, own)):
        is_absent = header == "Origin" and not values
        if not is_absent and (len(values) != 1 or values[0].lower() not in expected):
            got = ", ".join(repr(value[:100]) for value in values[:3]) or "none"
            return (
                f"{header}: expected {' or '.join(expected)}, got {got}. Only the page itself may ask. From another "
                f"computer, run `ssh -L {port}:{HOST}:{port}` and open http://localhost:{port}/"
            )
    return ""
