"""A simulation on a page: its films, its loss, and what the page wants."""

from __future__ import annotations

import io
import re
import threading

import pytest
from PIL import Image

from support.live_page import ask, read_state, send_wish, visit_meanwhile, wait_for
from tinsmith.apps.simulate import SimulateOptions, live_page, simulate

STEPS = 100_000  # more than it ever takes: the page ends the run


@pytest.fixture
def options(tmp_path):
    def make(iterations=STEPS, **given):
        return SimulateOptions(tmp_path / "out", "wave-source", steps=20, iterations=iterations, **given)

    return make


def visit_run(options, visit):
    """Run with a live page on which `visit(live)` acts, and return the run's outcome."""
    with live_page() as live, visit_meanwhile(live, lambda: visit(live)):
        return simulate(options, live=live)


def test_the_page_gets_films_and_losses_and_stops_the_run(options):
    def visit(live):
        state = wait_for(live.url, lambda state: state.get("step", 0) > 3)
        assert state["simulation"] == "wave-source" and state["steps"] == STEPS and state["time_steps"] == 20
        assert len(state["curve"]) == state["step"] and state["curve"][-1] == state["loss"]
        assert "%" in state["now"] and "%" in state["before"]
        for name in ("now", "before"):
            code, kind, body = ask(live.url, f"{name}.gif?version=3")
            assert (code, kind) == (200, "image/gif")
            with Image.open(io.BytesIO(body)) as film:
                assert film.n_frames > 5
        code, kind, body = ask(live.url, "")
        assert code == 200 and kind.startswith("text/html") and b"http" not in body.replace(b"http-equiv", b"")
        assert ask(live.url, "now.png")[0] in (200, 404) and ask(live.url, "then.gif")[0] == 404

    reached = visit_run(options(), visit)
    assert reached.interrupted and 3 < reached.step < STEPS
    assert (options().out / "simulation.gif").is_file()


@pytest.mark.costly
def test_a_run_can_be_paused_and_has_no_blocks(options):
    def visit(live):
        wait_for(live.url, lambda state: state.get("step", 0) > 0)
        assert send_wish(live.url, "retrain", row=0, column=0) == (409, "this page has no request 'retrain'")
        assert send_wish(live.url, "pause") == (200, "")
        paused = wait_for(live.url, lambda state: state["status"] == "paused")
        threading.Event().wait(0.3)
        assert read_state(live.url)["step"] == paused["step"]
        assert send_wish(live.url, "resume") == (200, "")
        wait_for(live.url, lambda state: state["step"] > paused["step"])

    assert visit_run(options(), visit).interrupted


@pytest.mark.costly
def test_a_visitor_does_not_change_the_result(options, tmp_path):
    def files(run):
        return {name: (run.out / name).read_bytes() for name in ("simulation.gif", "checkpoint.safetensors")}

    alone = options(iterations=4)
    simulate(alone)
    wanted = files(alone)
    watched = SimulateOptions(tmp_path / "watched", "wave-source", steps=20, iterations=4)
    assert not visit_run(watched, lambda live: wait_for(live.url, lambda state: state["status"] == "done")).interrupted
    assert files(watched) == wanted


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_in_a_browser(options, browse, width):
    from playwright.sync_api import expect

    def visit(live):
        wait_for(live.url, lambda state: state.get("step", 0) > 3)
        with browse(live.url, width=width, height=900) as page:
            expect(page.locator("#status")).to_have_text("learning")
            expect(page.locator("#now")).to_be_visible()
            expect(page.locator("#before")).to_be_visible()
            expect(page.locator("#curve path")).to_have_attribute("d", re.compile("M.*L"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.click("#stop")
            expect(page.locator("#status")).to_have_text("stopped")
            assert page.complaints == []

    assert visit_run(options(), visit).interrupted
