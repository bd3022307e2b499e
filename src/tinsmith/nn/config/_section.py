"""Section: one validated component of a configuration, which `resolve_section` returns and builders take."""

from __future__ import annotations

import dataclasses
from typing import Any


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
