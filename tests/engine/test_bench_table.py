"""The bench's table: medians of pairs, and which targets are met."""

from __future__ import annotations

from tests.bench import engine
from tests.screens.texts import approved


def times(slow: str = "") -> engine.Times:
    """Ten turns in which everything takes as long as bare mpi4py, but `slow` nine times as long in most of them; the
    machine gets slower and slower."""
    cells = [f"{name} {nbytes}" for nbytes in engine.SIZES for name in engine.OPERATIONS]
    return {
        cell: [(turn + 1) * (9 if cell == slow and turn > 3 else 1) * 1e-5 for turn in range(10)]
        for cell in (f"{what} {cell}" for what in ("bare", "in process", "on MPI") for cell in cells)
    }


def test_a_turn_is_compared_with_the_one_beside_it() -> None:
    found = times("on MPI send 256")
    assert engine.ratios(found, "on MPI", "send 256") == (9, 1)
    assert engine.ratios(found, "in process", "send 256") == (1, 1)


def test_the_last_line_says_which_targets_are_met() -> None:
    approved("bench_table", "the last line says which targets are met", engine.table(times())[-1])
    lines = engine.table(times("on MPI send 256"))
    approved("bench_table", "the last line says which targets are met, 2", lines[-1])
    (cell,) = (line for line in lines if line.startswith("  send of 256 B"))
    assert "1.00 (1.00) [1] OK" in cell
    assert "9.00 (1.00) [7] SLOW" in cell
