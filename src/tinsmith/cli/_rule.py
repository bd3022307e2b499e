"""`tinsmith rule`: what a rule of `tinsmith check` finds, and why."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console


def _complete_rule(incomplete: str) -> list[str]:
    """Return the ids of the rules that begin with a text, for shells."""
    from ..linter import RULES

    return [one for one in RULES if one.startswith(incomplete)]


def rule(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RULE",
            help="The id of a rule, as TS105, or its name. Left out: all are listed.",
            autocompletion=_complete_rule,
        ),
    ] = None,
) -> None:
    """Explain a rule: what it finds, why that matters, a wrong kernel and a right one."""
    from ..linter import RULES, find_rule, read_rule_page

    if name is None:
        width = max(len(one.name) for one in RULES.values())
        typer.echo("\n".join(f"{one.id}  {one.name:{width}}  {one.about}" for one in RULES.values()))
        return
    page = read_rule_page(find_rule(name))
    console = Console()
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(page))
    else:
        typer.echo(page, nl=False)
