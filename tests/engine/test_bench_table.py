"""The bench's table: medians of pairs, which targets are met, and how busy the machine was."""

from __future__ import annotations

from tests.bench import engine
from tests.screens.texts import approved


def times(others: float, slow: str = "") -> engine.Times:
    """Ten turns in which everything takes as long as bare mpi4py, but `slow` nine times as long in most of them; the
    machine gets slower and slower."""
    found: engine.Times = {"others": [others]}
    for nbytes in engine.SIZES:
        for name in engine.OPERATIONS:
            for what in ("bare", "in process", "on MPI"):
                cell = f"{what} {name} {nbytes}"
                found[f"work {cell}"] = [0.25 if what == "in process" else 0.5] * 10
                found[cell] = [(turn + 1) * (9 if cell == slow and turn > 3 else 1) * 1e-5 for turn in range(10)]
    return found


def test_a_turn_is_compared_with_the_one_beside_it() -> None:
    found = times(0, "on MPI send 256")
    assert engine.ratios(found, "on MPI", "send 256") == (9, 1)
    assert engine.ratios(found, "in process", "send 256") == (1, 1)


def test_the_last_lines_say_which_targets_are_met() -> None:
    lines = engine.table(times(0.02))
    approved("bench_table", "the last lines say which targets are met", lines[-1])
    lines = engine.table(times(0.3, "on MPI send 256"))
    approved("bench_table", "the last lines say which targets are met, 2", lines[-3])
    approved("bench_table", "the last lines say which targets are met, 3", lines[-2], "other programs had 30%")
    assert lines[-1].endswith(
        "for 16 MiB in process, in those of bare mpi4py: "
        "all_reduce 0.50, all_gather 0.50, reduce_scatter 0.50, all_to_all 0.50, send 0.50"
    )
    (cell,) = (line for line in lines if line.startswith("  send of 256 B"))
    assert "1.00 (1.00) [1] OK" in cell
    assert "9.00 (1.00) [7] SLOW" in cell
