"""Random legal schedules are never called what they are not, by definitions that know nothing of our textbooks."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest

from lib import run
from lib.pipelines import recognize
from tests.ledger.test_random_programs import Choices
from tests.support.schedules.random_pipelines import played, random_pipeline
from tests.support.textbook_definitions import DEFINITIONS, NECESSARY, ahead, holds, operations

MORE = re.compile("with (one|two|three|four) more warm-up forwards?")
COUNTS = ("no", "one", "two", "three", "four")

FEW, MANY = range(40), range(40, 1040)


def check_pipelines(seeds: Iterable[int]) -> set[str]:
    """The names that were given, each of which holds; and no definition holds that another name was preferred to."""
    given = set()
    for seed in seeds:
        table, depth = random_pipeline(seed), 1 + seed % 2
        trace = played(table, depth)
        found = recognize(trace)
        assert found is not None
        ranks, p, m = operations(trace, depth), table.ranks, table.batches
        true = {name for name in DEFINITIONS if holds(name, ranks, p, m)}
        if found.difference:
            assert found.name not in true - NECESSARY, (seed, found.text)
            more = MORE.fullmatch(found.difference)
            if more is not None:
                assert all(ahead(cells, p - r - 1 + COUNTS.index(more[1]), m) for r, cells in enumerate(ranks)), seed
            else:
                assert f"rank {rank_named(found.difference)} " in found.difference
        elif found.name in DEFINITIONS:
            assert found.name in true, (seed, found.text)
            given.add(found.name)
        else:
            assert not true - NECESSARY, (seed, found.text, true)
    return given


def rank_named(difference: str) -> int:
    words = difference.split()
    return int(words[words.index("rank") + 1])


def test_a_random_pipeline_has_a_name_only_if_its_definition_holds() -> None:
    assert len(check_pipelines(FEW)) >= 4


@pytest.mark.slow
def test_five_hundred_random_pipelines_have_names_only_if_their_definitions_hold() -> None:
    assert check_pipelines(MANY[::2]) == DEFINITIONS.keys()


def of_layer(choices: Choices, layer: int) -> str:
    """What data parallelism a layer belongs to, from the choices that made the schedule."""
    if not choices.pick(f"shard{layer}", 2):
        return "data parallelism"
    return "ZeRO-3 (FSDP)" if choices.pick(f"scatter{layer}", 2) else "weight-sharded data parallelism"


def check_data_parallel(seeds: Iterable[int]) -> set[str]:
    given = set()
    for seed in seeds:
        draw = random.Random(seed)
        layers, batches, ranks = draw.randint(1, 3), draw.randint(1, 4), draw.randint(2, 4)
        choices = Choices(ranks, seed)
        found = recognize(run(choices, layers, batches, ranks).trace)
        assert found is not None
        kinds = {of_layer(choices, layer) for layer in range(layers)}
        if len({choices.pick(f"rank of {batch}", ranks) for batch in range(batches)}) == 1:
            assert found.family == "training on one rank"
            continue
        assert found.name in kinds
        assert bool(found.difference) == (len(kinds) > 1)
        assert not found.difference or f"layer {layer_named(found.difference)} " in found.difference
        if found.difference:
            assert of_layer(choices, layer_named(found.difference)) != found.name
        given.add(found.name)
    return given


def layer_named(difference: str) -> int:
    return int(difference.split()[1])


def test_random_data_parallelism_is_named_by_what_was_chosen() -> None:
    assert len(check_data_parallel(FEW)) == 3


@pytest.mark.slow
def test_a_thousand_random_data_parallel_schedules_are_named_by_what_was_chosen() -> None:
    assert len(check_data_parallel(MANY)) == 3
