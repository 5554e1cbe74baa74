"""PyTorch's CSV files: orders and messages written, read and refused, and times of cells. None of it needs torch."""

import random
import re
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from drawing.predicted_vs_measured import measured as scene_measured
from drawing.run_text import reasons
from drawing.scene import Scene, scene_of
from lib import Model, PuzzleError, RuleError, Setting, Trace, run
from lib.pipelines import (
    Timetable,
    breadth_first,
    dualpipev,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    tensor_parallel,
    zb_h1,
    zb_h2,
    zb_v,
)
from lib.pipelines.torch_csv import CellTimes, Pipeline, event_times, read_csv, write_csv, write_table
from tests.support import finished
from tests.support.irregular_pipeline import LAYERS, MICROBATCHES, RANKS, irregular
from tests.support.refusals import Refused
from tests.support.schedules.random_pipelines import TEXTBOOKS, played, random_pipeline, textbook

# === Messages ===


WITH_MESSAGES = {"1F1B": one_f_one_b(3, 4), "ZB-H1": zb_h1(2, 3), "ZB-V": zb_v(2, 3), "interleaved": interleaved(2, 4)}
MESSAGE = re.compile(r"(\d+)(SEND|RECV)_([FB])(\d+)")
Rows = list[list[str]]


def with_messages(table: Timetable) -> Rows:
    return [row.split(",") for row in write_csv(played(table), communication=True).splitlines()]


def text_of(rows: Rows) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


def is_run(rows: Rows, table: Timetable) -> bool:
    """Plays the rows as PyTorch with gloo does: who sends does not wait, the n-th receive from a rank takes its n-th
    message, and a cell waits for its inputs. True if all ends with each message used by the cell that needs it."""
    rank_of = {str(cell): rank for cell, rank in table.needs.rank_of.items()}
    stages = {cell.stage: rank for cell, rank in table.needs.rank_of.items()}
    sent: dict[tuple[int, int], list[str]] = defaultdict(list)
    posted: dict[tuple[int, int], list[str]] = defaultdict(list)
    done: set[str] = set()
    at = [0] * len(rows)

    def goes_on(rank: int, word: str) -> bool:
        if found := MESSAGE.fullmatch(word):
            stage, way, kind, batch = int(found[1]), found[2], found[3], found[4]
            step = 1 if kind == "F" else -1
            source, to = (stage, stage + step) if way == "SEND" else (stage - step, stage)
            if source not in stages or to not in stages or stages[stage] != rank:
                raise ValueError(word)
            made = [
                f"{source}{op}{batch}" for op in ("F" if kind == "F" else "BI") if f"{source}{op}{batch}" in rank_of
            ]
            if way == "SEND" and made[0] not in done:
                raise ValueError(word)
            (sent if way == "SEND" else posted)[stages[source], stages[to]].append(made[0])
        else:
            cell = next(cell for cell in table.needs.rank_of if str(cell) == word)
            for need in map(str, table.needs.of(cell)):
                pair = rank_of[need], rank
                if pair[0] == rank:
                    assert need in done
                    continue
                turn = posted[pair].index(need)  # a ValueError where it is not received
                if turn >= len(sent[pair]):
                    return False
                if sent[pair][turn] != need:
                    raise ValueError(word)
            done.add(word)
        return True

    going = True
    while going:
        going = False
        for rank, row in enumerate(rows):
            try:
                while at[rank] < len(row) and goes_on(rank, row[at[rank]]):
                    at[rank] += 1
                    going = True
            except ValueError:
                return False
    once = all(len({*each}) == len(each) and pair[0] != pair[1] for pair, each in sent.items())
    return once and sent == posted and at == [*map(len, rows)]


@pytest.mark.parametrize("name", WITH_MESSAGES)
def test_messages_that_are_written_run(name: str) -> None:
    """On a player of these files that shares no code with the writer, and that notices a missing or doubled message."""
    table = WITH_MESSAGES[name]
    rows = with_messages(table)
    assert is_run(rows, table)
    for row in rows:
        for at in [at for at, word in enumerate(row) if MESSAGE.fullmatch(word)]:
            word = row.pop(at)
            assert not is_run(rows, table)
            assert read_csv(text_of(rows)) == table, "messages are left out"
            row[at:at] = [word, word]
            assert not is_run(rows, table)
            row.pop(at)


