"""Which tests a run has: `make test` some cases of every kind, the gate a tenth of the others, `make nightly` all."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

TESTS_OF_PROGRAMS = {
    *("browser", "catalog", "cli", "docs", "drawing", "judge", "layout"),
    *("page", "player", "sandbox", "screens", "teaching", "tracks"),
}
"""Folders whose tests take several times as long as others."""


def mark_all_but_samples(items: list[pytest.Item]) -> None:
    """Marks slow, of each test with the mark `sampled(n)`, all cases but n, which are spread evenly over the others."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark and not item.get_closest_marker("slow"):
            cases[item.nodeid.split("[")[0]].append(item)
    for of_a_test in cases.values():
        (number,) = of_a_test[0].get_closest_marker("sampled").args
        kept = {place * len(of_a_test) // number for place in range(number)}
        for place, item in enumerate(of_a_test):
            if place not in kept:
                item.add_marker(pytest.mark.slow(sampled=True))


SHARE = 10
"""Of the tests that `make test` leaves out, the gate runs one in so many; another commit chooses others."""

MAIN_PAGE = "test_site.py"
PARTS_OF_THE_SITE = 3
"""The gate has the tests of the main page, and one of so many parts of the other files of the site."""


def left_to_the_gate(
    items: list[pytest.Item], seed: str, ran: set[str] | None
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of the gate, and the others: of the slow tests the share that the seed chooses; of the quick ones all
    but those that `ran`, by their ids. Without such a set, the seed chooses among all tests.

    Tests of the site build on what the browser keeps from earlier ones, so the seed chooses among their files."""
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    pages = sorted({item.path for item in items if item.path.parent.name == "browser" and item.path.name != MAIN_PAGE})
    parts = {path: place % PARTS_OF_THE_SITE for place, path in enumerate(pages)}
    for item in items:
        if item.path.parent.name == "browser":
            is_chosen = parts.get(item.path) in (None, crc32(seed.encode()) % PARTS_OF_THE_SITE)
        elif ran is not None and not item.get_closest_marker("slow"):
            is_chosen = item.nodeid not in ran
        else:
            is_chosen = crc32(f"{seed} {item.nodeid}".encode()) % SHARE == 0
        (chosen if is_chosen else others).append(item)
    return chosen, others


def heaviest_files_first(items: list[pytest.Item]) -> None:
    """Orders the tests so that no process is left with a long file at the end, when the others have nothing to do."""
    weights: Counter[Path] = Counter()
    for item in items:
        slow = item.get_closest_marker("slow")
        weight = 4 if TESTS_OF_PROGRAMS.intersection(item.path.parts) else 1
        weights[item.path] += weight * (30 if slow and not slow.kwargs else 1)
    items.sort(key=lambda item: (-weights[item.path], item.path))


def first_of_each_kind(cases: Iterable[Any], kind: Callable[[Any], Any], every: int = 10**9) -> list[Any]:
    """The cases, each a tuple of arguments, as parameters: of every kind all are slow but the first, and then one in
    `every`."""
    seen: Counter[Any] = Counter()
    found = []
    for case in cases:
        found.append(pytest.param(*case, marks=[pytest.mark.slow] if seen[kind(case)] % every else []))
        seen[kind(case)] += 1
    return found


def some_of_each(*kinds: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrizes a test with `name`; of each kind one in three is run, and the rest is slow."""
    cases = [(name, number) for number, names in enumerate(kinds) for name in names]
    chosen = first_of_each_kind(cases, lambda case: case[1], every=3)
    return pytest.mark.parametrize("name", [pytest.param(case.values[0], marks=case.marks) for case in chosen])
