"""A visitor on a live page: what its server tells and takes, and the page itself in headless Chromium."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from tinsmith.apps._page_server import Wish

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def open_page(url, **viewport):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=viewport)
        page.set_default_timeout(20_000)
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith((url, "data:")) or page.complaints.append(request.url)
        )
        page.goto(url)
        yield page
        browser.close()


def ask(url, path, *, body=None, headers=()):
    """Send a request; return status, content type and body of the answer."""
    request = urllib.request.Request(url + path, data=body, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def read_state(url):
    return json.loads(ask(url, "state")[2])


def send_wish(url, name, **body):
    code, _, answer = ask(url, name, body=json.dumps(body).encode())
    return code, json.loads(answer)["trouble"]


def wait_for(url, met):
    for _ in range(2400):  # two minutes: kernels are compiled meanwhile, on a machine that may be busy
        state = read_state(url)
        if met(state):
            return state
        threading.Event().wait(0.05)
    raise AssertionError(f"it never came to that: {state}")


@contextmanager
def visit_meanwhile(live, visit):
    """Enter a context in which a visitor is on the page, in another thread; its errors are raised here."""
    trouble = []

    def go():
        try:
            visit()
        except BaseException as error:  # noqa: BLE001  (raised again below)
            trouble.append(error)
        finally:
            live.wish(Wish("stop"))

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if trouble:
        raise trouble[0]


@pytest.fixture
def browse():
    pytest.importorskip("playwright", reason="playwright, of the extra `dev`, drives the browser")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    return open_page
