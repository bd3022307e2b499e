"""`resolve_section`: checks a configuration against the tables of `_components` and returns a `Section`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from ..._errors import ConfigError, nearest, refusal
from ._components import CATALOGS, Catalog, Component, Misfit, Options
from ._keys import Key, Unfit
from ._read import read


@dataclasses.dataclass(frozen=True)
class Section:
    """One component of a configuration, validated, with every default filled in.

    Attributes:
        otype: its canonical name: `"Grid"` also if the file says `hashgrid`.
        options: all of its options by name, without `otype` and `nested`. A component nested in a Composite also
            has the options that say what part of the whole it takes: `n_dims_to_encode` and `dims_to_encode_begin`
            (encodings), `n_params_to_optimize` (optimizers); None if the file leaves them out.
        nested: the components that it contains, in order.
        where: its path in the configuration, such as `encoding.nested[1]`, for error messages. Not compared.

    Example:
        >>> from tinsmith.nn.config import resolve_section
        >>> resolve_section("encoding", {"otype": "oneblob"})
        Section(otype='OneBlob', options={'n_bins': 16}, nested=())
    """

    otype: str
    options: dict[str, Any]
    nested: tuple[Section, ...] = ()
    where: str = dataclasses.field(default="", compare=False, repr=False)

    def config(self) -> dict[str, Any]:
        """Return the section as a configuration with all defaults. Resolving that returns an equal section.

        Example:
            >>> from tinsmith.nn.config import resolve_section
            >>> resolve_section("loss", {}).config()
            {'otype': 'RelativeL2'}
        """
        given = {key: value for key, value in self.options.items() if value is not None}
        written: dict[str, Any] = {"otype": self.otype, **given}
        if self.otype == "Composite":
            written["nested"] = [section.config() for section in self.nested]
        elif self.nested:
            written["nested"] = self.nested[0].config()
        return written


def resolve_section(
    kind: Literal["encoding", "network", "loss", "optimizer"],
    config: Section | Mapping[str, Any] | str | Path | None = None,
    where: str = "",
) -> Section:
    """Validate the configuration of one component. Return it with canonical names and every default filled in.

    Args:
        kind: the kind of component.
        config: the component's own part of a configuration: a mapping, a JSON string, or a path. None: all
            defaults. A Section is returned unchanged.
        where: the path of this part in a larger configuration, for error messages; `kind` if left out.

    Raises:
        ConfigError: an unknown `otype` or key, a value of the wrong kind or out of range, keys that
            exclude each other, or a key that would have no effect.

    Example:
        >>> from tinsmith.nn.config import resolve_section
        >>> resolve_section("network", {"otype": "mlp", "n_neurons": 64}).options["n_neurons"]
        64
    """
    if isinstance(config, Section):
        return config
    if isinstance(config, (str, Path)):
        _refuse_otype(kind, str(config), where or kind)
        config = read(config)
    return _resolve_component(CATALOGS[kind], kind, config if config is not None else {}, where or kind, share=())


def _refuse_otype(kind: str, given: str, where: str) -> None:
    """Raise ConfigError if a string is the name of a component rather than a path or JSON, as in `"Adam"`."""
    names = _list_otypes(CATALOGS[kind])
    guess = "" if given.lstrip().startswith("{") else nearest(given, names)  # a JSON text may look like one
    if guess and not Path(given).exists() and (Path(given).suffix, Path(given).name) == ("", given):
        rows = [("got", _format_value(given)), ("expected", "a mapping, a JSON text or the path of a JSON file")]
        remedy = f'Write {{"otype": "{guess}"}}, with its other keys beside it.'
        raise ConfigError(refusal(f"`{where}` is the name of {_with_article(kind)}, not a configuration", rows, remedy))


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _list_otypes(catalog: Catalog) -> list[str]:
    return [name for component in catalog.components for name in (component.otype, *component.aliases)]


def _resolve_component(catalog: Catalog, kind: str, config: Any, where: str, share: tuple[Key, ...]) -> Section:
    if not isinstance(config, Mapping):
        rows = [("got", _format_value(config)), ("expected", f"an object such as {{'otype': '{catalog.default}'}}")]
        raise ConfigError(refusal(f"`{where}` is not {_with_article(kind)}", rows))
    component, called, preset = _find_component(catalog, kind, config.get("otype", catalog.default), where)
    nests = {"nested"} if component.nests != "none" else set[str]()
    given = {key: value for key, value in config.items() if key not in {"otype"} | nests}
    keys = component.keys + share
    by_name = {name: key for key in keys for name in (key.name, *key.also)}
    for name in given:
        if name not in by_name:
            _refuse_key(catalog, called, keys, name, where, is_default="otype" not in config)
    values = _validate_values(called, by_name, given, where)
    options = {key.name: preset.get(key.name, copy.copy(key.default)) for key in keys} | values
    if component.expands is not None:
        shares = {key.name: options[key.name] for key in share if key.name in values}
        return _resolve_component(catalog, kind, component.expands(options) | shares, where, share)
    if component.settle is not None:
        options = _settle_options(component, called, options, frozenset(values), where)
    nested = _resolve_nested(catalog, kind, component, config, where)
    return Section(component.otype, options, nested, where)


def _find_component(catalog: Catalog, kind: str, otype: Any, where: str) -> tuple[Component, str, Options]:
    """Find the component with this `otype`, in upper or lower case. Raise ConfigError if there is none.

    Returns:
        The component; the canonical spelling of the name; the defaults that the name changes.
    """
    for component in catalog.components:
        for name, preset in {component.otype: {}, **component.aliases}.items():
            if isinstance(otype, str) and otype.lower() == name.lower():
                return component, name, preset
    known = _list_otypes(catalog)
    guess = nearest(str(otype), known)
    rows = [("got", _format_value(otype)), ("expected", ", ".join(known))]
    remedy = f"Did you mean `{guess}`?" if guess else f"Leave it out for the default, `{catalog.default}`."
    others = [kind for kind, other in CATALOGS.items() if str(otype).lower() in map(str.lower, _list_otypes(other))]
    if others and str(otype).lower() != guess.lower():
        remedy = f"Write it in `{others[0]}`."
    raise ConfigError(refusal(f"`{where}.otype` is not a known {kind}", rows, remedy))


def _validate_values(called: str, by_name: Mapping[str, Key], given: Options, where: str) -> Options:
    """Validate the options that were passed. Return them under their canonical names."""
    values: Options = {}
    for name, value in given.items():
        key = by_name[name]
        if key.name in values:
            _refuse_value(called, where, name, value, f"left out where `{key.name}` is given: they are one key")
        values[key.name] = _validate_value(key, called, where, name, value)
    return values


def _validate_value(key: Key, called: str, where: str, name: str, value: Any) -> Any:
    try:
        taken = key.kind.validate(value)
    except Unfit as error:
        default = "" if key.default is None else f"Leave it out for the default, {_format_value(key.default)}."
        _refuse_value(called, where, name, value, str(error), default)
    if key.only and taken != key.default:
        _refuse_value(called, where, name, value, f"{_format_value(key.default)}, the default: {key.only}")
    return taken


def _settle_options(component: Component, called: str, options: Options, given: frozenset[str], where: str) -> Options:
    assert component.settle is not None
    original = dict(options)
    try:
        return component.settle(options, given)
    except Misfit as error:
        _refuse_value(called, where, error.key, original[error.key], str(error))


def _resolve_nested(
    catalog: Catalog, kind: str, component: Component, config: Mapping[str, Any], where: str
) -> tuple[Section, ...]:
    if component.nests == "none":
        return ()
    if component.nests == "one":
        return (_resolve_component(catalog, kind, config.get("nested", {}), f"{where}.nested", share=()),)
    parts = config.get("nested")
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        actual = _format_value(parts) if "nested" in config else "nothing"
        rows = [("got", actual), ("expected", f"a list of one {kind} or more")]
        raise ConfigError(refusal(f"`{where}.nested` of {component.otype} must be a list of parts", rows))
    sections = tuple(
        _resolve_component(catalog, kind, part, f"{where}.nested[{i}]", catalog.share) for i, part in enumerate(parts)
    )
    _check_shares(catalog.share, sections, where)
    return sections


def _check_shares(share: tuple[Key, ...], sections: tuple[Section, ...], where: str) -> None:
    """Raise ConfigError unless the parts of a Composite divide up the whole unambiguously.

    At most one part may leave out its size, and take the remainder; none may if any part states where it begins.
    """
    size = share[0].name
    open_ended = [section for section in sections if section.options[size] is None]
    placed = [section for section in sections for key in share[1:] if section.options[key.name] is not None]
    if len(open_ended) > 1 or (open_ended and placed):
        rows = [(f"{section.where}", f"{section.otype} without {size}") for section in open_ended]
        rows += [(f"{section.where}", f"{section.otype} with {share[1].name}") for section in placed]
        remedy = f"Write {size} in all of them" + ("." if placed else ", or leave it out in one: it takes the rest.")
        raise ConfigError(refusal(f"`{where}.nested` does not say how much each part takes", rows, remedy))


def _refuse_key(
    catalog: Catalog, called: str, keys: Sequence[Key], name: Any, where: str, *, is_default: bool
) -> NoReturn:
    known = [key.name for key in keys] + ["otype"]
    rows = [("expected", ", ".join(known))] + [("otype", f"{called}, the default: none was written")] * is_default
    why = catalog.elsewhere.get(name, "")
    if name in [key.name for key in catalog.share]:
        why = "it is a key of the components that are nested in a Composite"
    if why:
        raise ConfigError(refusal(f"`{where}.{name}` of {called} would do nothing: {why}", rows, "Leave it out."))
    guess = nearest(str(name), known)
    remedy = f"Did you mean `{guess}`?" if guess else "Leave it out."
    others = [kind for kind, other in CATALOGS.items() if other is not catalog and name in _list_keys(other)]
    if others:
        remedy = f"`{name}` belongs to " + " or ".join(f"`{kind}`" for kind in others) + "."
    raise ConfigError(refusal(f"`{where}.{name}` is not a key of {called}", rows, remedy))


def _list_keys(catalog: Catalog) -> set[str]:
    return {name for component in catalog.components for key in component.keys for name in (key.name, *key.also)}


def _refuse_value(called: str, where: str, name: str, value: Any, expected: str, remedy: str = "") -> NoReturn:
    rows = [("got", _format_value(value)), ("expected", expected)]
    raise ConfigError(refusal(f"`{where}.{name}` of {called} has an invalid value", rows, remedy))


def _format_value(value: Any) -> str:
    """Return a value as JSON spells it, shortened to 60 characters."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
