"""Learn a photograph with one network or an array of them: behind `tinsmith learn-image`."""

from .._outcome import Reached
from .._processes import read_launched_processes
from .._progress import progress_bar
from ._live import LiveImage, live_page
from ._recipe import LearnOptions, find_shipped_configs
from ._run import learn_image

__all__ = [
    "LearnOptions",
    "LiveImage",
    "Reached",
    "find_shipped_configs",
    "learn_image",
    "live_page",
    "progress_bar",
    "read_launched_processes",
]
