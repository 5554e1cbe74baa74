"""Any schedule, made to load every weight again before each use, so that no rank keeps a weight or gets it sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model, Weight

Schedule = Callable[[Model], Any]


def load_again(schedule: Schedule) -> Callable[[Model], Awaitable[None]]:
    """The schedule, in which whoever reads a weight that was not updated yet, gets it loaded; gathers of such weights
    are left out."""

    async def reloading(model: Model) -> None:
        result = schedule(_Reloading(model))  # type: ignore[arg-type]  # it answers as the model does
        if hasattr(result, "__await__"):
            await result

    return reloading


class _Reloading:
    """A model whose dictionary of weights loads what is read from it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.weights = _Weights(model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def storage(self) -> tuple[Any, ...]:
        return (self.weights, *self._model.storage()[1:])

    def allgather(self, value: Any, layer: Any, group: Any = None) -> Awaitable[Any]:
        if isinstance(value, Weight) and value.step == 0:
            return self._loaded(value.layer)
        return self._model.allgather(value, layer, group)

    async def _loaded(self, layer: int) -> Weight:
        return self._model.load_weights(layer)[0]


class _Weights(dict[Any, Any]):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if not isinstance(value, Weight) or value.step:
            return value
        return self._model.load_weights(value.layer, *_part(value))[0]

    def pop(self, key: Any, *default: Any) -> Any:
        value = self[key] if key in self else default[0]
        super().pop(key, None)
        return value


def _part(weight: Weight) -> tuple[int, int]:
    """Which of how many equal parts a weight is."""
    start, count = min(weight.shards), len(weight.shards)
    assert weight.shards == {*range(start, start + count)}
    assert start % count == weight.total % count == 0
    return start // count, weight.total // count
