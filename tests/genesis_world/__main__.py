"""The command behind scripts/genesis: kernels of Genesis tried with tinsmith, and the page about them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from genesis_world import _catalog, _page, _runner
from genesis_world._scenes import SCENES


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="genesis", description=__doc__)
    parser.add_argument("what", choices=["list", "scenes", "run", "scene", "page"])
    parser.add_argument("names", nargs="*", help="scenes; all if left out")
    parser.add_argument(
        "--log", type=Path, default=Path("out/genesis"), help="where outcomes are kept; they are not tried again"
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of processor time for a kernel")
    parser.add_argument("--jobs", type=int, default=1, help="scenes at a time")
    parser.add_argument("--only", default="", help="a pattern of the kernels to try")
    parser.add_argument("--count-only", action="store_true", help="count launches, try nothing")
    options = parser.parse_args()
    if options.what == "list":
        print("\n".join(f"{one.key}:{one.line} {' '.join(one.kinds)}" for one in _catalog.find_kernels()))
    elif options.what == "scenes":
        print("\n".join(f"{name}: {one.run.__doc__}" for name, one in SCENES.items()))
    elif options.what == "scene":
        _runner.run_scene(options.names[0], options.log, options.limit, options.only, options.count_only)
    elif options.what == "page":
        _page.write(_page.collect(options.log))
    elif options.what == "run":
        names = options.names or list(SCENES)
        _runner.run_scenes(names, options.log, options.limit, options.jobs, options.only)
        print(json.dumps(_runner.summarize(options.log), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
