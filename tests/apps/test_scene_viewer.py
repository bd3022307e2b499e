"""The viewer: what it draws for whom, and the page itself in headless Chromium."""

from __future__ import annotations

import gzip
import io
import math
import shutil
import socket
import sys
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from support.folders import read_without_times
from tinsmith import ConfigError, InputError
from tinsmith._extras import install_command
from tinsmith.apps._interrupt import Stop
from tinsmith.apps._training import Training
from tinsmith.apps.fit_scene import fit_scene
from tinsmith.apps.fit_splats import fit_splats
from tinsmith.apps.fit_splats._learner import SplatLearner
from tinsmith.apps.scenes import _viewer, viewer_page
from tinsmith.apps.scenes._dataset import read_dataset
from tinsmith.apps.scenes._viewer import _camera, _read_camera, _rotation, _widen_view

STEPS = 1_000_000  # more than it ever takes: the page ends the run
SOON = 60_000  # milliseconds: kernels are compiled meanwhile, on a machine that may be busy
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SOFTWARE = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # WebGL without a GPU


@dataclass
class Fitted:
    """An app with a viewer: the function that runs it, and options of a small run (`options(steps=5)`)."""

    run: Any
    options: Any


@pytest.fixture(params=["fit-scene", "fit-splats"])
def fitted(request):
    """Run each app that has the viewer."""
    if request.param == "fit-scene":
        return Fitted(fit_scene, request.getfixturevalue("fitting"))
    return Fitted(fit_splats, request.getfixturevalue("splatting"))


@pytest.fixture
def needs_viser():
    pytest.importorskip("viser", reason="viser, of the extra `view`, serves the viewer")


@contextmanager
def browsed(viewer, width=640, height=400):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra `dev`, drives the browser")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    own = tuple(f"{scheme}{viewer.url.removeprefix('http')}" for scheme in ("http", "ws", "blob:http"))
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SOFTWARE)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(SOON)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith((*own, "data:")) or page.complaints.append(request.url)
        )
        page.goto(viewer.url)
        yield page
        browser.close()


def visit_run(run, options, visit):
    """Run an app with a viewer while `visit(viewer)` runs in a thread of its own; return the run's outcome."""
    trouble = []

    def go(viewer):
        try:
            visit(viewer)
        except BaseException as error:  # noqa: BLE001  (raised again below)
            trouble.append(error)
        finally:
            viewer._ask_to_stop()

    with viewer_page("tinsmith") as viewer:
        thread = threading.Thread(target=go, args=(viewer,))
        thread.start()
        try:
            reached = run(options, viewer=viewer)
        finally:
            thread.join()
    if trouble:
        raise trouble[0]
    return reached


