"""The picture and the words of a deadlock: who is stuck in which call at which line, in a cycle where there is one."""

from __future__ import annotations

import drawing
from drawing.scene import scene_from
from lib import DeadlockError, Model, Setting, run
from tests.support.refusals import Refused


async def in_a_cycle(model: Model) -> None:
    if model.rank < 3:
        await model.receive((model.rank + 1) % 3)


async def without_group(model: Model) -> None:
    weight, _ = model.load_weights(0, model.index("tp"), 2)
    if model.index("pp"):
        await model.receive(0)
    else:
        await model.allgather(weight, 0)


def test_ranks_that_wait_for_each_other_are_named_in_their_cycle() -> None:
    error = run(in_a_cycle, 1, 4, 4).error
    Refused("nobody can move", cycle=[(0, 1), (1, 2), (2, 0)], absent={3: "has returned"}).require(error)


def test_a_chain_is_no_cycle() -> None:
    async def chain(model: Model) -> None:
        if model.rank:
            await model.receive(model.rank - 1)

    Refused("nobody can move", cycle=[]).require(run(chain, 1, 4, 4).error)


def test_a_forgotten_group_is_shown_with_its_call() -> None:
    said = str(run(without_group, 1, 1, 4, setting=Setting("classic", mesh={"pp": 2, "tp": 2})).error)
    assert "name a group: allgather(layer=0)" in said
    assert "name a group" not in str(run(in_a_cycle, 1, 4, 4).error), "there are no groups"


def test_the_picture_says_in_its_title_and_in_lines_who_is_stuck_where() -> None:
    outcome = run(in_a_cycle, 1, 4, 4)
    lines = drawing.text(outcome, "Mine").splitlines()
    assert lines[0] == "Deadlock: Mine"
    assert any("rank 1 waits in receive(2) on line " in line for line in lines)
    assert any(line.startswith("they wait for each other in a cycle: ") for line in lines)
    source = drawing.svg(drawing.draw(outcome, "Mine"))
    assert "Deadlock: Mine" in source
    assert "they wait for each other in a cycle: " in source


def test_each_row_shows_where_its_rank_is_stuck_and_arrows_show_the_cycle() -> None:
    timeline = drawing.draw(run(in_a_cycle, 1, 4, 4), "Mine")
    stuck = {lane.rank: gap.stuck for lane in timeline.scene.lanes for gap in lane.gaps if gap.stuck}
    assert [stuck[rank].partition(" on line ")[0] for rank in sorted(stuck)] == [f"in receive({r})" for r in (1, 2, 0)]
    source = drawing.svg(timeline)
    assert source.count("stuck in receive(") >= 3
    assert "has nothing left to do" in source, "rank 3 has returned"


def test_ranks_that_are_named_together_are_all_stuck() -> None:
    async def nobody_sends(model: Model) -> None:
        if model.rank != 3:
            await model.receive()

    outcome = run(nobody_sends, 1, 6, 6)
    Refused("nobody can move", cycle=[]).require(outcome.error)
    gaps = [gap for lane in scene_from(outcome).lanes for gap in lane.gaps]
    assert [bool(gap.stuck) for gap in gaps] == [True, True, True, False, True, True]


def test_the_trace_alone_shows_an_unfinished_run() -> None:
    assert drawing.text(run(in_a_cycle, 1, 4, 4).trace, "Mine").splitlines()[0] == "Mine"


def test_an_ended_run_is_drawn_as_the_outcome_is() -> None:
    outcome = run(in_a_cycle, 1, 4, 4)
    assert isinstance(outcome.error, DeadlockError)
    assert drawing.text(drawing.EndedRun(outcome.trace, outcome.error)) == drawing.text(outcome)
