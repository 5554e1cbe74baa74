"""Plays a random program on models, act by act."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from lib import Costs, Model, Setting
from lib.ledger.costs import Kind, Tier
from tests.oracles.programs.prices import LANES
from tests.oracles.programs.simulation import Act
from tests.oracles.programs.writer import Program


def setting_of(program: Program) -> Setting:
    """The game that a program is for."""
    prices = program.prices._asdict()
    prices["tiers"] = {name: Tier(*given[:2], None, given[2]) for name, given in prices["tiers"].items()}
    given = prices.pop("kinds")
    kinds = {"head" if kind is given[-1] else f"kind {layer}": Kind(*kind) for layer, kind in enumerate(given)}
    more = {"kinds": tuple(kinds), "lengths": prices.pop("lengths"), "lag": program.lag, "clip": program.clip}
    more |= {"frozen": program.frozen, "whole": program.whole}
    costs = Costs("random", kinds=kinds, **prices)
    return Setting(costs, program.mesh, program.steps, program.layer, **more)


def playing(program: Program, naps: Random | None = None) -> Callable[[Model], Any]:
    """A schedule that does what a program says, with naps in between."""

    async def schedule(model: Model) -> None:
        values: list[Any] = []  # by number; of a call that has not been awaited, its handle
        handles: dict[int, tuple[Any, slice]] = {}
        for at, act in enumerate(program.acts[model.rank]):
            for _ in range(naps.choice((0, 0, 1, 3)) if naps else 0):
                await asyncio.sleep(0)
            if act.name == "await":
                handle, numbers = handles.pop(act.call)
                values[numbers] = _listed(await handle)
                continue
            made = _done(model, act, [values[number] for number in act.uses])
            if act.name in LANES and program.prices.overlap:
                handles[at] = made, slice(len(values), len(values) + len(act.makes))
                values += [*map(made.__getitem__, range(2))] if act.name == "tier_update" else [made] * len(act.makes)
            else:
                values += _listed(await made if hasattr(made, "__await__") else made)

    return schedule


def _listed(made: Any) -> list[Any]:
    if made is None:
        return []
    return [*made] if isinstance(made, (list, tuple)) else [made]


def _done(model: Model, act: Act, used: Sequence[Any]) -> Any:
    """What the method of a model, or of a value, returns."""
    where, key = act.place
    match act.name:
        case "load_weights":
            return model.load_weights(act.layer, *act.shard, tier=act.tier or None)  # type: ignore[call-overload]
        case "get_activation":
            return model.get_activation(act.batches, act.step)
        case "fake_grad":
            return model.fake_grad(act.layer, (), act.step)
        case "loss":
            return model.loss(*used)
        case "add":
            return used[0] + used[1]
        case "shard":
            return used[0].shard(*act.shard)
        case "store":
            getattr(model, where)[key] = used[0]
        case "delete":
            del getattr(model, where)[key]
        case "pass_to":
            return model.pass_to(act.peer, [*used], act.tag)  # type: ignore[arg-type]  # it has a peer
        case "receive":
            return model.receive(act.peer, act.tag)
        case "offload":
            return model.offload(used[0], act.tier)
        case "move":
            return model.move(used[0], act.tier)
        case "update" | "tier_update":
            more = {"on": act.tier} if act.tier else {}
            if len(used) > 3:
                more["scale"] = used[3]
            return model.update(act.layer, *used[:3], **more)
        case "fetch":
            return model.fetch(used[0])
        case "broadcast" | "reduce":
            root = {"source" if act.name == "broadcast" else "to": act.peer}
            group = None if len(act.group) == model.RANKS else act.group
            return getattr(model, act.name)(used[0] if used else None, act.layer, group=group, **root)
        case "allreduce" | "allgather" | "scatterreduce" | "dispatch" | "collect":
            given, label = (_bucket(used), [*act.whose]) if act.whose else (used[0], act.layer)
            asked = [act.batches] if act.name == "collect" else []
            group = None if len(act.group) == model.RANKS else act.group
            return getattr(model, act.name)(given, label, *asked, group=group)
        case _:
            return getattr(model, act.name)(act.layer, *used)


def _bucket(used: Sequence[Any]) -> list[Any]:
    """Values; where a call makes several of them, its handle once."""
    return [part for i, part in enumerate(used) if i == 0 or part is not used[i - 1]]