def test_a_message_that_is_sent_twice_is_refused_only_with_communication() -> None:
    async def twice(model: Model) -> None:
        weight, state = model.load_weights(model.rank)
        if model.rank == 0:
            inp = model.get_activation([0])
            out = model.forward(0, inp, weight)
            await model.pass_to(1, (out, out))
            grad = await model.receive(1)
        else:
            inp, _ = await model.receive(0)
            grad = model.loss(model.forward(1, inp, weight))
        new, before = model.backward(model.rank, inp, grad, weight)
        if model.rank:
            await model.pass_to(0, before)
        model.set_final_weight(model.rank, model.update(model.rank, new, weight, state)[0])

    outcome = finished(twice, 2, 1, 2, setting=Setting("parts"))
    assert read_csv(write_csv(outcome.trace)) == one_f_one_b(2, 1)
    with Refused("sent several times", rank=0, count=2):
        write_csv(outcome.trace, communication=True)


# === What is written, what is read, and what is refused ===


ORDERS = [gpipe(4, 8), one_f_one_b(4, 8), zb_h1(4, 8), zb_h2(4, 8), zb_v(4, 8), interleaved(4, 8), breadth_first(2, 4)]


def traced(schedule: object, layers: int, batches: int, ranks: int, setting: Setting) -> Trace:
    return finished(schedule, layers, batches, ranks, setting=setting).trace  # type: ignore[arg-type]


# --- Written and read ---


@pytest.mark.sampled(3)
@pytest.mark.parametrize("table", ORDERS)
def test_an_order_is_the_same_after_it_was_written_and_read(table: Timetable) -> None:
    trace = played(table)
    assert read_csv(write_csv(trace)) == table
    assert read_csv(write_csv(trace, communication=True)) == table
    assert read_csv(write_table(table)) == table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(12))
def test_so_is_a_random_pipeline(seed: int) -> None:
    table = random_pipeline(seed)
    flat = as_the_last_stage_takes_them(table)
    trace = played(table)
    assert read_csv(write_csv(trace)) == flat
    rows = [row.split(",") for row in write_csv(trace, communication=True).splitlines()]
    assert is_run(rows, flat)


def as_the_last_stage_takes_them(table: Timetable) -> Timetable:
    """The order with microbatches renumbered, and no two cells together."""
    last = [cell.batch for cell in table.cells if (cell.stage, cell.op) == (table.stages - 1, "F")]
    return Timetable.of(
        [cell._replace(batch=last.index(cell.batch)) for slot in row for cell in slot] for row in table.rows
    )


def test_microbatches_are_numbered_as_the_last_stage_takes_them() -> None:
    """PyTorch keeps losses in the order in which they come, and looks them up by number."""
    table = Timetable.read("0F1 0F0 0F2 0B1 0B0 0B2\n1F1 1B1 1F0 1B0 1F2 1B2")
    assert write_csv(played(table)) == "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"


def test_layers_of_a_rank_that_follow_each_other_are_a_stage() -> None:
    found = Pipeline.of(played(one_f_one_b(2, 4), depth=3))
    assert found.depths == [3, 3]
    assert found.table == one_f_one_b(2, 4)


def test_stages_may_have_different_depths_and_a_backward_in_halves_or_not() -> None:
    trace = traced(irregular, LAYERS, MICROBATCHES, RANKS, Setting("parts"))
    found = Pipeline.of(trace)
    assert found.depths == [2, 1, 1, 1]
    text = write_csv(trace)
    rows = text.splitlines()
    assert rows[0].startswith("0F1,0F0,")
    assert "0B" in rows[0]
    assert "1W" in rows[1]
    assert read_csv(text) == found.table


def test_without_an_input_half_of_layer_0_its_backward_is_whole() -> None:
    async def schedule(model: Model) -> None:
        weight, state = model.load_weights(0)
        total = None
        for b in range(model.BATCHES):
            inp = model.get_activation([b])
            grad = model.loss(model.forward(0, inp, weight))
            new = model.backward_weight(0, inp, grad)
            total = new if total is None else total + new
        model.set_final_weight(0, model.update(0, total, weight, state)[0])

    assert write_csv(traced(schedule, 1, 2, 1, Setting("parts"))) == "0F0,0B0,0F1,0B1\n"


