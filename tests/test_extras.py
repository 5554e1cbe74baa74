"""The advice on how to install an extra fits the installation, and names an extra that exists."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from lib import errors
from lib.errors import install_command

ROOT = Path(__file__).parents[1]


def test_in_a_clone_it_installs_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("mpi") == "pip install -e '.[mpi]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("mpi") == f"pip install -e '{ROOT}[mpi]'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "training-puzzles[mpi]"),
        ({"url": "file:///home/ann/my%20games/g-0.2.0-py3-none-any.whl", "archive_info": {}},
         "/home/ann/my games/g-0.2.0-py3-none-any.whl[mpi]"),
        ({"url": "https://example.org/g-0.2.0-py3-none-any.whl", "archive_info": {}},
         "training-puzzles[mpi] @ https://example.org/g-0.2.0-py3-none-any.whl"),
        ({"url": "https://example.org/g", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
         "training-puzzles[mpi] @ git+https://example.org/g@abc"),
    ],
)  # fmt: skip
def test_elsewhere_it_names_what_was_installed(
    origin: object, requirement: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In `direct_url.json`, by PEP 610; what comes from an index has none."""
    monkeypatch.setattr(errors, "ROOT", str(tmp_path))
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    assert install_command("mpi") == f"pip install '{requirement}'"


def test_every_extra_that_the_code_names_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set()
    for package in ("lib", "drawing", "puzzles"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "install_command" in text else ():
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "install_command":
                    named |= {one.value for one in node.args if isinstance(one, ast.Constant)}
    assert named
    assert named <= set(known)
