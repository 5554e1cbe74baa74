"""Where the project is published. pyproject.toml names the addresses; `make address ORG=...` sets them."""

import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from lib.errors import PACKAGE, ROOT
from puzzles.version import VERSION


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
    if documentation():
        return f"{documentation()}{name}/"
    return f"docs/{name}.md" if Path(ROOT, "docs", f"{name}.md").is_file() else ""


def requirement() -> str:
    """What `pip install` needs to install this version elsewhere: the tag, or until then the wheel."""
    return f"git+{source()}@v{VERSION}" if source() else wheel()


def wheel() -> str:
    """File name of this version's wheel."""
    return f"training_puzzles-{VERSION}-py3-none-any.whl"


@cache
def _addresses() -> dict[str, str]:
    file = Path(ROOT, "pyproject.toml")
    if file.is_file():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        return dict(project.get("urls", {}))
    try:
        entries = metadata(PACKAGE).get_all("Project-URL") or []
    except PackageNotFoundError:
        return {}
    return {label.strip(): url.strip() for label, _, url in (str(entry).partition(",") for entry in entries)}
