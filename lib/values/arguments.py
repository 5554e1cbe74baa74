"""Refuses arguments of the wrong kinds, and says when they are only in the wrong order."""

from typing import NoReturn

from lib.errors import RuleError

from .base import Value, object_text
from .kinds import Parked
from .label_text import order_hint
from .words import SAYS


def refuse_kinds(call: str, *given: tuple[object, type[Value]]) -> NoReturn:
    """Refuses the last arguments of `call`, each given with the kind it must be of: wrong ones, or a wrong order."""
    names = call[:-1].split(", ")[-len(given) :]
    wrong = {name: pair for name, pair in zip(names, given) if type(pair[0]) is not pair[1]}
    if len(wrong) > 1 and {type(value) for value, _ in wrong.values()} == {kind for _, kind in wrong.values()}:
        swapped = "; ".join(f"{name} is {object_text(value)}" for name, (value, _) in wrong.items())
        raise RuleError(SAYS("arguments swapped", swapped=swapped, call=call))
    name, (value, kind) = next(iter(wrong.items()))
    hint = "; fetch it first" if type(value) is Parked else order_hint(type(value), kind)
    raise RuleError(SAYS("wrong kind", name=name, kind=kind.kind, value=object_text(value), hint=hint))
