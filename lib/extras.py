"""How to install an optional dependency: from the clone, wheel or index that this installation came from."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
"""The clone, or the folder `training_puzzles` of an installed wheel."""

NAME = "training-puzzles"
"""The name of the installed package."""


def install_command(extra: str) -> str:
    """The command that adds an extra of pyproject.toml, such as `mpi`, to this installation."""
    if (ROOT / "pyproject.toml").is_file():
        folder = "." if Path.cwd() == ROOT else str(ROOT)
        return f"pip install -e {quote(f'{folder}[{extra}]')}"
    return f"pip install {quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    """What pip needs to install this package again with an extra, from `direct_url.json` (PEP 610).

    Without that file, the package came from an index, which therefore knows its name.
    """
    try:
        origin = json.loads(distribution(NAME).read_text("direct_url.json") or "null")
    except (PackageNotFoundError, ValueError):
        origin = None
    if not origin:
        return f"{NAME}[{extra}]"
    url, vcs = str(origin["url"]), origin.get("vcs_info")
    if vcs:
        return f"{NAME}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    return f"{NAME}[{extra}] @ {url}"
