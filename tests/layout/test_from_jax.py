"""Functions of JAX as graphs: runs `tests/support/from_jax_checks.py` where jax is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lib.layout import LayoutError, from_jax
from tests.support.refusals import Refused
from tests.test_imports import ROOT

SUPPORT = Path("tests", "support")


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")
@pytest.mark.parametrize("name", ["from_jax_checks.py", pytest.param("from_jax_enumerated.py", marks=pytest.mark.slow)])
def test_graphs_compute_what_jax_does_and_the_rest_is_refused(name: str) -> None:
    checks = SUPPORT / name
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", str(checks)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    cases = sum(line.count(".") for line in done.stdout.splitlines() if re.fullmatch(r"\.+ *\[ *\d+%\]", line))
    assert cases >= len(re.findall(r"^def test_", (ROOT / checks).read_text(encoding="utf-8"), re.MULTILINE)) > 3


def test_without_jax_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with Refused("no JAX", install="pip install -e '.[jax]'", error=LayoutError):
        from_jax(lambda x: x, (4,), devices=2)
