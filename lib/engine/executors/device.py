"""One device of an executor: the player's object, its calls, and the result that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lib.engine.transports.base import Port
from lib.masked_arrays import refuse_masked

from .copies import NO_ARGUMENT, LentParameters, copies_out
from .streams import InputStream, OutputStream


class Device:
    """The player's object on one port. It holds the result of its last call until the next one has returned, like an
    output that stays on a device while the step continues."""

    def __init__(self, cls: type, port: Port) -> None:
        self.cls = cls
        self.port = port
        self.player: Any = None
        self.held: Any = None

    def make(self, args: Sequence[Any], kwargs: Any) -> None:
        """Creates the player's object; the port is bound before its `__init__` runs."""
        self.player = self.cls.__new__(self.cls, *args, **kwargs)
        self.player._port = self.port
        self.player.__init__(*args, **kwargs)

    def call(self, method: str, box: list[Any]) -> Any:
        """Calls a method with the argument in the box, and returns a copy of its result with plain arrays."""
        lent = box[0] if isinstance(box[0], LentParameters) else None
        if lent is not None:
            box[0], lent.tree = lent.tree, None
        function = getattr(self.player, method)
        self.held = function() if box[0] is NO_ARGUMENT else function(box.pop())
        refuse_masked(self.held, f"device {self.port.device} of {self.port.size}, the result of {method}")
        if lent is not None:
            lent.settle()
        return copies_out(self.held, self.port)

    def loop(self, source: InputStream, asks: Callable[[], object], sink: OutputStream) -> None:
        self.player.inference_loop(source.reader(self.port, asks), sink)
