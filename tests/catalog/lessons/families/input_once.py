"""Any schedule, made to take each microbatch from the model once, and to keep what it then needs again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model

Schedule = Callable[[Model], Any]


def input_once(schedule: Schedule) -> Callable[[Model], Awaitable[None]]:
    """The schedule, in which `get_activation` of the same microbatches returns the value of the first call, which takes
    memory until its last use."""

    async def keeping(model: Model) -> None:
        result = schedule(_Keeping(model))  # type: ignore[arg-type]  # it answers as the model does
        if hasattr(result, "__await__"):
            await result

    return keeping


class _Keeping:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._taken: dict[tuple[tuple[int, ...], int, tuple[int, ...] | None], Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def get_activation(self, batches: Any, step: int = 0, shares: Any = None) -> Any:
        key = tuple(batches), step, None if shares is None else tuple(shares)
        if key not in self._taken:
            self._taken[key] = self._model.get_activation(batches, step, shares)
        return self._taken[key]
