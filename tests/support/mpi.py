"""Skips what needs MPI where the extra `mpi` is not installed."""

from __future__ import annotations

import pytest

from lib import PuzzleError
from lib.engine.launcher import mpiexec


def mpiexec_or_skip() -> list[str]:
    """The command that starts processes of MPI; without it the test, or the module being imported, is skipped."""
    pytest.importorskip("mpi4py", reason="needs the extra: pip install -e '.[mpi]'")
    try:
        return mpiexec()
    except PuzzleError as why:
        pytest.skip(str(why), allow_module_level=True)
