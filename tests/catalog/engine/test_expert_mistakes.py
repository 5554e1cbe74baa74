"""Chapter `experts`, mistakes and cheats: the message that a player gets, or the target that stops it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lib.engine import ShardedEngine
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.engine.transformer import softmax
from puzzles.catalog.engine.trial import MethodCall, Trial, WrongResultError
from puzzles.content.engine.experts import trials
from puzzles.tracks.engine.trial_runs import require_right
from solutions.engine.exact_dispatch import ExactDispatch
from solutions.engine.switch_dispatch import SwitchDispatch
from tests.screens.texts import approved
from tests.support.engine_trials import perform, score_class

pytestmark = pytest.mark.usefixtures("in_this_process")

N = 4


class EverybodyHasAll(SwitchDispatch):
    """Sends nothing: every device holds every expert."""

    def __init__(self, factor: float, **_: Any) -> None:
        self.factor = factor

    def load_checkpoint(self, params: Any) -> None:
        self.params = {name: value.copy() for name, value in params.items()}

    def forward(self, x: Any) -> Any:
        return trials.switch_layer(self.params, x, math.ceil(len(x) / 4 * self.factor))


class OneHasAllTokens(ExactDispatch):
    """No counts: every device gathers all tokens, processes them, and sums the experts' outputs."""

    def forward(self, x: Any) -> Any:
        every = self.all_gather(x)
        p = softmax(every @ self.router)
        chosen = p.argmax(axis=1) == self.device_id
        made = np.zeros_like(every)
        made[chosen] = np.maximum(every[chosen] @ self.w0, 0) @ self.w1
        mine = slice(self.device_id * len(x), (self.device_id + 1) * len(x))
        return x + p.max(axis=1)[mine, None] * self.reduce_scatter(made)


class NoExpert(ShardedEngine):
    """Returns what came in."""

    def __init__(self, **_: Any) -> None:
        pass

    def load_checkpoint(self, params: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return {"out": x["x"] if isinstance(x, dict) else x, "dropped": np.arange(0), "aux": np.zeros(1)}

    def backward(self, grads: Any) -> Any:
        pass


@pytest.mark.parametrize(
    ("slug", "cls", "missed"),
    [
        ("SwitchDispatch", EverybodyHasAll, "bytes after loading 33,024, and the target is 8,448"),
        ("ExactDispatch", OneHasAllTokens, "bytes sent 3,072, and the target is 1,056"),
    ],
)
def test_a_cheat_misses_its_targets(slug: str, cls: type, missed: str) -> None:
    assert missed in score_class(ENGINE_PUZZLES[slug], cls).missed


@pytest.mark.parametrize("slug", ["SwitchDispatch", "GShardTop2"])
def test_a_layer_that_does_nothing_is_wrong(slug: str) -> None:
    with pytest.raises(WrongResultError):
        score_class(ENGINE_PUZZLES[slug], NoExpert)


def test_only_the_mistake_that_was_made_is_named() -> None:
    right, mistake = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    call = MethodCall("forward", [right] * N, [right] * N, {"you added one": [mistake] * N})

    class Returns(NoExpert):
        def __init__(self, what: Any) -> None:
            self.what = np.array(what)

        def forward(self, x: Any) -> Any:
            return self.what

    def told(what: list[float]) -> str:
        trial = Trial({"what": what}, {}, (call,), about="here is nothing special")
        with pytest.raises(WrongResultError) as why:
            require_right(trial, perform(trial, Returns))
        return str(why.value).partition("should be ")[2]

    approved("expert_mistakes", "only the mistake that was made is named", told([1, 3]))
    approved("expert_mistakes", "only the mistake that was made is named, 2", told([1, 4]))
