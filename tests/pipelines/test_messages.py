"""The messages in PyTorch's files: what is written can be run, and what is read is left out."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from lib import Model, Setting
from lib.pipelines import Timetable, interleaved, one_f_one_b, zb_h1, zb_v
from lib.pipelines.torch_csv import read_csv, write_csv
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules.random_pipelines import played

ORDERS = {"1F1B": one_f_one_b(3, 4), "ZB-H1": zb_h1(2, 3), "ZB-V": zb_v(2, 3), "interleaved": interleaved(2, 4)}
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


@pytest.mark.parametrize("name", ORDERS)
def test_messages_that_are_written_run(name: str) -> None:
    """On a player of these files that shares no code with the writer, and that notices a missing or doubled message."""
    table = ORDERS[name]
    rows = with_messages(table)
    assert is_run(rows, table)
    for row in rows:
        for at in [at for at, word in enumerate(row) if MESSAGE.fullmatch(word)]:
            word = row.pop(at)
            assert not is_run(rows, table)
            row[at:at] = [word, word]
            assert not is_run(rows, table)
            row.pop(at)


@pytest.mark.parametrize("name", ORDERS)
def test_messages_of_a_file_that_is_read_are_left_out(name: str) -> None:
    rows = with_messages(ORDERS[name])
    assert read_csv(text_of(rows)) == ORDERS[name]
    del rows[0][next(at for at, word in enumerate(rows[0]) if "SEND" in word)]
    assert read_csv(text_of(rows)) == ORDERS[name]


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
