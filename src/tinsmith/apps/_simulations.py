"""The simulations by name, with a description and the module of each. Listing them imports none."""

from __future__ import annotations

from typing import NamedTuple

from .._errors import InputError, nearest, refusal


class Entry(NamedTuple):
    """A simulation: its file and class in `apps/simulate`, and what it is about."""

    place: str
    about: str


SIMULATIONS = {
    "billiards": Entry("_billiards:Billiards", "rigid balls with contacts: how must the cue ball be struck?"),
    "elastic-walker": Entry("_elastic_walker:ElasticWalker", "an elastic body (MPM) learns to walk"),
    "jelly-video": Entry("_jelly_video:JellyVideo", "a renderer in the loop: how stiff is what a video shows?"),
    "smoke": Entry("_smoke:Smoke", "which velocity turns a disc of smoke into a word?"),
    "spring-robot": Entry("_spring_robot:SpringRobot", "masses and springs learn to walk, controlled by a network"),
    "wave-source": Entry("_wave_source:WaveSource", "which pulse did the waves come from?"),
}


def require_simulation(name: str) -> None:
    """Raise InputError if there is no simulation of this name."""
    if name not in SIMULATIONS:
        guess = nearest(name, list(SIMULATIONS))
        remedy = f"Did you mean `{guess}`?" if guess else "`tinsmith simulate` lists them."
        rows = [("got", name), ("expected", ", ".join(SIMULATIONS))]
        raise InputError(refusal("there is no such simulation", rows, remedy))
