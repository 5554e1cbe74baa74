"""The five dictionaries of one device: each holds values of one kind, and writes to them are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from operator import index
from typing import Any, Generic, NoReturn, TypeVar

from lib.errors import PuzzleError, RuleError
from lib.values.base import Value, object_text
from lib.values.kinds import HOLDS, HOLDS_TOO, Weight
from lib.values.label_text import order_hint

from .recorder import RankRecorder, player_line
from .words import SAYS

K = TypeVar("K", bound=Value)

_MISSING: Any = object()

PLAIN = frozenset((int, str))
"""The types of most keys, which are recorded as they are."""

_put, _drop = dict.__setitem__, dict.__delitem__  # half of the time of super()


class Storage(dict[Any, K], Generic[K]):
    """A dictionary of one rank's values. Keys are numbers, strings, or tuples of these.

    Storing anything but a value of its kind raises a RuleError at once, such as a coroutine, a tuple or another rank's
    value.
    """

    def __init__(self, recorder: RankRecorder, name: str, kind: type[K]) -> None:
        super().__init__()
        self._recorder = recorder
        self.name = name
        self._kind = kind
        self._removed: dict[Any, int] = {}
        """By key that was removed: the line that did it last."""

    def __setitem__(self, key: Any, value: K) -> None:
        try:
            if type(value) is not self._kind and HOLDS_TOO.get(type(value)) != self.name:
                self._refuse(value)
            self._recorder.store(self.name, key if type(key) in PLAIN else plain_key(key), value)
        except PuzzleError as why:
            raise why.at(self._recorder.place(f"{self.name}[{_key_text(key)}] = ..."), player_line()) from None
        _put(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            self._absent(key, "remove it once only")
        self._removed[key] = player_line()
        self._recorder.delete(self.name, key if type(key) in PLAIN else plain_key(key))
        _drop(self, key)

    def __missing__(self, key: Any) -> NoReturn:
        self._absent(key)

    def __repr__(self) -> str:
        """The values as messages name them: '{0: weight of layer 0}'."""
        return "{" + ", ".join(f"{key!r}: {value}" for key, value in self.items()) + "}"

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        if key not in self and default is not _MISSING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[Any, K]:
        if not self:
            self._absent("anything")
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value

    def __ior__(self, other: Any) -> Storage[K]:  # type: ignore[override, misc]  # dict's is overloaded
        self.update(other)
        return self

    def _refuse(self, value: object) -> NoReturn:
        close = getattr(value, "close", None)
        if close is not None and hasattr(value, "__await__"):
            close()  # Python would warn too; the refusal says it better.
        hint = "; backward of an embedding returns None, since token numbers have no gradient" if value is None else ""
        for name, kind in (*HOLDS.items(), *((name, kind) for kind, name in HOLDS_TOO.items())):
            if type(value) is kind:
                hint = f"; store it in {name}{order_hint(type(value), self._kind)}"
        raise RuleError(
            SAYS(
                "wrong dictionary",
                dictionary=self.name,
                kind=self._kind.kind.partition(" ")[2],
                got=object_text(value),
                hint=hint,
            )
        )

    def _absent(self, key: Any, then: str = "remove it after its last use") -> NoReturn:
        removed = self._removed.get(key)
        advice = (
            "store a value under this key first" if removed is None else f"line {removed} removed the value; {then}"
        )
        keys = ", ".join(map(repr, self))
        have = f"has only the key{'s' if len(self) > 1 else ''} {keys}" if keys else "is empty"
        raise NotStoredError(
            SAYS("nothing stored", dictionary=self.name, have=have, advice=advice),
            self._recorder.place(f"{self.name}[{_key_text(key)}]"),
            player_line(),
        )


class FinalWeights(Mapping[int, Weight]):
    """The weights that `set_final_weight` has declared, by layer; read-only."""

    name = "final weights"

    def __init__(self, declared: Mapping[int, Weight]) -> None:
        self._declared = declared

    def __getitem__(self, layer: int) -> Weight:
        return self._declared[layer]

    def __iter__(self) -> Iterator[int]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __repr__(self) -> str:
        return repr(self._declared)


class NotStoredError(RuleError, KeyError):
    """A key that a dictionary does not have; also a KeyError, as for any dictionary."""

    __str__ = RuleError.__str__


def plain_key(key: object) -> Any:
    """The key as it is recorded, with plain Python numbers and strings."""
    if isinstance(key, tuple):
        return tuple(plain_key(part) for part in key)
    if key is None or isinstance(key, str) or (isinstance(key, float) and isfinite(key)):
        return key
    if not hasattr(key, "__index__"):
        raise RuleError(SAYS("strange key", got=type(key).__name__))
    return index(key)


def _key_text(key: object) -> str:
    try:
        return repr(plain_key(key))
    except RuleError:
        return "..."
