"""The page of configurations: every component with its keys, from the tables that validate configurations."""

from __future__ import annotations

import json
from pathlib import Path

from tinsmith.nn.config._components import CATALOGS, Catalog, Component
from tinsmith.nn.config._keys import Key, Unfit

from .blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "configurations.md"
BEGIN, END = "<!-- components: begin -->", "<!-- components: end -->"
_TITLES = {"encoding": "Encodings", "network": "Networks", "loss": "Losses", "optimizer": "Optimizers"}
_NESTS = {
    "none": "",
    "one": "Wraps another, in `nested`: an Adam if left out.",
    "many": "Joins several, in `nested`, a list.",
}

_LEFT_OUT = {
    "n_features": "`n_levels` times `n_features_per_level`; it goes in place of `n_levels`",
    "per_level_scale": "`2.0`; of a dense grid such that its finest level has 256 cells a side",
    "n_dims_to_encode": "the dims that the others leave",
    "dims_to_encode_begin": "where the one before ends",
    "n_params_to_optimize": "the parameters that the others leave",
}
"""What a key is that has no default of its own."""


def pages() -> dict[Path, str]:
    """Return the page's text, by its path."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return {PAGE: f"{head}{BEGIN}\n\n{components()}\n\n{END}{rest.partition(END)[2]}"}


def components() -> str:
    """Return the reference of all components in Markdown, by kind."""
    return "\n\n".join(_kind(kind, catalog) for kind, catalog in CATALOGS.items())


def _kind(kind: str, catalog: Catalog) -> str:
    parts = [f"## {_TITLES[kind]}", f"`{kind}`; `otype` is `{catalog.default}` if left out."]
    bare = [component for component in catalog.components if not component.keys and component.nests == "none"]
    if bare:
        names = ", ".join(f"`{component.otype}`" for component in bare)
        parts.append(f"{'No keys' if len(bare) == len(catalog.components) else 'Without keys'}: {names}.")
    parts += [_component(component, catalog) for component in catalog.components if component not in bare]
    return "\n\n".join(parts)


def _component(component: Component, catalog: Catalog) -> str:
    shares = catalog.share if component.nests == "many" else ()
    words = [_alias(name, preset) for name, preset in component.aliases.items()]
    words += [_NESTS[component.nests]] if component.nests != "none" else []
    parts = [f"### {component.otype}", " ".join(words), _table(component.keys)]
    if shares:
        parts += ["What each of them may have besides:", _table(shares)]
    return "\n\n".join(part for part in parts if part)


def _alias(name: str, preset: dict[str, object]) -> str:
    changed = ", ".join(f"`{key}` {_written(value)}" for key, value in preset.items())
    return f"Also called `{name}`{f', with {changed}' if changed else ''}."


def _table(keys: tuple[Key, ...]) -> str:
    if not keys:
        return ""
    return "\n".join(["| key | value | default |", "|---|---|---|", *map(_row, keys)])


def _row(key: Key) -> str:
    names = " or ".join(f"`{name}`" for name in (key.name, *key.also))
    value = f"{_written(key.default)} only: {key.only}" if key.only else _range(key)
    return f"| {names} | {value} | {_LEFT_OUT[key.name] if key.default is None else _written(key.default)} |"


def _range(key: Key) -> str:
    """Return the values that a key accepts, in the words of its error message."""
    try:
        key.kind.validate(object())
    except Unfit as wanted:
        return str(wanted)
    raise AssertionError(key.name)


def _written(value: object) -> str:
    return f"`{json.dumps(value)}`"
