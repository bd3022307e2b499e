"""Requests to a page on this machine: which ones come from the page itself, and the limits for `--live` and `--view`.

Every program and every website of this machine's user can reach a page on 127.0.0.1. A browser reports the site that
asks as `Origin`, and the name under which it found the server as `Host`: a foreign name is an attack by DNS rebinding.
Programs other than browsers send no `Origin`; they can do no more than the user who runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

HOST = "127.0.0.1"
CONNECTIONS = 32
"""The maximum number of connections to one page at a time; a browser opens up to six for a tab."""
READ_SECONDS = 5.0
"""The time limit for reading a whole request; also for the handshake of a WebSocket."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n\r\ntoo many connections\n"
"""The answer to a connection beyond `CONNECTIONS`."""
CLOSED_TO_OTHERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of each answer that keep other sites from showing it as a picture or in a frame, where they could intercept
clicks.
"""


def explain_foreign_request(hosts: Sequence[str], origins: Sequence[str], port: int) -> str:
    """Return why a request does not come from the page on this port, or an empty string if it does.

    Args:
        hosts: the values of its `Host` headers; there must be one.
        origins: the values of its `Origin` headers; there may be one.
        port: the server's port.
    """
    # Browsers omit the default port of HTTP.
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