def test_weights_in_shards_are_gathered_and_gradients_scattered() -> None:
    schedule = pipeline(breadth_first, v=2, sharded=True)
    trace = traced(schedule, 4, 4, 4, Setting("gathers", mesh={"pp": 2, "dp": 2}))
    assert read_csv(write_csv(trace)) == breadth_first(2, 2)
    first, _ = write_csv(trace, communication=True).splitlines()
    kept = [action for action in first.split(",") if re.search("SHARD|GRAD|[FB]0$", action) and "_" not in action[:7]]
    assert (
        kept
        == "0UNSHARD 0F0 0RESHARD 2UNSHARD 2F0 2B0 2RESHARD 2REDUCE_GRAD 0UNSHARD 0B0 0RESHARD 0REDUCE_GRAD".split()
    )


DUMPED = """\
0F0,0SEND_F0,0F1,0SEND_F1,,0RECV_B0,0I0,0W0,0RECV_B1,0I1,0W1,0REDUCE_GRAD
1RECV_F0,1F0,1RECV_F1,1I0,1SEND_B0,1F1,1I1,1SEND_B1,1W0,1W1,None,1REDUCE_GRAD
"""


def test_what_pytorch_writes_is_read() -> None:
    table = read_csv(DUMPED)
    assert str(table) == "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1"
    slots = dualpipev(2, 4)
    assert "OVERLAP_F_B" in write_table(slots)
    assert read_csv(write_table(slots)) == slots


# --- Refused ---


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", "empty|row for each rank"),
        ("0F0,0X0", "row 1, column 2|'0X0'|2F5"),
        ("0F0,0B0\n\n", ""),
        ("0F0,0B0\n\n1F0,1B0", "rank 1 has no cells"),
        ("0F0,0B0,(1F0;1B0)", "row 1, column 3"),
    ],
)
def test_a_file_that_holds_no_step_is_refused(text: str, facts: str) -> None:
    if not facts:
        assert read_csv(text).ranks == 1
        return
    with pytest.raises(PuzzleError) as why:
        read_csv(text)
    assert [fact for fact in facts.split("|") if fact not in str(why.value)] == []


async def both(model: Model) -> None:
    """Two microbatches in one operation, on one rank."""
    weight, state = model.load_weights(0)
    inp = model.get_activation([0, 1])
    grad = model.loss(model.forward(0, inp, weight))
    new, _ = model.backward(0, inp, grad, weight)
    model.set_final_weight(0, model.update(0, new, weight, state)[0])


async def idle(model: Model) -> None:
    if not model.rank:
        await both(model)


async def split_halves(model: Model) -> None:
    """Rank 0 computes forward and the input half, rank 1 the weight half of the same layer."""
    if model.rank:
        inp, grad = await model.receive(0)
        weight, state = model.load_weights(0)
        new = model.backward_weight(0, inp, grad)
        model.set_final_weight(0, model.update(0, new, weight, state)[0])
    else:
        weight, _ = model.load_weights(0)
        inp = model.get_activation([0])
        grad = model.loss(model.forward(0, inp, weight))
        model.backward_input(0, inp, grad, weight)
        await model.pass_to(1, (inp, grad))


async def unfinished(model: Model) -> None:
    model.get_activation([0])


