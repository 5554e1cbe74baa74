"""The core path: prerequisites form no circle and come first, and what is solved anywhere counts."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

import pytest

from puzzles.catalog.path import AFTER, CORE, ON_TENSORS, PATH, known, next_on_path
from puzzles.tracks import ALL, SHIPPED, TRACKS, before, mark, place, track_of
from tests.screens.texts import approved


def test_the_path_has_ten_steps_of_puzzles_that_exist_each_once() -> None:
    assert len(PATH) == 10
    assert len(set(CORE)) == len(CORE)
    assert SHIPPED.issuperset({*CORE, *AFTER, *ON_TENSORS, *ON_TENSORS.values(), *sum(AFTER.values(), ())})
    assert {ALL[slug].name for slug in CORE} == set(TRACKS), "it crosses all tracks"


def test_prerequisites_form_no_circle_and_come_first() -> None:
    list(TopologicalSorter(AFTER).static_order())
    for number, slug in enumerate(CORE):
        assert set(CORE[:number]).issuperset(known(AFTER.get(slug, ()))), f"{slug} comes too early"


@pytest.mark.parametrize("slug", CORE)
def test_a_core_puzzle_speaks_of_earlier_puzzles_only(slug: str) -> None:
    puzzle, earlier = track_of(slug).puzzle(slug), known(CORE[: CORE.index(slug)])
    words = " ".join([puzzle.statement, puzzle.starter, *puzzle.hints])
    assert {*re.findall(r"`(\w+)`", words)} & {*ALL} <= {slug, *earlier}


def test_every_core_puzzle_but_the_first_builds_on_another() -> None:
    assert [slug for slug in CORE if not AFTER.get(slug)] == ["basic"]


def test_a_class_does_what_a_schedule_plans() -> None:
    assert all(ALL[schedule].name == "schedule" for schedule in ON_TENSORS)
    assert all(ALL[tensors].name == "engine" for tensors in ON_TENSORS.values())


def test_the_path_is_walked_in_order() -> None:
    solved: list[str] = []
    while (slug := next_on_path(solved, solved[-1] if solved else "")) is not None:
        solved.append(slug)
    assert tuple(solved) == CORE


PLACED = [
    ((), "", "basic"),
    (("fsdp",), "fsdp", "checkpoint"),  # FSDP builds on DataParallel, which is not known
    (("fsdp", "DataParallel"), "fsdp", "FSDP"),
    (("three_d",), "three_d", "RingAllReduce"),
    (CORE, "llama_70b_64", None),
    (("basic",), "gpipe", "gpipe"),  # tried and not solved
    (("interleaved",), "interleaved", "DataParallel"),
]


@pytest.mark.parametrize(("solved", "after", "following"), PLACED)
def test_what_comes_before_a_solved_puzzle_is_known(solved: tuple[str, ...], after: str, following: str | None) -> None:
    assert next_on_path(solved, after) == following


def test_the_words_on_a_place() -> None:
    assert place("fsdp") == f"core 7 of {len(CORE)}; after: zero1; the same on real tensors: FSDP"
    assert place("FSDP") == f"core 8 of {len(CORE)}; after: fsdp, DataParallel; the same as a schedule: fsdp"
    assert place("wsdp") == "optional; after: ddp"
    assert (mark("a teacher's"), place("a teacher's")) == ("", "")
    approved("path", "the words on a place, 3", before(["basic", "FSDP", "a teacher's"]))
