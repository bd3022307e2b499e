"""A section: one resolved component of a configuration. `resolve_section` returns it, and builders take it."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Section:
    """One component of a configuration, with all options resolved.

    Attributes:
        otype: its canonical name, in its own spelling: `"Grid"` also where the file says `hashgrid`.
        options: every option that it has, with the defaults filled in; without `otype` and `nested`.
            A component nested in a Composite has there also what says its share: `n_dims_to_encode`
            and `dims_to_encode_begin` (encodings), `n_params_to_optimize` (optimizers); None where
            the file leaves it open.
        nested: the components that it wraps or joins, in order.
        where: the place in the configuration, such as `encoding.nested[1]`: for refusals. Not compared.

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
        """The section as a configuration again, with all defaults: resolving it gives an equal section.

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