def take_screenshot(page):
    """Return the left half of the page, which has no panel, as numbers, without viser's notice about WebGL."""
    clip = {"x": 0, "y": 190, "width": 300, "height": 210}
    return np.asarray(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")).astype(float)


def wait_for(page, met):
    for _ in range(240):
        state = take_screenshot(page)
        if met(state):
            return state
        page.wait_for_timeout(250)
    raise AssertionError("it never came to that")


@pytest.mark.thinned(2)
@pytest.mark.usefixtures("needs_viser")
def test_the_camera_moves_while_training_runs(fitted, tmp_path):
    from playwright.sync_api import expect

    def visit(viewer):
        with browsed(viewer) as page:
            status = page.get_by_text("held out")
            expect(status).to_contain_text("learning", timeout=SOON)
            wait_for(page, lambda picture: picture.std() > 20)  # something is there
            page.get_by_text("Pause", exact=True).click()
            expect(status).to_contain_text("paused", timeout=SOON)
            page.wait_for_timeout(1500)  # the last picture before it
            step, before = status.inner_text(), take_screenshot(page)
            page.wait_for_timeout(500)
            assert np.abs(take_screenshot(page) - before).mean() < 1 and status.inner_text() == step
            page.mouse.move(150, 250)
            page.mouse.down()
            page.mouse.move(260, 235, steps=4)
            page.mouse.up()
            wait_for(page, lambda picture: np.abs(picture - before).mean() > 5)  # from elsewhere
            page.screenshot(path=str(tmp_path / "viewer.png"))
            page.get_by_label("Shows").click()
            page.get_by_text("opacity").last.click()
            wait_for(page, lambda picture: np.abs(picture - picture.mean(-1, keepdims=True)).max() < 30)  # gray
            page.get_by_text("Resume", exact=True).click()
            expect(status).to_contain_text("learning", timeout=SOON)
            page.get_by_text("Stop and write").click()
            expect(status).to_contain_text("you can close this page", timeout=SOON)
            assert page.complaints == []

    reached = visit_run(fitted.run, fitted.options(steps=STEPS), visit)
    assert reached.interrupted and 0 < reached.step < STEPS
    assert (fitted.options().out / "turntable.gif").is_file()
    with Image.open(tmp_path / "viewer.png") as image:
        assert image.size == (640, 400)


@pytest.mark.usefixtures("needs_viser")
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_the_tab_has_the_title(encoding):
    with viewer_page("tinsmith fit-<scene>") as viewer:
        request = urllib.request.Request(viewer.url, headers={"Accept-Encoding": encoding})
        with urllib.request.urlopen(request, timeout=20) as answer:
            body = answer.read()
            assert answer.headers.get_all("Content-Length") == [str(len(body))]
            assert answer.headers["Content-Encoding"] == encoding
    page = gzip.decompress(body) if encoding == "gzip" else body
    assert b"<title>tinsmith fit-&lt;scene&gt;</title>" in page and b"<title>Viser" not in page


@pytest.mark.costly
@pytest.mark.usefixtures("needs_viser")
def test_the_page_suits_a_phone(splatting):
    from playwright.sync_api import expect

    def visit(viewer):
        with browsed(viewer, 390, 844) as page:
            expect(page.get_by_text("held out")).to_contain_text("learning", timeout=SOON)
            assert page.title() == "tinsmith"
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            for name in ("Pause", "Stop and write"):
                box = page.get_by_role("button", name=name).bounding_box()
                assert box["width"] > 340 and box["height"] >= 40 and box["x"] >= 0 and box["x"] + box["width"] <= 390
            [visitor] = viewer._visitors.values()
            camera, aspect = visitor.client.camera, 24 / 20
            wanted = 2 * math.atan(10 / 26 * aspect * camera.image_height / camera.image_width)
            for _ in range(100):
                if abs(camera.fov - wanted) < 1e-3:
                    break
                page.wait_for_timeout(100)
            assert camera.fov == pytest.approx(wanted, abs=1e-3)

    visit_run(fit_splats, splatting(steps=STEPS), visit)


@pytest.mark.parametrize(("width", "height"), [(600, 400), (400, 400), (390, 844)])
def test_a_narrow_window_sees_the_whole_width_of_a_picture(width, height):
    client, fov, aspect = Client(1), 0.8, 1.25
    client.image_width, client.image_height = width, height
    _widen_view(client, fov, aspect)
    seen = math.tan(client.fov / 2) * width / height
    if width / height >= aspect:
        assert client.fov == fov
    else:
        assert seen == pytest.approx(math.tan(fov / 2) * aspect)


class Client:
    """A visitor without a browser."""

    def __init__(self, number):
        self.client_id, self.scene, self.camera, self.pictures = number, self, self, []
        self.wxyz, self.position, self.fov = np.array([0.0, 1, 0, 0]), np.array([0.0, 0, 4]), 0.8  # from above
        self.image_width, self.image_height = 600, 400

    def on_update(self, moved):
        self.moved = moved

    def set_background_image(self, image, jpeg_quality):
        self.pictures.append(image)


class Clock:
    """Time for the viewer: where it would sleep, the time has passed already, and `visit` goes on to its next yield."""

    def __init__(self, visit):
        self._now, self._visit = 1000.0, visit

    def monotonic(self):
        return self._now

    def sleep(self, seconds):
        self._now += seconds
        next(self._visit, None)


@pytest.mark.thinned(2)
@pytest.mark.usefixtures("needs_viser")
def test_each_visitor_gets_pictures_of_its_own_camera(fitted, monkeypatch):
    first, second = Client(1), Client(2)

    def visit(viewer):
        yield from range(20)  # of 0.05 s: the last step's picture is drawn after half a second at the latest
        count = len(first.pictures)
        yield from range(20)
        assert len(first.pictures) == count  # nothing changes, nothing is drawn
        first.moved(None)
        first.position = np.array([0.0, 0, 2.0])
        yield from range(4)
        assert [max(picture.shape) for picture in first.pictures[count:]] == [80]  # coarse while it moves
        yield from range(20)
        assert [max(picture.shape) for picture in first.pictures[count:]] == [80, 160]  # fine afterwards
        assert np.abs(first.pictures[-1].astype(float) - first.pictures[count - 1]).mean() > 1  # from elsewhere
        viewer._dismiss(second)
        viewer._ask_to_stop()

    with viewer_page("tinsmith") as viewer:
        for client in (first, second):
            viewer._welcome(client)
        visits = visit(viewer)
        monkeypatch.setattr(_viewer, "time", Clock(visits))
        reached = fitted.run(fitted.options(steps=3), viewer=viewer)
    assert next(visits, "the end") == "the end"
    assert reached.step == 3 and not reached.interrupted and second.pictures
    assert all(picture.shape[2] == 3 and picture.dtype == np.uint8 for picture in first.pictures + second.pictures)


@pytest.mark.thinned(2)
@pytest.mark.usefixtures("needs_viser")
def test_a_viewer_does_not_change_what_is_learned(fitted, tmp_path, monkeypatch):
    alone, watched = fitted.options(out=tmp_path / "alone"), fitted.options(out=tmp_path / "watched")
    fitted.run(alone)
    client, drawn = Client(1), []
    with viewer_page("tinsmith") as viewer:
        viewer._welcome(client)

        def walk():
            viewer._ask_to_stop()
            yield

        def watch(step, *_):
            drawn.append(len(client.pictures))
            client.position = client.position + 0.1
            client.moved(None)  # a camera that moves is drawn for after each step

        monkeypatch.setattr(_viewer, "time", Clock(walk()))
        fitted.run(watched, watch=watch, viewer=viewer)
    assert drawn == list(range(7)) and read_without_times(watched.out) == read_without_times(alone.out)


@pytest.mark.usefixtures("needs_viser")
def test_splats_are_seen_from_the_camera_of_the_page(splatting, monkeypatch):
    """Against the rendering of its own, called with the viewmat and the intrinsics of the page's camera."""
    client, pictures = Client(1), {}
    client.position = np.array([0.3, -0.2, 4.0])
    dataset = read_dataset(splatting().dataset, 64)
    learner = SplatLearner(dataset, splatting(gaussians=300))
    with viewer_page("tinsmith") as viewer:
        viewer._welcome(client)
        viewer.begin(Training(learner), Stop(), splatting().out)
        for shows in ("color", "depth", "opacity"):
            viewer._shows.value = shows
            monkeypatch.setattr(_viewer, "time", Clock(iter(())))
            viewer._visitors[1].next = 0.0
            viewer._draw()
            pictures[shows] = torch.from_numpy(client.pictures[-1].copy())
    viewmat = torch.tensor([[1.0, 0, 0, -0.3], [0, -1, 0, -0.2], [0, 0, -1, 4], [0, 0, 0, 1]])
    focal = 107 / 2 / np.tan(0.4)
    matrix = torch.tensor([[focal, 0, 80], [0, focal, 53.5], [0, 0, 1]], dtype=torch.float32)
    with torch.no_grad():
        images, alphas, _ = learner.trainer.render(viewmat, matrix, (160, 107), learner.ground, "RGB+ED")
    colors = (images[0, ..., :3].clamp(0, 1) * 255).round()
    assert (pictures["color"].float() - colors).abs().max() <= 1 and colors.std() > 20
    assert (pictures["opacity"].float() - (alphas[0] * 255).round()).abs().max() <= 1
    is_solid = alphas[0, ..., 0] > 0.5
    assert (pictures["depth"][~is_solid] == 255).all() and 100 < is_solid.sum() < is_solid.numel()
    depths, shades = images[0, ..., 3][is_solid], pictures["depth"][is_solid].float()
    ends = torch.stack([shades[depths.argmin()], shades[depths.argmax()]])
    viridis = torch.tensor([[253.0, 231, 37], [68, 1, 84]])  # near is yellow, far is violet
    torch.testing.assert_close(ends, viridis, rtol=0, atol=2)


def test_cameras_of_pages():
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    turn = turn * torch.linalg.det(turn).sign()
    w = (1 + turn.trace()).sqrt() / 2
    xyz = torch.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / (4 * w)
    torch.testing.assert_close(_rotation((w.item(), *xyz.tolist())), turn)
    pose, matrix, size = _camera((1, 0, 0, 0), (1, 2, 3), 0.8, 600, 300, 80)
    assert size == (80, 40) and pose[:3, 3].tolist() == [1, 2, 3]
    assert matrix[0, 0] == matrix[1, 1] and 20 / matrix[1, 1].item() == pytest.approx(np.tan(0.4))


@pytest.mark.parametrize(
    "change",
    [
        {"wxyz": np.zeros(4)},
        {"wxyz": np.ones(3)},
        {"wxyz": np.array("east")},
        {"wxyz": np.array([None] * 4)},
        {"position": np.array([0.0, np.nan, 0])},
        {"position": np.array([0.0, 1e300, 0])},
        {"position": np.zeros((3, 3))},
        {"fov": 0},
        {"fov": "wide"},
        {"fov": math.inf},
        {"image_width": 0},
        {"image_height": 10**400},
        {"image_height": None},
    ],
    ids=str,
)
def test_a_page_without_a_valid_camera_is_ignored(change):
    client = Client(1)
    assert _read_camera(client) == (0, 1, 0, 0, 0, 0, 4, 0.8, 600, 400)
    vars(client).update(change)
    assert _read_camera(client) is None


def test_missing_viser_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ConfigError, match="the viewer needs viser, which is") as refused, viewer_page("tinsmith"):
        pass
    assert f"Run {install_command('view')}, or leave out --view." in str(refused.value)


@pytest.mark.usefixtures("needs_viser")
def test_a_port_in_use_is_reported(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match="the viewer cannot be served") as refused, viewer_page("tinsmith", port):
            pass
    assert str(port) in str(refused.value)
    with viewer_page("tinsmith") as viewer:
        assert viewer.url.startswith("http://127.0.0.1:")
    assert capsys.readouterr().out == ""  # viser keeps quiet
