"""The live page: what the server tells and takes, and the page itself in headless Chromium."""

from __future__ import annotations

import io
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from PIL import Image

from support.folders import read_contents
from support.live_page import ask, read_state, send_wish, visit_meanwhile, wait_for
from tinsmith import InputError
from tinsmith.apps.learn_image import learn_image, live_page

from .conftest import ARRAY, GRID

STEPS = 1_000_000  # more than it ever takes: the page ends the run


def params(live):
    return live._training.learner.trainer.model.params.detach().clone()


def visit_run(options, visit, say=lambda words: None):
    """Run with a live page on which `visit(live)` acts, and return the run's outcome."""
    with live_page(say=say) as live, visit_meanwhile(live, lambda: visit(live)):
        return learn_image(options, live=live)


# The server ----------------------------------------------------------------------------------


def test_the_server_reports_the_state_of_the_run(learning):
    def visit(live):
        state = wait_for(live.url, lambda state: state.get("step", 0) > 3)
        assert state["photograph"] == "disc.png" and state["grid_shape"] == [3, 5] and state["steps"] == STEPS
        assert state["rows"] == [0, 12, 24, 36] and len(state["columns"]) == 6 and len(state["psnr_by_block"]) == 15
        assert state["curve"][-1] == [state["step"], state["psnr"]]
        for name in ("photo", "learned", "error"):
            code, kind, body = ask(live.url, f"{name}.png?version=3")
            assert (code, kind) == (200, "image/png")
            with Image.open(io.BytesIO(body)) as image:
                assert image.size == (48, 36)
        code, kind, body = ask(live.url, "")
        assert code == 200 and kind.startswith("text/html") and b"<!doctype html>" in body
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"") and b"https://" not in body

    reached = visit_run(learning(ARRAY, steps=STEPS), visit)
    assert reached.interrupted and 3 < reached.step < STEPS
    assert (learning().out / "learned.png").is_file()


def test_a_run_can_be_paused_and_resumed(learning):
    def visit(live):
        wait_for(live.url, lambda state: state.get("step", 0) > 0)
        assert send_wish(live.url, "pause") == (200, "")
        paused = wait_for(live.url, lambda state: state["status"] == "paused")
        threading.Event().wait(0.3)
        assert read_state(live.url)["step"] == paused["step"]
        assert send_wish(live.url, "resume") == (200, "")
        wait_for(live.url, lambda state: state["status"] == "learning" and state["step"] > paused["step"])

    assert visit_run(learning(GRID, steps=STEPS), visit).interrupted


def test_retraining_a_block_leaves_the_others_unchanged(learning):
    def visit(live):
        wait_for(live.url, lambda state: state.get("step", 0) > 2)
        send_wish(live.url, "pause")
        wait_for(live.url, lambda state: state["status"] == "paused")
        before = params(live)
        assert send_wish(live.url, "retrain", row=2, column=1) == (200, "")
        state = wait_for(live.url, lambda state: state["retrained"] is not None and state["status"] == "paused")
        changed = (params(live) != before).flatten(1).any(1)
        assert changed.nonzero().flatten().tolist() == [2 * 5 + 1]
        assert state["retrained"]["after"] > state["retrained"]["before"]
        assert (state["retrained"]["row"], state["retrained"]["column"]) == (2, 1)
        code, trouble = send_wish(live.url, "retrain", row=3, column=1)
        assert code == 409 and trouble == "there is no block in row 3, column 1"

    visit_run(learning(ARRAY, steps=STEPS), visit)