REFUSED = {
    "several microbatches": (both, (1, 2, 1), Setting(), "rank 0 forward(layer=0) microbatches 0, 1 at once"),
    "nothing": (idle, (1, 2, 2), Setting(), "rank 1 computes nothing"),
    "halves": (split_halves, (1, 1, 2), Setting("parts"), "layer 0 microbatch 0 on rank 0 and on rank 1"),
    "recomputation": (
        pipeline(one_f_one_b, recompute=True),
        (4, 2, 2),
        Setting("parts"),
        "forward(layer=0) a second time torch.utils.checkpoint",
    ),
    "steps": (pipeline(zb_h1), (2, 2, 2), Setting("parts", steps=2), "2 steps steps=1"),
    "shards": (tensor_parallel, (2, 1, 2), Setting("quarters", layer="block"), "part of a weight full weights"),
    "frozen": (unfinished, (2, 1, 1), Setting("parts", frozen=frozenset({0})), "frozen backward of every microbatch"),
    "wrong": (unfinished, (1, 1, 1), Setting(), "correct run"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_has_no_word_for_is_refused_with_the_reason(name: str) -> None:
    schedule, size, setting, facts = REFUSED[name]
    outcome = run(schedule, *size, setting=setting)
    with pytest.raises(RuleError) as why:
        write_csv(outcome.trace)
    assert [word for word in facts.split() if word not in str(why.value)] == []


def test_a_message_that_pytorch_does_not_send_is_refused_only_with_communication() -> None:
    async def also_sends_a_weight(model: Model) -> None:
        if model.rank:
            await model.receive(0, tag=9)
        else:
            await model.pass_to(1, model.load_weights(0)[0], tag=9)
        await pipeline(one_f_one_b)(model)

    trace = traced(also_sends_a_weight, 2, 2, 2, Setting("parts"))
    assert read_csv(write_csv(trace)) == one_f_one_b(2, 2)
    with Refused("value not sent", rank=0, words="sends", value="weight of layer 0, unsharded, step 0"):
        write_csv(trace, communication=True)


def test_a_message_by_a_detour_is_refused_only_with_communication() -> None:
    async def detour(model: Model) -> None:
        """Two stages on ranks 0 and 1; rank 2, with the last, hands on the activation of the first."""
        rank = model.rank
        weight, state = model.load_weights(rank)
        if rank == 0:
            inp = model.get_activation([0])
            await model.pass_to(2, model.forward(0, inp, weight))
        if rank == 2:
            await model.pass_to(1, await model.receive(0))
        if rank:
            inp = await model.receive(2 if rank == 1 else 1)
            out = model.forward(rank, inp, weight)
        if rank == 1:
            await model.pass_to(2, out)
        grad = model.loss(out) if rank == 2 else await model.receive(rank + 1)
        new, before = model.backward(rank, inp, grad, weight)
        if rank:
            await model.pass_to(rank - 1, before)
        model.set_final_weight(rank, model.update(rank, new, weight, state)[0])

    trace = traced(detour, 3, 1, 3, Setting("parts"))
    assert read_csv(write_csv(trace)) == gpipe(3, 1)
    with Refused("sent past stages", rank=0, words="sends", source=0, to=1):
        write_csv(trace, communication=True)


# === Times of events from those of cells: no arrow points back ===


async def all_received_first(model: Model) -> None:
    """Rank 1 receives every activation before its first forward, and rank 0 every gradient; sends come late."""
    first = model.rank == 0
    weight, state = model.load_weights(model.rank)
    inputs = [model.get_activation([b]) if first else await model.receive(0, tag=b) for b in range(model.BATCHES)]
    made = [model.forward(model.rank, each, weight) for each in inputs]
    if first:
        for b, each in enumerate(made):
            await model.pass_to(1, each, tag=b)
    grads = [await model.receive(1, tag=b) for b in range(model.BATCHES)] if first else [*map(model.loss, made)]
    done = [model.backward(model.rank, *each, weight) for each in zip(inputs, grads)]
    if not first:
        for b, (_, grad) in enumerate(done):
            await model.pass_to(0, grad, tag=b)
    total = sum((one for one, _ in done[1:]), done[0][0])
    model.set_final_weight(model.rank, model.update(model.rank, total, weight, state)[0])


async def relayed(model: Model) -> None:
    """Ranks 0, 2 and 1 have the layers 0, 1 and 2; all between rank 0 and rank 2 goes through rank 1."""
    layer = (0, 2, 1)[model.rank]
    weight, state = model.load_weights(layer)
    total = model.fake_grad(layer, [])
    for b in range(model.BATCHES):
        if model.rank == 1:
            await model.pass_to(2, await model.receive(0))
        given = await model.receive((0, 2, 1)[model.rank]) if model.rank else model.get_activation([b])
        made = model.forward(layer, given, weight)
        if model.rank == 1:
            one, grad = model.backward(layer, given, model.loss(made), weight)
            await model.pass_to(2, grad)
            await model.pass_to(0, await model.receive(2))
        else:
            await model.pass_to(1, made)
            one, grad = model.backward(layer, given, await model.receive(1), weight)
            if model.rank == 2:
                await model.pass_to(1, grad)
        total = total + one
    model.set_final_weight(layer, model.update(layer, total, weight, state)[0])


def made_up(pipeline: Pipeline, choice: random.Random) -> CellTimes:
    """Cells of random lengths with random pauses, each after what it needs."""
    table = pipeline.table
    ends: dict[str, float] = {}
    now = [0.0] * table.ranks
    cells: list[dict[str, tuple[float, float]]] = [{} for _ in table.rows]
    rows = [[cell for slot in row for cell in slot] for row in table.rows]
    while any(rows):
        for rank, row in enumerate(rows):
            while row and all(str(need) in ends for need in table.needs.of(row[0])):
                cell = row.pop(0)
                start = max([now[rank], *(ends[str(need)] for need in table.needs.of(cell))])
                start += choice.choice((0.0, choice.random()))
                now[rank] = ends[str(cell)] = start + choice.choice((0.01, 1.0, choice.expovariate(1.0)))
                cells[rank][str(cell)] = start, now[rank]
    return cells


def require_true(pipeline: Pipeline, measured: CellTimes) -> Scene:
    """No arrow points back; a message that a cell uses is received when the first such cell starts."""
    times, only = event_times(pipeline, measured), pipeline.only()
    scene = scene_measured(scene_of(pipeline.trace), times)
    for link in scene.links:
        assert link.received is not None
        assert link.received >= link.sent, link
    for place, lane in enumerate(scene.lanes):
        used: dict[int, float] = {}
        for cell, ats in only.cells[place].items():
            for value in (value for at in ats for value in only.works[place].ops[at].inputs):
                used[value] = min(measured[place][str(cell)][0], used.get(value, float("inf")))
        for mark in lane.marks:
            starts = [used[value] for value in mark.op.outputs if value in used]
            assert mark.op.name != "receive" or not starts or mark.start == min(starts)
        busy = sum(mark.end - mark.start for mark in lane.marks)
        idle = sum(gap.end - gap.start for gap in lane.gaps)
        assert busy + idle == pytest.approx(scene.end), "what is idle is not busy"
    return scene


def trace_of(schedule: Callable[..., Any], layers: int, batches: int, ranks: int) -> Trace:
    return finished(schedule, layers, batches, ranks, setting=Setting("parts")).trace


def order(name: str) -> Trace:
    table = next(filter(None, (textbook(name, 3, m) for m in (4, 3, 6))))
    return played(table, depth=2)


TRACES: dict[str, Callable[[], Trace]] = {
    "irregular": lambda: trace_of(irregular, LAYERS, MICROBATCHES, RANKS),
    "received first": lambda: trace_of(all_received_first, 2, 3, 2),
    "relayed": lambda: trace_of(relayed, 3, 3, 3),
    **{name: partial(order, name) for name in TEXTBOOKS},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRACES)
def test_no_arrow_points_back_whatever_the_durations(name: str) -> None:
    pipeline = Pipeline.of(TRACES[name]())
    for seed in range(3):
        require_true(pipeline, made_up(pipeline, random.Random(seed)))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 200))])
def test_no_arrow_of_a_random_order_points_back(seed: int) -> None:
    pipeline = Pipeline.of(played(random_pipeline(seed), depth=1 + seed % 2))
    require_true(pipeline, made_up(pipeline, random.Random(seed)))


def test_a_rank_that_is_idle_waits_for_the_sender() -> None:
    """The last rank receives its first activation when it starts to use it, so its picture says whom it waited for."""
    pipeline = Pipeline.of(played(one_f_one_b(3, 4)))
    scene = require_true(pipeline, made_up(pipeline, random.Random(1)))
    first = scene.lanes[2].gaps[0]
    assert first.before is not None
    assert first.before.op.name == "receive"
    assert reasons(first, scene)[0] == "waits for rank 1"
