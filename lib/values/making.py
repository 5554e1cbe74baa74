"""Writes the constructors that rules use: field by field and without checks, since values are most of a run's work."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

Constructor = Callable[..., Any]


def constructors(cls: type[Any]) -> tuple[Constructor, Constructor]:
    """`made(*label)`, a value of a kind from fields known to be right; and `copied(value, **changed)`, an equal value
    except for some fields. Neither belongs to a record.

    A value is frozen, so it is filled as an instance of a class with the same slots that is not, and then becomes one
    of `cls`. That takes half of the time of setting each slot through its descriptor.
    """
    chosen = fields(cls)
    thawed = {"__slots__": cls.__slots__, "__setattr__": object.__setattr__}  # a base may be frozen too
    twin = type(cls.__name__, cls.__bases__, thawed)
    known: dict[str, Any] = {"new": object.__new__, "cls": cls, "twin": twin}
    known |= {f"default_{f.name}": f.default for f in chosen}
    parameters = ", ".join(f.name + ("" if f.default is MISSING else f"=default_{f.name}") for f in chosen)
    body = f"""
def made({parameters}):
    made = new(twin)
    {"; ".join(f"made.{f.name} = {f.name}" for f in chosen)}
    made._recorder = None
    made.__class__ = cls
    return made

def copied(value, **changed):
    made = new(twin)
    {"; ".join(f"made.{f.name} = value.{f.name}" for f in chosen)}
    made._recorder = None
    for name in changed:
        setattr(made, name, changed[name])
    made.__class__ = cls
    return made
"""
    exec(body, known)  # as dataclasses writes its own constructors
    return known["made"], known["copied"]
