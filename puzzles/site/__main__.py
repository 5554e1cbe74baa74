"""`python -m puzzles.site [FOLDER]`: builds the site, in `site` unless another folder is named.

TRAINING_PUZZLES_FOLDERS names folders of puzzles to add.
"""

from __future__ import annotations

import sys
from pathlib import Path

from puzzles.own import add_installed

from .build import build
from .npm import SiteError


def main(arguments: list[str]) -> int:
    for problem in add_installed():
        print(f"Warning: {problem}", file=sys.stderr)
    site = Path(arguments[0] if arguments else "site")
    try:
        size = build(site, Path("build"))
    except SiteError as why:
        print(why, file=sys.stderr)
        return 1
    print(f"Wrote {site}: {size / 1e6:.1f} MB to load, compressed. Try it: python3 -m http.server -d {site}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
