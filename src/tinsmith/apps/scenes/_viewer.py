"""The viewer: a page in the browser to walk around in a scene while it is learned, with any renderer.

Viser serves the page and reports its camera.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._film import as_pixels, format_decibels
from .._page import Page
from .._pictures import apply_colormap
from .._requests import HOST
from ._learner import Rendered, SceneLearner, SceneReached
from ._views import Orbit
from ._viser_server import serve_viser

_SIDE = 160  # pixels of a picture's longer side at first
_SIDES = (32, 512)  # the smallest and the largest side
_FARTHEST = 1e9  # the largest number in a page's camera
_MOVING_SIDE = 80  # while the camera moves
_MOVING = 0.25  # seconds that a camera counts as moving after its last move
_LEAST_PAUSE = 0.5  # seconds between two pictures of a camera that stands still
_SHARE = 2  # cameras that stand still are drawn at most 1 part of the time for this many parts of training
_TICK = 0.05  # seconds between checks for requests and Ctrl-C while nothing runs
_LAST_WORDS = 0.5  # seconds for the last text to reach the page
_PREPARES = """**Preparing** (1 of 2): reading or rendering the pictures that it learns from.

The scene appears here when the kernels are compiled, after up to a minute, and gets sharper from step to step.
Drag to turn it, scroll to come nearer.
"""
_COMPILING = "compiling kernels (2 of 2)"
_SHOWS = ("color", "depth", "opacity")


@dataclass
class _Visitor:
    """A visitor's camera: what was last drawn for it, when it last moved, and when it may be drawn again."""

    client: Any
    moved: float = 0.0
    drawn: object = None
    next: float = 0.0


class Viewer(Page[SceneLearner, SceneReached]):
    """A run in a viewer: see `Page`."""

    title, name = "a viewer", "viewer"

    def __init__(self, server: Any, say: Callable[[str], object]) -> None:
        super().__init__(say)
        self.url = f"http://{HOST}:{server.get_port()}/"
        self._server = server
        self._lock = threading.Lock()
        self._visitors: dict[int, _Visitor] = {}
        self._shown_text = self._more = ""
        # The pictures' vertical field of view and width / height, when they are known.
        self._shape: tuple[float, float] | None = None
        self._make_panel()
        server.on_client_connect(self._welcome)
        server.on_client_disconnect(self._dismiss)

    # Viser's threads -----------------------------------------------------------------------
    def _make_panel(self) -> None:
        gui = self._server.gui
        # Sharing would use a public server of viser.
        gui.configure_theme(show_logo=False, show_share_button=False)
        self._status = gui.add_markdown(_PREPARES)
        self._shows = gui.add_dropdown("Shows", _SHOWS)
        self._side = gui.add_slider("Pixels", min=_SIDES[0], max=_SIDES[1], step=16, initial_value=_SIDE)
        self._cameras = gui.add_checkbox("Cameras", initial_value=False)
        self._pause = gui.add_button("Pause")
        self._finish = gui.add_button("Stop and write")
        self._pause.on_click(lambda _: self._turn_pause())
        self._finish.on_click(lambda _: self._ask_to_stop())

    def _turn_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._pause.label = "Resume" if self._is_paused else "Pause"

    def _ask_to_stop(self) -> None:
        self._stop.is_requested = True

    def _welcome(self, client: Any) -> None:
        visitor = _Visitor(client)
        client.camera.on_update(lambda _: self._note_movement(visitor))
        with self._lock:
            self._visitors[client.client_id] = visitor
            if self._shape is not None:
                _widen_view(client.camera, *self._shape)

    def _note_movement(self, visitor: _Visitor) -> None:
        visitor.moved = time.monotonic()

    def _dismiss(self, client: Any) -> None:
        with self._lock:
            self._visitors.pop(client.client_id, None)

    # The training's thread -----------------------------------------------------------------
    def open(self) -> None:
        dataset = self._training.learner.dataset
        orbit = Orbit.from_views(dataset.train)
        self._server.scene.set_up_direction(orbit.up.numpy())
        start = self._server.initial_camera
        start.position, start.look_at = orbit.place(0.0).numpy(), orbit.middle.numpy()
        start.fov = 2 * np.arctan(dataset.height / 2 / dataset.train.intrinsics[0, 1, 1].item())
        with self._lock:
            self._shape = start.fov, dataset.width / dataset.height
            for visitor in self._visitors.values():
                _widen_view(visitor.client.camera, *self._shape)
        self._show_cameras(orbit.distance)
        self.tell(_COMPILING)

    def _show_cameras(self, distance: float) -> None:
        learner = self._training.learner
        views, dataset = learner.dataset.train, learner.dataset
        pictures = as_pixels(views.blend_with(learner.ground.cpu())).numpy()
        frames = [
            self._server.scene.add_camera_frustum(
                f"/cameras/{number}",
                fov=2 * np.arctan(dataset.height / 2 / views.intrinsics[number, 1, 1].item()),
                aspect=dataset.width / dataset.height,
                scale=0.04 * distance,
                wxyz=_wxyz(views.poses[number, :3, :3]),
                position=views.poses[number, :3, 3].numpy(),
                thickness=0.003 * distance,
                image=pictures[number],
                visible=False,
            )
            for number in range(len(views))
        ]

        def show(_: Any) -> None:
            for frame in frames:
                frame.visible = self._cameras.value

        self._cameras.on_update(show)

    def show_step(self) -> None:
        self.tell("learning" if self._training.step else _COMPILING)

    def show(self, status: str) -> None:
        self.tell(status)

    def note_written(self) -> None:
        self._pause.disabled = True
        self._finish.label = "Finish"
        self._more = f"the files are in `{self._folder}`"

    def end(self, reached: SceneReached) -> None:
        self._finish.disabled = True
        self._more += "; you can close this page"
        self.tell("ended")
        time.sleep(_LAST_WORDS)

    def grant_wishes(self, status: str) -> None:
        """Draw the pictures that the pages ask for."""
        self._draw()

    def wait(self) -> None:
        time.sleep(_TICK)

    def tell(self, status: str) -> None:
        """Show the status, the step, the PSNR and the last remark, if they changed."""
        training, psnr = self._training, self._training.history.psnr
        text = f"**{status}**, step {training.step} of {training.steps}"
        text += "" if math.isnan(psnr) else f", held out {format_decibels(psnr, 2)}"
        text += f"; {self._more}." * bool(self._more)
        if text != self._shown_text:
            self._status.content = self._shown_text = text

    def _draw(self) -> None:
        """Draw a picture for every visitor whose picture is out of date."""
        with self._lock:
            visitors = list(self._visitors.values())
        for visitor in visitors:
            self._draw_for(visitor)

    def _draw_for(self, visitor: _Visitor) -> None:
        now = time.monotonic()
        is_moving = now - visitor.moved < _MOVING
        side = max(_SIDES[0], min(self._side.value, _MOVING_SIDE if is_moving else _SIDES[1]))
        where = _read_camera(visitor.client.camera)
        wanted = (where, side, self._shows.value, self._training.step)
        if where is None or wanted == visitor.drawn or (not is_moving and now < visitor.next):
            return
        seen = self._training.learner.render_camera(
            *_camera(where[:4], where[4:7], where[7], where[8], where[9], side), "opencv"
        )
        visitor.client.scene.set_background_image(self._picture(seen), jpeg_quality=85)
        took = time.monotonic() - now
        visitor.drawn, visitor.next = wanted, time.monotonic() + max(_LEAST_PAUSE, _SHARE * took)

    def _picture(self, seen: Rendered) -> np.ndarray:
        if self._shows.value == "color":
            return as_pixels(seen.color).numpy()
        if self._shows.value == "opacity":
            return as_pixels(seen.opacity[..., None].expand(-1, -1, 3)).numpy()
        mean = seen.depth / seen.opacity.clamp(min=1e-6)
        solid = mean[seen.opacity > 0.5]
        near, far = (solid.min(), solid.max()) if len(solid) else (0.0, 1.0)
        shown = np.array(apply_colormap(1 - (mean - near) / max(float(far - near), 1e-6), "viridis"))
        shown[(seen.opacity <= 0.5).cpu().numpy()] = 255
        return shown


