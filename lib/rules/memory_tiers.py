"""States what moving values to and from other memories demands and yields: offload, fetch, move, and weights loaded
there.

A parked value is a copy on a tier, such as the host's memory. It weighs nothing on the device (Rhu et al. 2016,
section 3; Ren et al. 2021, section 3).
"""

from collections.abc import Iterable, Sequence

from lib.errors import RuleError
from lib.game.costs import Costs
from lib.game.setting import Game
from lib.game.tiers import ON_TIER, Tier
from lib.values.base import Value, copy_of, require_kind
from lib.values.kinds import Parked

from .words import SAYS


def offload(game: Game, value: Value, to: object) -> Parked:
    """A copy of a value on a tier."""
    tier(game.setting.costs, to)
    if isinstance(value, Parked):
        raise RuleError(SAYS("parked already", value=value))
    return Parked.made(copy_of(value), to)


def fetch(game: Game, parked: Value) -> Value:
    """A copy of a parked value on the device."""
    return copy_of(require_kind(parked, Parked, "the value to fetch").value)


def move(game: Game, parked: Value, to: object) -> Parked:
    """A copy of a parked value on another tier."""
    tier(game.setting.costs, to)
    source = require_kind(parked, Parked, "the value to move")
    if source.tier == to:
        raise RuleError(SAYS("moved already", value=source))
    return Parked.made(copy_of(source.value), to)


def parked_weights(game: Game, values: Iterable[Value], to: object) -> tuple[Parked, ...]:
    """A weight and its states, on a tier instead of the device."""
    tier(game.setting.costs, to)
    return tuple(Parked.made(value, to) for value in values)


def tier(costs: Costs, name: object) -> Tier:
    """A tier by its name."""
    if not isinstance(name, str) or name not in costs.tiers:
        known = ", ".join(costs.tiers) or "none"
        raise RuleError(SAYS("no such tier", tier=name, costs=costs.name, known=known))
    return costs.tiers[name]


def require_room(costs: Costs, stored: Iterable[Parked], new: Sequence[Value]) -> None:
    """Refuses to park more on a tier than fits next to what `stored` has in `model.parked`."""
    parked = [value for value in new if isinstance(value, Parked)]
    if not parked:
        return
    name = parked[0].tier
    capacity = tier(costs, name).capacity
    if capacity is None:
        return
    there = sum(value.size(costs) for value in stored if value.tier == name)
    more = sum(value.size(costs) for value in parked)
    if there + more > capacity:
        raise RuleError(SAYS("tier full", tier=name, there=there, capacity=capacity, more=more))


def ticks(costs: Costs, operation: str, results: Sequence[Value], used: Sequence[Value]) -> int:
    """How long an operation on a tier takes. A move takes a fetch from one tier and an offload to the other."""
    if operation == "move":
        return ticks(costs, "fetch", (), used) + ticks(costs, "offload", results, ())
    parked = results[0] if operation == "offload" else used[0]
    assert isinstance(parked, Parked)
    price = getattr(tier(costs, parked.tier), ON_TIER[operation])
    if price is None:
        raise costs.unpriced(f"{operation} for the tier {parked.tier!r}")
    return int(price) + costs.by_size(operation, 1, parked.size(costs))
