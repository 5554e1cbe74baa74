"""Pictures of a run in microseconds: their unit, and a width that its shortest computation needs."""

from __future__ import annotations

import pytest

from drawing import Attempt, draw, draw_compare, draw_pareto, svg, text
from lib import Outcome, Setting, referee, run
from puzzles.catalog.schedule import PUZZLES
from tests.support.solved import reference_of

GOAL = PUZZLES["hierarchy"].goal


@pytest.fixture(scope="module")
def hierarchy() -> Outcome:
    return run(reference_of("hierarchy"), *GOAL.size, setting=GOAL.setting)


def test_a_timeline_counts_in_microseconds(hierarchy: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    picture = svg(draw(hierarchy.trace, "Sums", goal=GOAL))
    assert "3,688 us (target &lt;" in picture
    assert ">us<" in picture
    assert ">3,000<" in picture
    assert "steps" not in picture
    assert capsys.readouterr().out.startswith("Timesteps: 3,688\n")


def test_a_timeline_in_microseconds_is_as_wide_as_a_notebook(hierarchy: Outcome) -> None:
    assert 'width="1000"' in svg(draw(hierarchy.trace, "Sums"))


def test_a_text_picture_counts_in_microseconds(hierarchy: Outcome) -> None:
    lines = text(hierarchy.trace, "Sums", goal=GOAL).splitlines()
    assert any(line.startswith("us ") for line in lines)
    assert lines[-1].endswith(" us")
    assert not any("steps" in line for line in lines)


@pytest.mark.slow
def test_two_runs_are_compared_in_microseconds(hierarchy: Outcome) -> None:
    picture = svg(draw_compare(hierarchy.trace, hierarchy.trace, "Sums"))
    assert "as many us" in picture


def test_the_front_is_in_microseconds(hierarchy: Outcome) -> None:
    picture = svg(draw_pareto(GOAL, [Attempt("mine", referee(hierarchy.trace, GOAL))]))
    assert "target: &lt; 3,800 us" in picture
    assert ">us<" in picture
    assert "timesteps" not in picture


def test_a_run_of_no_computation_can_be_drawn() -> None:
    def only_updates(model: object) -> None:
        model.load_weights(0)  # type: ignore[attr-defined]
        model.get_activation([0])  # type: ignore[attr-defined]

    trace = run(only_updates, 1, 1, 1, setting=Setting("hopper_nvlink")).trace
    assert "<svg" in svg(draw(trace))
