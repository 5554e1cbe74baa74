"""A compiled submission, as the worker that reads the file hands it to the workers that run it."""

import marshal
import re
import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any, NamedTuple, Self

from puzzles.failure import Failure, of_crash

from .notebook_filter import FAILED


class CompiledCode(NamedTuple):
    """Code of a whole file, with the lines of the names that it binds. `name` is the player's file."""

    name: str
    lines: Mapping[str, int]
    left_out: Mapping[str, tuple[int, str]]
    """By name that a notebook assigns: the line and the reason why that was left out."""
    code: CodeType | None
    """None if the file cannot be compiled."""

    def dump(self) -> bytes:
        left_out = {name: tuple(why) for name, why in self.left_out.items()}
        return marshal.dumps((self.name, dict(self.lines), left_out, self.code))

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The opposite of `dump`. Only for a confined process: bytes that `dump` did not write can do anything."""
        return cls(*marshal.loads(data))

    def failure_of(self, name: str, names: Mapping[str, Any]) -> Failure | None:
        """The failure of the assignment of a name, if it has failed; `names` are the module's."""
        failed = names.get(FAILED, {}).get(name)
        return None if failed is None or name in names else of_crash(failed, self.name, "", self.lines[name])

    def explained(self, failure: Failure, names: Mapping[str, Any]) -> Failure:
        """A failure, with the reason if it is for a name that was left out, or whose assignment has failed; for a name
        of ours, with its import."""
        missing = re.search(r"NameError: name '(\w+)' is not defined", failure.sentence)
        name = missing[1] if missing else ""
        failed = self.failure_of(name, names)
        if failed is not None:
            line, reason = failed.line, f"that fails: {failed.sentence}"
        elif name in self.left_out:
            line, reason = self.left_out[name]
        elif module := _home_of(name):
            return failure._replace(sentence=f"{failure.sentence}; begin the file with 'from {module} import {name}'")
        else:
            return failure
        return failure._replace(sentence=f"{failure.sentence}; line {line} defines {name}, but {reason}")


def _home_of(name: str) -> str:
    """The module that players import a name from, of those that are loaded."""
    homes = (module for module in ("lib", "lib.layout", "lib.engine") if module in sys.modules)
    return next((module for module in homes if name in getattr(sys.modules[module], "__all__", ())), "")
