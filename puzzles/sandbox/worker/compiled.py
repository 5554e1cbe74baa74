"""A compiled submission, as the worker that reads the file hands it to the workers that run it."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from types import CodeType
from typing import NamedTuple, Self


class CompiledCode(NamedTuple):
    """Code of a whole file, with the lines of the names that it binds. `name` is that of the player's file."""

    name: str
    lines: Mapping[str, int]
    code: CodeType | None
    """None if the file cannot be compiled."""

    def dump(self) -> bytes:
        return marshal.dumps((self.name, dict(self.lines), self.code))

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The opposite of `dump`. Only for a confined process: bytes that `dump` did not write can do anything."""
        return cls(*marshal.loads(data))
