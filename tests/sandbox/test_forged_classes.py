"""Each known forgery of a class's figures: it is refused, or its figures are unknown, or what its recording needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from puzzles.sandbox.worker.repeating import Repeated, UnrepeatableError
from tests.hostile import shared_memory
from tests.hostile.forged_classes import FORGERIES
from tests.support.verdicts import verdict_on


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_figure_makes_no_third_star(name: str) -> None:
    slug, source, figure, honest = FORGERIES[name]
    verdict = verdict_on(slug, source, secret="of this test")
    got = verdict.figures.get(figure)
    told = f"the forgery got {verdict.stars} stars and {figure} {got}, and needs {honest}: {verdict.message}"
    assert verdict.stars < 3, told
    assert got is None or got >= honest, told


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", shared_memory.FORGERIES)
def test_what_devices_share_gains_no_figure(name: str) -> None:
    """All devices run in one process; the recording is the only judge."""
    slug, source, figure, needed = shared_memory.FORGERIES[name]
    verdict = verdict_on(slug, source)
    got = verdict.figures.get(figure)
    assert verdict.stars <= 1 or got is not None, "what cannot be repeated has one star at most"
    assert got is None or got >= needed, f"{figure} {got}, and {needed} is needed: {verdict}"


@pytest.mark.slow
def test_a_verdict_is_reproduced_by_its_secret() -> None:
    slug, source, *_ = FORGERIES["bytes_from_public_seeds"]
    verdict = verdict_on(slug, source)
    again, other = (verdict_on(slug, source, secret=secret) for secret in (verdict.secret, "another"))
    assert again.message == verdict.message
    assert (other.status, other.stars, other.figures) == (verdict.status, verdict.stars, verdict.figures)


def of_all(key: int) -> Any:
    return ("view", key, 0, [2], [8], "<f8")


def test_devices_share_nothing_that_they_are_lent() -> None:
    """The first keeps its input in the parameters, and the second would read it there; nothing is sent."""
    loads = [["hold", 1, 16], ["given", 2], ["do", "numpy", "ravel", [of_all(2)], {}, [1]]]
    stores = [["hold", 3, 16], ["given", 3], ["do", "ufunc", "add.__call__", [of_all(3), 0], {"out": of_all(1)}, []]]
    takes = [["hold", 3, 16], ["given", 3], ["do", "communication", "barrier", [], {}, []], ["return", of_all(1)]]
    recordings = [[[], loads, [*stores, takes[2]]], [[], loads, takes]]
    with launch(Repeated, 2, recordings=recordings) as run:
        run.load_checkpoint({"weights": np.zeros(2)})
        with pytest.raises(UnrepeatableError, match="read-only"):
            run.forward([np.array([3.0, 4.0]), np.zeros(2)])