@pytest.mark.costly
def test_files_are_written_after_the_last_step_while_the_page_stays(learning):
    before = {}

    def visit(live):
        state = wait_for(live.url, lambda state: state["status"] == "done")
        assert state["folder"] == str(learning().out) and state["is_unwritten"] is False
        before.update(read_contents(learning().out))
        assert send_wish(live.url, "retrain", row=0, column=0) == (200, "")
        state = wait_for(live.url, lambda state: state["retrained"] is not None)
        assert state["is_unwritten"] is True
        assert send_wish(live.url, "stop") == (200, "")

    said = []
    reached = visit_run(learning(ARRAY, steps=3), visit, said.append)
    assert reached.step == 3 and not reached.interrupted
    # The folder was still the run's own then.
    assert set(before) == {".run.lock", *(path.name for path in reached.files)}
    assert len(said) == 1 and str(learning().out) in said[0] and "Ctrl-C" in said[0]
    after = read_contents(learning().out)
    changed = {"learned.png", "error.png", "comparison.png", "learning.gif", "checkpoint.safetensors", "summary.json"}
    assert {name for name in after if after[name] != before[name]} >= changed  # trained since, written again
    assert learn_image(learning(ARRAY, steps=5, resume=True)).step == 5  # of unequal counts of steps by now


def test_a_visitor_does_not_change_the_result(learning, tmp_path):
    """Looking at it costs time, and nothing else."""

    def visit(live):
        wait_for(live.url, lambda state: state["status"] == "done")

    visit_run(learning(ARRAY, steps=20, out=tmp_path / "watched"), visit)
    learn_image(learning(ARRAY, steps=20, out=tmp_path / "alone"))
    pictures = [(tmp_path / name / "learned.png").read_bytes() for name in ("watched", "alone")]
    assert pictures[0] == pictures[1]


def test_written_files_are_not_written_again(learning):
    learn_image(learning(ARRAY, steps=3))
    before = {path: path.stat().st_mtime_ns for path in learning().out.iterdir()}

    def visit(live):
        wait_for(live.url, lambda state: state["status"] == "done")

    assert visit_run(learning(ARRAY, steps=2, resume=True), visit).files == ()
    assert {path: path.stat().st_mtime_ns for path in learning().out.iterdir()} == before


def test_the_page_hears_of_the_end_before_the_server_stops(learning):
    states = []

    def visit(live):
        wait_for(live.url, lambda state: state["status"] == "done")
        send_wish(live.url, "stop")
        states.append(wait_for(live.url, lambda state: state["status"] == "ended"))

    assert not visit_run(learning(GRID, steps=2), visit).interrupted
    assert states[0]["interrupted"] is False and states[0]["folder"] == str(learning().out)


def test_one_network_has_no_blocks(learning):
    def visit(live):
        wait_for(live.url, lambda state: state.get("step", 0) > 0)
        code, trouble = send_wish(live.url, "retrain", row=0, column=0)
        assert code == 409 and trouble == "this is one network: it has no blocks"

    visit_run(learning(GRID, steps=STEPS), visit)


