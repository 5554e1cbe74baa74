"""The version of the project, and where it is published.

The version is written once: the wheel's metadata and the notebooks' setup cell read it here. pyproject.toml names the
addresses; `make address ORG=...` sets them. `puzzles --version` needs the number only, so what reads the addresses is
imported when it is asked for.
"""

import os
from contextlib import suppress
from functools import cache

VERSION = "0.2.0"


def source() -> str | None:
    """Address of the repository, which has a tag for each version; None until the project is published."""
    return _addresses().get("Source")


def site() -> str | None:
    """Address of the game in the browser; None until the project is published."""
    return _addresses().get("Play")


def documentation() -> str | None:
    """Address of the documentation; None until the project is published."""
    return _addresses().get("Documentation")


def page(name: str) -> str:
    """Where a page of the documentation is: its address, or until there is one its file in this clone; empty where the
    game was installed without it."""
    from lib.errors import ROOT  # here, since the number needs no `lib`

    if documentation():
        return f"{documentation()}{name}/"
    return f"docs/{name}.md" if os.path.isfile(f"{ROOT}/docs/{name}.md") else ""


def requirement() -> str:
    """What `pip install` needs to install this version elsewhere: the tag, or until then the wheel."""
    return f"git+{source()}@v{VERSION}" if source() else wheel()


def wheel() -> str:
    """File name of this version's wheel."""
    return f"training_puzzles-{VERSION}-py3-none-any.whl"


@cache
def _addresses() -> dict[str, str]:
    import tomllib  # here, since the number needs none of these
    from importlib.metadata import PackageNotFoundError, metadata

    from lib.errors import PACKAGE, ROOT

    with suppress(FileNotFoundError), open(f"{ROOT}/pyproject.toml", "rb") as file:
        return dict(tomllib.load(file)["project"].get("urls", {}))
    try:
        entries = metadata(PACKAGE).get_all("Project-URL") or []
    except PackageNotFoundError:
        return {}
    return {label.strip(): url.strip() for label, _, url in (str(entry).partition(",") for entry in entries)}
