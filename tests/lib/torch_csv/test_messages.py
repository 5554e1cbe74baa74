"""The messages in PyTorch's files: what is accepted can be run, and what a refusal advises works."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest

from lib import DeadlockError, PuzzleError, RuleError
from lib.schedules import Timetable, interleaved, one_f_one_b, zb_h1, zb_v
from lib.torch_csv import read_csv, write_csv
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


def refusal(rows: Rows) -> str:
    try:
        read_csv(text_of(rows))
    except PuzzleError as why:
        return str(why)
    return ""


@pytest.mark.parametrize("name", ORDERS)
def test_a_message_that_is_missing_is_named_with_where_to_put_it(name: str) -> None:
    rows = with_messages(ORDERS[name])
    assert not refusal(rows)
    for rank, row in enumerate(rows):
        for action in filter(MESSAGE.fullmatch, row):
            wrong = [[each for each in other if (each, other) != (action, row)] for other in rows]
            said = refusal(wrong)
            stage, way, kind, batch = MESSAGE.fullmatch(action).groups()  # type: ignore[union-attr]
            source = int(stage) if way == "SEND" else int(stage) - (1 if kind == "F" else -1)
            thing = "activation" if kind == "F" else "gradient"
            assert f"rank {rank} does not {'send' if way == 'SEND' else 'receive'}" in said
            assert f"the {thing} of microbatch {batch} from stage {source}" in said
            assert not refusal(as_advised(wrong, said))


@pytest.mark.parametrize("name", ORDERS)
def test_so_is_one_that_is_neither_sent_nor_received(name: str) -> None:
    rows = with_messages(ORDERS[name])
    for row in rows:
        for action in filter(MESSAGE.fullmatch, row):
            stage, way, kind, batch = MESSAGE.fullmatch(action).groups()  # type: ignore[union-attr]
            there = int(stage) + (1 if kind == "F" else -1) * (1 if way == "SEND" else -1)
            both = {action, f"{there}{'RECV' if way == 'SEND' else 'SEND'}_{kind}{batch}"}
            wrong = [[each for each in other if each not in both] for other in rows]
            for _ in both:
                wrong = as_advised(wrong, refusal(wrong))
            assert not refusal(wrong)


def as_advised(rows: Rows, said: str) -> Rows:
    """The rows after what a refusal says to do."""
    found = re.search(r"; add (\w+) to row (\d+), (after|before) (\w+);", said)
    assert found is not None, said
    made = [list(row) for row in rows]
    row = made[int(found[2]) - 1]
    row.insert(row.index(found[4]) + (found[3] == "after"), found[1])
    return made


@pytest.mark.parametrize("name", ORDERS)
def test_without_its_messages_a_file_is_correct_as_every_refusal_says(name: str) -> None:
    rows = with_messages(ORDERS[name])
    del rows[0][next(at for at, word in enumerate(rows[0]) if "SEND" in word)]
    assert "leave out the communication" in refusal(rows)
    assert read_csv(text_of([[word for word in row if "_" not in word] for row in rows])) == ORDERS[name]


def changed(rows: Rows, choice: random.Random) -> Rows:
    """A message moved, left out, doubled, put on another rank or into another stage."""
    found = [list(row) for row in rows]
    row = choice.choice(found)
    at = choice.choice([at for at, word in enumerate(row) if MESSAGE.fullmatch(word)])
    word = row.pop(at)
    match choice.randrange(8):
        case 0:
            pass
        case 1:
            row[at:at] = [word, word]
        case 2:
            other = choice.choice(found)
            other.insert(choice.randint(0, len(other)), word)
        case 3:
            row.insert(at, re.sub(r"^\d+", str(choice.randrange(5)), word))
        case _:
            row.insert(max(0, min(len(row), at + choice.choice((-3, -2, -1, 1, 2, 3)))), word)
    return found


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 2000), marks=pytest.mark.slow)], ids=len)
def test_what_is_accepted_runs_and_nothing_else(name: str, seeds: range) -> None:
    """Against a player of these files that shares no code with the reader."""
    table, verdicts = ORDERS[name], set()
    sound = with_messages(table)
    for seed in seeds:
        rows, choice = sound, random.Random(seed)
        for _ in range(choice.choice((1, 1, 2))):
            rows = changed(rows, choice)
        said = refusal(rows)
        assert is_run(rows, table) == (not said), (said, text_of(rows))
        verdicts.add(not said)
    assert verdicts == {True, False}


def test_messages_that_are_sent_too_late_are_a_deadlock() -> None:
    late = "0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
    with pytest.raises(DeadlockError) as why:
        read_csv(late)
    for fact in (
        "rank 0 waits at 0B0 for the result of 1B0",
        "rank 1 waits at 1F0 for the result of 0F0",
        "right after",
    ):
        assert fact in str(why.value)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "rank 0 has 0SEND_F0 twice|leave out one"),
        ("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,0SEND_F0", "rank 1 has 0SEND_F0|stage 0 is on rank 0"),
        ("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0", "rank 1 has 1RECV_F0|wrong side of 1F0|before 1F0"),
        ("0F0,1F0,0SEND_F0,1B0,0B0", "rank 0 has 0SEND_F0|no cell of another rank|leave it out"),
        ("0F0,0SEND_F7,0B0\n1F0,1B0", "rank 0 has 0SEND_F7|activation of microbatch 7 from stage 0|leave it out"),
        (
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1",
            "rank 0 sends the activation of microbatch 0|rank 1 receives the activation of microbatch 1|no tags",
        ),
        ("0UNSHARD,0F0,0B0\n1UNSHARD,1F0,1B0", "rank 0 does not send the activation of microbatch 0"),
    ],
)
def test_each_refusal_says_who_what_and_what_to_do(text: str, facts: str) -> None:
    with pytest.raises(RuleError) as why:
        read_csv(text)
    assert [fact for fact in facts.split("|") if fact not in str(why.value)] == []