def test_the_server_refuses_invalid_requests():
    with live_page() as live:
        assert read_state(live.url)["status"] == "starting"
        assert ask(live.url, "photo.png")[0] == ask(live.url, "../secret")[0] == 404
        assert ask(live.url, "solder", body=b"{}")[0] == 404
        assert ask(live.url, "retrain", body=b"[]")[0] == ask(live.url, "retrain", body=b"{")[0] == 400
        assert ask(live.url, "retrain", body=b'{"row": 1}')[0] == 400
        assert ask(live.url, "state", headers={"Host": "tinsmith.example"})[0] == 403
        assert ask(live.url, "pause", body=b"", headers={"Origin": "https://example.com"})[0] == 403
        assert ask(live.url, "pause", body=b"", headers={"Origin": live.url.rstrip("/")})[0] == 200
        assert live.url.startswith("http://127.0.0.1:")
        port = int(live.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(InputError, match="the page cannot be served") as refused, live_page(port):
            pass
        assert str(port) in str(refused.value)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(live.url, timeout=5)


# The page ------------------------------------------------------------------------------------


def test_the_page_before_the_first_step(browse):
    from playwright.sync_api import expect

    with live_page() as live, browse(live.url, width=1280, height=900) as page:
        expect(page.locator("#status")).to_have_text("starting")
        assert page.locator(".waiting").count() == 3
        assert not any(page.locator(f"#{name}").is_visible() for name in ("learned", "error", "photo"))
        assert page.complaints == []


def _step(page):
    return int(page.inner_text("#step").split("/")[0])


def _shown(page, name):
    """Return the pixels of a picture as the browser has it."""
    return np.array(
        page.evaluate(
            """name => {
                const image = document.getElementById(name), canvas = document.createElement("canvas");
                canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
                const context = canvas.getContext("2d");
                context.drawImage(image, 0, 0);
                return Array.from(context.getImageData(0, 0, canvas.width, canvas.height).data);
            }""",
            name,
        )
    ).reshape(36, 48, 4)[..., :3]


def test_the_page_shows_and_controls_the_run(learning, browse):
    from playwright.sync_api import expect

    def visit(live):
        with browse(live.url, width=1280, height=900) as page:
            status, said = page.locator("#status"), page.locator("#said")
            expect(status).to_have_text("learning")
            expect(said).to_contain_text("Click a block")
            page.click("text=Pause")
            expect(status).to_have_text("paused")
            expect(page.locator("#pause")).to_have_text("Resume")
            step, before, learned, error = _step(page), params(live), _shown(page, "learned"), _shown(page, "error")
            box = page.locator("#learned-frame").bounding_box()
            # The middle of block 1, 3 of 3 x 5.
            page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.5)
            expect(page.locator("#block")).to_contain_text("row 1, column 3")
            page.mouse.down()
            page.mouse.up()
            expect(said).to_contain_text("after 200 steps of its own")
            expect(status).to_have_text("paused")
            changed = (params(live) != before).flatten(1).any(1)
            assert changed.nonzero().flatten().tolist() == [1 * 5 + 3]
            for name, was in (("learned", learned), ("error", error)):
                rows, columns = (_shown(page, name) != was).any(-1).nonzero()
                assert len(rows) and set(rows) <= set(range(12, 24)) and set(columns) <= set(range(29, 38))
            assert _step(page) == step
            page.click("text=Resume")
            expect(status).to_have_text("learning")
            page.wait_for_timeout(800)
            assert _step(page) > step
            assert "L" in page.get_attribute("#curve path", "d")
            page.focus("#error-frame")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowDown")
            expect(page.locator("#block")).to_contain_text("row 1, column 0")
            page.click("text=Stop and write")
            expect(status).to_have_text("stopped")
            expect(said).to_have_text(
                f"Stopped at step {_step(page)}: the files are in {learning().out}. You can close this page."
            )
            expect(page.locator("#stop")).to_be_disabled()
            assert (learning().out / "learned.png").is_file()
            page.wait_for_timeout(4000)  # by now the server is gone
            expect(said).to_contain_text("You can close this page")
            assert page.complaints == []

    assert visit_run(learning(ARRAY, steps=STEPS), visit).interrupted


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_window(learning, browse, width):
    from playwright.sync_api import expect

    def visit(live):
        with browse(live.url, width=width, height=800) as page:
            expect(page.locator("#status")).to_have_text("learning")
            expect(page.locator("#configuration")).to_have_text("configuration: one network")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            boxes = [page.locator(f"#{name}").bounding_box() for name in ("learned", "error", "photo")]
            assert all(box["width"] > 200 and box["x"] + box["width"] <= width for box in boxes)
            assert (boxes[0]["y"] == boxes[1]["y"]) == (width == 1280)
            assert page.complaints == []

    visit_run(learning(GRID, steps=STEPS), visit)


def test_the_page_says_that_the_run_has_ended(learning, browse):
    from playwright.sync_api import expect

    over = threading.Event()

    def visit(live):
        with browse(live.url, width=1280, height=900) as page:
            said = page.locator("#said")
            expect(page.locator("#status")).to_have_text("done")
            expect(page.locator("#stop")).to_have_text("Finish")
            expect(said).to_contain_text(f"the files are in {learning().out}")
            expect(said).to_contain_text("Click a block")
            page.locator("#learned-frame").click()
            expect(page.locator("#stop")).to_have_text("Finish and write")
            page.click("#stop")
            expect(page.locator("#status")).to_have_text("finished")
            expect(said).to_have_text(f"Finished: the files are in {learning().out}. You can close this page.")
            over.set()
            expect(page.locator("#stop")).to_be_disabled()

    reached = visit_run(learning(ARRAY, steps=2), visit)
    assert over.is_set() and not reached.interrupted and torch.isfinite(torch.tensor(reached.psnr))