def _widen_view(camera: Any, fov: float, aspect: float) -> None:
    """Widen a page's vertical field of view, in radians, so that a window narrower than `aspect` sees a picture's whole
    width. Do nothing for other windows.
    """
    seen = _read_camera(camera)
    if seen is not None and seen[8] < aspect * seen[9]:
        camera.fov = 2 * math.atan(math.tan(fov / 2) * aspect * seen[9] / seen[8])


def _read_camera(camera: Any) -> tuple[float, ...] | None:
    """Return a page's quaternion, position, field of view, width and height; None if they are not those of a camera.

    The page, or a program in its place, may have sent anything.
    """
    sent = camera.wxyz, camera.position, camera.fov, camera.image_width, camera.image_height
    try:
        numbers = tuple(float(number) for number in (*sent[0], *sent[1], *sent[2:]))
    except (OverflowError, TypeError, ValueError):
        return None
    is_camera = (len(sent[0]), len(sent[1])) == (4, 3) and all(abs(number) <= _FARTHEST for number in numbers)
    return numbers if is_camera and any(numbers[:4]) and 0.01 < numbers[7] < 3.1 and min(numbers[8:]) >= 1 else None


def _camera(
    wxyz: tuple[float, ...], position: tuple[float, ...], fov: float, width: float, height: float, side: int
) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Return pose (OpenCV's convention), intrinsics and size (width, height) of a page's camera; no side exceeds `side`
    pixels.
    """
    scale = side / max(width, height, 1)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    focal = size[1] / 2 / np.tan(fov / 2)
    intrinsics = torch.tensor([[focal, 0, size[0] / 2], [0, focal, size[1] / 2], [0, 0, 1]], dtype=torch.float64)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = _rotation(wxyz)
    pose[:3, 3] = torch.tensor(position)
    return pose, intrinsics, size


def _rotation(wxyz: tuple[float, ...]) -> Tensor:
    """Return the rotation matrix (3, 3) of a quaternion."""
    w, x, y, z = torch.nn.functional.normalize(torch.tensor(wxyz, dtype=torch.float64), dim=0).tolist()
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _wxyz(rotation: Tensor) -> np.ndarray:
    """Convert a camera's rotation from OpenGL's convention to a quaternion in OpenCV's convention, which viser uses."""
    from viser.transforms import SO3

    return SO3.from_matrix(rotation.numpy() * np.array([1.0, -1.0, -1.0])).wxyz


@contextmanager
def viewer_page(title: str, port: int = 0, say: Callable[[str], object] = lambda words: None) -> Iterator[Viewer]:
    """Enter a context that serves a viewer on this machine, for the option `viewer=` of `fit_scene` and `fit_splats`;
    yield the viewer.

    Args:
        title: the page's title.
        port: the port on 127.0.0.1; 0 for a free one.
        say: called with text for the terminal when the files are written and the viewer stays.

    Raises:
        ConfigError: viser is not installed, or cannot be protected from other sites.
        InputError: the port is taken.
    """
    with serve_viser(title, port) as server:
        yield Viewer(server, say)
