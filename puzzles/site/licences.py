"""The licences of everything that the site serves and that is not ours, as one text."""

import json
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

RULE = "=" * 80

PYTHON = """\
Pyodide contains CPython and its standard library, under the Python Software Foundation License Version 2:
https://docs.python.org/3/license.html
"""

PYODIDE = "Mozilla Public License 2.0: https://www.mozilla.org/MPL/2.0/ (source: https://github.com/pyodide/pyodide)"


def licences(modules: Path, packages: Iterable[str], distributions: Iterable[str], wheel: Path | None = None) -> str:
    """A section for each package and a wheel: its name, version and licence, and the text of it where it has one."""
    sections = [*(_npm(modules / name) for name in sorted(packages)), *map(_python, sorted(distributions))]
    sections += [] if wheel is None else [_wheel(wheel)]
    head = "What this site is made of, besides Training Puzzles itself (MIT License).\n\n" + PYTHON
    return f"\n{RULE}\n".join([head, *sections])


def _npm(folder: Path) -> str:
    about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if _is_licence(path.name)]
    extra = [PYODIDE] if about["name"] == "pyodide" else []
    return "\n".join([f"{about['name']} {about['version']}: {about['license']}", "", *extra, *texts])


def _python(name: str) -> str:
    about = metadata.metadata(name)
    stated = [*(about.get_all("License-Expression") or ()), *(about.get_all("License") or ())]
    licence = stated[0].partition("\n")[0] if stated else ", ".join(_classified(about.get_all("Classifier") or ()))
    texts = [
        file.read_text() for file in metadata.files(name) or () if ".dist-info" in str(file) and _is_licence(file.name)
    ]
    return "\n".join([f"{name} {about['Version']}: {licence}", "", *texts])


def _wheel(path: Path) -> str:
    with ZipFile(path) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if _is_licence(name.rpartition("/")[2])]
    return "\n".join([f"{path.name}:", "", *texts])


def _classified(classifiers: Iterable[str]) -> Iterator[str]:
    return (one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License"))


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))
