"""Writes the public address into every file that shows it: `make address ORG=...`; without ORG, takes it out again.

pyproject.toml holds the address. README.md, docs/notebooks.md and CITATION.cff have blocks that are made from it, and
the notebooks' first cells are built from it afterwards. Until there is an address, nothing is shown as a link to it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

GITHUB_NAME = r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}"

URLS = """
[project.urls]
Source = "https://github.com/{org}/{name}"
Play = "https://{org}.github.io/{name}/"
Documentation = "https://{org}.github.io/{name}/docs/"
"""

PLAY_LINK = "**[Play in your browser]({Play})**, with nothing to install. Or on your machine:\n\n"

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
COLAB = "https://colab.research.google.com/github/{repository}/blob/play/{book}.ipynb"

NO_COLAB = """\
Until the project has a public address, upload a notebook to Colab yourself, together with the wheel that
`make notebooks` puts into `notebooks/`. The first cell installs it. In a clone, that cell installs nothing.
"""

Urls = dict[str, str]


def urls(root: Path = ROOT) -> Urls:
    """The addresses that pyproject.toml names; empty until they are set."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(project.get("urls", {}))


def set_address(org: str, root: Path = ROOT) -> None:
    """Sets the addresses for a GitHub organisation or user; the empty text removes them.

    Raises:
        ValueError: GitHub does not allow this name.
    """
    if org and not re.fullmatch(GITHUB_NAME, org):
        raise ValueError(f"{org!r} is not a name on GitHub, which has at most 39 letters, digits and single hyphens")
    file = root / "pyproject.toml"
    text = re.sub(r"\n\[project\.urls\]\n(?:.+\n)*", "", file.read_text(encoding="utf-8"))
    name = tomllib.loads(text)["project"]["name"]
    if org:
        text = text.replace("\n[project.scripts]\n", f"{URLS.format(org=org, name=name)}\n[project.scripts]\n")
    file.write_text(text, encoding="utf-8")
    for path, block in BLOCKS:
        page = root / path
        page.write_text(block(page.read_text(encoding="utf-8"), urls(root)), encoding="utf-8")


def play_block(text: str, urls: Urls) -> str:
    """The README's first screen begins with the link, if there is one."""
    start = re.search(r"<!-- address: play -->\n(?:\*\*\[Play.*\n\n)?", text)
    assert start is not None, "README.md has no block '<!-- address: play -->'"
    return text.replace(start[0], f"<!-- address: play -->\n{PLAY_LINK.format_map(urls) if urls else ''}", 1)


def colab_block(text: str, urls: Urls) -> str:
    """The table of notebooks has a column of Colab badges, if there is an address."""
    rows = []
    for row in text.split("\n"):
        plain = re.sub(r" (?:open it|\[!\[Open In Colab\].*?\)) \|$|(?<=\|---\|---\|)---\|$", "", row)
        if urls and (book := re.match(r"\| \[(\d\d_\w+)\]", plain)):
            link = COLAB.format(repository=urls["Source"].removeprefix("https://github.com/"), book=book[1])
            plain += f" [![Open In Colab]({BADGE})]({link}) |"
        elif urls and plain == "| | what it is |":
            plain += " open it |"
        elif urls and plain == "|---|---|":
            plain += "---|"
        rows.append(plain)
    text = "\n".join(rows)
    without = text.replace(f"{NO_COLAB}\n", "")
    return without if urls else without.replace("\nIn a clone, `make lab`", f"\n{NO_COLAB}\nIn a clone, `make lab`", 1)


def citation_block(text: str, urls: Urls) -> str:
    """The citation names the repository, if there is one."""
    text = re.sub(r"^repository-code: .*\n", "", text, flags=re.MULTILINE)
    return f"{text}repository-code: {urls['Source']}\n" if urls else text


BLOCKS = (("README.md", play_block), ("docs/notebooks.md", colab_block), ("CITATION.cff", citation_block))


if __name__ == "__main__":
    try:
        set_address("".join(sys.argv[1:]))
    except ValueError as why:
        sys.exit(f"make address ORG=...: {why}")
    print("\n".join(f"{label}: {url}" for label, url in urls().items()) or "The project has no public address.")
