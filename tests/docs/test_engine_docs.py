"""docs/engine.md: its tables are true, and its commands work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lib.engine import ShardedEngine, launch
from tests.support.mpi import mpiexec_or_skip
from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def blocks(language: str, title: str = "") -> list[str]:
    """The page's blocks of a language; or only the one with a title."""
    named = f' title="{title}"' if title else "[^\n]*"
    return re.findall(rf"^```{language}{named}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


SENT = {"2(n-1)/n S": lambda n, s: 2 * (n - 1) * s // n, "(n-1) S": lambda n, s: (n - 1) * s}
SENT |= {"(n-1)/n S": lambda n, s: (n - 1) * s // n, "0": lambda n, s: 0}


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_tables_bytes_are_what_meters_read(n: int) -> None:
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|.*\| ([^|]+?) \|$", PAGE.split("## Messages")[0], re.MULTILINE)
    assert [name for name, *_ in rows] == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
    x = np.ones((4, 3), np.float32)
    for name, arguments, sent in rows:

        class One(ShardedEngine):
            def load_checkpoint(self, params: object) -> None:
                """Nothing to load."""

            def forward(self, x: object, name: str = name, arguments: str = arguments) -> None:
                getattr(self, name)(*([x] if arguments.startswith("x") else []))

        with launch(One, n) as run:
            run.forward(x)
            assert [m.sent for m in run.meters] == [SENT[sent](n, x.nbytes)] * n, name


def test_the_signatures_of_the_page_are_those_of_the_class() -> None:
    from inspect import signature

    for name, arguments in re.findall(r"^\| `(\w+)\((\w.*?)\)` \|", PAGE.split("## Who owns")[0], re.MULTILINE):
        parameters = list(signature(getattr(ShardedEngine, name)).parameters.values())[1:]
        defaults = [repr(p.default).replace("'", '"') for p in parameters if p.default is not p.empty]
        assert re.findall(r"=([^,]*)", arguments) == defaults, name
        assert len(arguments.split(", ")) == len(parameters), name


def test_every_public_call_is_on_the_page() -> None:
    calls = [name for name in vars(ShardedEngine) if not name.startswith("_")]
    assert [name for name in calls if f"`{name}" not in PAGE and f".{name}" not in PAGE] == []


@pytest.mark.slow
def test_the_script_runs_under_mpiexec_as_the_page_says(tmp_path: Path) -> None:
    mpiexec_or_skip()
    (tmp_path / "train.py").write_text(blocks("python", "train.py")[0])
    command = next(line for line in "".join(blocks("sh")).splitlines() if line.startswith("mpiexec -n 4"))
    bin = Path(sys.executable).parent
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{bin}:{os.environ['PATH']}", "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert ended.stdout == blocks("text")[0] * 4, ended.stderr
