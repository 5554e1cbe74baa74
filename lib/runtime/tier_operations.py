"""The player's calls that move values between a device and its other memories: offload and fetch."""

from collections.abc import Awaitable
from typing import Any

from lib.communication.lanes import PendingValue
from lib.errors import PuzzleError, RuleError
from lib.rules import durations, operations
from lib.trace.ops import NO_BATCHES, Op, call_text
from lib.values.base import Value, copy_of, object_text

from .computation import Computation
from .recorder import player_line
from .waits import CopyWait


class TierOperations(Computation):
    """Copies from and to memory tiers. Where communication overlaps computation, each way has a lane of its own."""

    def offload(self, v: Any, to: str = "host") -> Awaitable[Any]:
        """A copy of a value on a memory tier, to be kept in `parked`; the device is free of the value once nothing else
        holds it."""
        copied: Awaitable[Any] = self._copy("offload", v, (to,))
        return copied

    def fetch(self, parked: Any) -> Awaitable[Any]:
        """A copy of a parked value on the device. The parked one stays until it is dropped."""
        copied: Awaitable[Any] = self._copy("fetch", parked, ())
        return copied

    def _copy(self, name: str, given: Any, args: tuple[str, ...]) -> Any:
        recorder, line = self._recorder, player_line()
        try:
            self._ready()
            self.run.costs.require_priced(name)
            parts = self._parts(given)
            if len(parts) != 1 or isinstance(given, list):
                raise RuleError(f"{name} takes one value at a time; got {object_text(given)}")
            (part,) = parts
            number = part.number if isinstance(part, PendingValue) else recorder.claim(part)
            made, ticks = ((), 0) if isinstance(part, PendingValue) else self._copied(name, part, args)
            if self.run.lanes is not None:
                call = self._write_call(name, parts, (number,), 1, None, args, None, line)
                self._lanes.issue(call)
                return self._handle(call)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name)), line) from None
        wait = CopyWait(self._rank, recorder.clock, line, name)

        def written(*_: object) -> Value:
            own = copy_of(made[0])
            recorder.write_event(name, (own,), line, (number,), None, NO_BATCHES, args, wait.clock, ticks)
            return own

        return self._promise(wait, lambda _: True, written)

    def _copied(self, name: str, value: Value, args: tuple[str, ...]) -> tuple[tuple[Value, ...], int]:
        """What a copy makes, and its ticks, if it is allowed and there is room."""
        made = operations.LOCAL_RULES[name](self._game, Op(name, 0, 0, args=args), (value,))
        self._require_room(made)
        return made, durations.ticks(self._game, name, 1, (value,), made, self._rank)
