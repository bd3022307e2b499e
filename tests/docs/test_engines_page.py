"""The page about the contract of engines names each member of the abstract class, and no other."""

import re

from pages.blocks import ROOT

from tinsmith.engines import Engine

PAGE = (ROOT / "docs/about/engines.md").read_text(encoding="utf-8")


def test_the_tables_have_each_member_of_the_contract():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    members = {name for name in {**vars(Engine), **Engine.__annotations__} if not name.startswith("_")}
    assert sorted(rows) == sorted(members)


def test_the_page_has_the_number_of_required_members():
    assert f"of the {len(Engine.__abstractmethods__)} members that must be implemented" in " ".join(PAGE.split())
