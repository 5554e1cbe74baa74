"""Families of skips for one rank: what is kept, parked, computed again or loaded again; and any schedule made so."""

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model, Weight

# --- A family of skips: one rank, or ranks with a row of every layer, keep, park or compute again each layer's
# input ---


def inputs(plan: str) -> Callable[[Model], Awaitable[None]]:
    """`plan` has a letter for the input of each layer: k to keep it; p to park it on the host; a to compute it again
    and keep it then; n to compute it again for each backward. The model's input is taken again, unless it is kept.
    """
    assert set(plan) <= set("kpan")

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        everything = range(model.BATCHES)
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        async def summed(part: Any, layer: int) -> Any:
            return await model.allreduce(part, layer) if model.RANKS > 1 else part

        acts[0] = model.get_activation(everything)
        for layer in range(model.LAYERS):
            leaving = model.offload(acts[layer]) if plan[layer] == "p" else None
            acts[layer + 1] = await summed(model.forward(layer, acts[layer], weights[layer]), layer + 1)
            if leaving is not None:
                model.parked[layer] = await leaving
            if plan[layer] != "k":
                del acts[layer]
        grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

        def source(layer: int) -> int:
            """The input from which a layer's input is computed."""
            return max(at for at in range(layer + 1) if plan[at] in "kp" or at == 0)

        for layer in reversed(range(model.LAYERS)):
            before = source(layer - 1) if layer else 0
            coming = model.fetch(model.parked[before]) if before in model.parked and before not in acts else None
            start = max((at for at in acts if at <= layer), default=0)
            if start not in acts:
                acts[0] = model.get_activation(everything)
            for at in range(start, layer):
                acts[at + 1] = await summed(model.forward(at, acts[at], weights[at]), at + 1)
                if plan[at] == "n":
                    del acts[at]
            new[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
            if layer:
                grads[layer] = await summed(grads[layer], layer - 1)
            grads.pop(0, None)
            weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])
            if coming is not None:
                acts[before] = await coming
                del model.parked[before]

    return schedule


# --- A family of skips on one rank: inputs are kept, parked or computed again, with at most one copy under way ---


def host_plan(plan: str) -> Callable[[Model], Awaitable[None]]:
    """`plan` has a letter for the input of each layer from layer 1 on: k to keep it, p to park it on the host, a to
    compute it again from the nearest input below. A copy leaves while the next layers are computed, and is awaited
    before the next one or the loss; it comes back while the layer above is, if no other input than that layer's is on
    the device. The model's input is taken again.
    """
    assert set(plan) <= set("kpa")

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        way = dict(enumerate(plan, start=1))
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)

        copies: dict[int, Any] = {}

        async def parked() -> None:
            for layer in list(copies):
                model.parked[layer] = await copies.pop(layer)
                del acts[layer]

        acts[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            if way.get(layer) == "p":
                await parked()
                copies[layer] = model.offload(acts[layer])
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            if way.get(layer, "a") == "a":
                del acts[layer]
        await parked()
        grads[model.LAYERS] = model.loss(acts[model.LAYERS])
        del acts[model.LAYERS]

        async def fetched(layer: int) -> None:
            if layer in model.parked:
                acts[layer] = await (copies.pop(layer, None) or model.fetch(model.parked[layer]))
                del model.parked[layer]

        for layer in reversed(range(model.LAYERS)):
            start = max((at for at in (*acts, *model.parked) if at <= layer), default=0)
            await fetched(start)
            if start not in acts:
                acts[0] = model.get_activation(range(model.BATCHES))
            for at in range(start, layer):
                acts[at + 1] = model.forward(at, acts[at], weights[at])
                if way.get(at, "a") == "a":
                    del acts[at]
            if len(acts) == 1 and not copies and model.parked:
                copies[max(model.parked)] = model.fetch(model.parked[max(model.parked)])
            new[layer], grads[layer] = model.backward(layer, acts[layer], grads[layer + 1], weights[layer])
            del acts[layer], grads[layer + 1]
            weights[layer], states[layer] = model.update(layer, new[layer], weights[layer], states[layer])
            del new[layer]
            model.set_final_weight(layer, weights[layer])
        del grads[0]

    return schedule


# --- Training on one rank with an update on the host after each backward ---


def host_updates(at_once: bool = True) -> Callable[[Model], Awaitable[None]]:
    """All microbatches are computed at once or in turn; each step waits for the updates of the one before."""

    async def schedule(model: Model) -> None:
        layers, weights, parked = range(model.LAYERS), model.weights, model.parked
        on_device: dict[int, Any] = {}
        handles: list[tuple[int, Any]] = []
        groups = [range(model.BATCHES)] if at_once else [[batch] for batch in range(model.BATCHES)]
        for layer in layers:
            parked["w", layer], parked["s", layer] = model.load_weights(layer, tier="host")
            on_device[layer] = model.fetch(parked["w", layer])
        for step in range(model.dist.setting.steps):
            grads: dict[int, Any] = {}
            for batches in groups:
                inputs = [model.get_activation(batches, step)]
                for layer in layers:
                    if layer in on_device:
                        weights[layer] = await on_device.pop(layer)
                    inputs.append(model.forward(layer, inputs[layer], weights[layer]))
                grad = model.loss(inputs.pop())
                for layer in reversed(layers):
                    new, grad = model.backward(layer, inputs.pop(), grad, weights[layer])
                    new = grads[layer] = grads[layer] + new if layer in grads else new
                    if batches is not groups[-1]:
                        continue
                    del grads[layer]
                    leaving = model.offload(new)
                    update = model.update(layer, leaving, parked["w", layer], parked["s", layer], on="host")
                    on_device[layer] = model.fetch(update[0])
                    await leaving
                    handles.append((layer, update))
                    del new
            for layer, update in handles:
                parked["w", layer], parked["s", layer] = await update
            handles.clear()
        for layer in layers:
            if layer in on_device:
                weights[layer] = await on_device.pop(layer)
            model.set_final_weight(layer, weights[layer])

    return schedule


# --- A family of skips: inference on one rank, with each weight on the device, on the host, or loaded when it is
# used ---


def infer(plan: str, *, ahead: bool = True) -> Callable[[Model], Awaitable[None]]:
    """`plan` has a letter for the weight of each layer: d to hold it on the device; h to fetch it from the host for its
    use, with `ahead` while the layer before it computes; l to load it to the device for its use, and drop it then; b to
    load it both to the host and so.
    """
    assert set(plan) <= set("dhlb")

    async def schedule(model: Model) -> None:
        weights, acts, parked = model.weights, model.activations, model.parked
        for layer, where in enumerate(plan):
            if where == "d":
                weights[layer], _ = model.load_weights(layer)
            elif where in "hb":
                parked[layer], _ = model.load_weights(layer, tier="host")
        acts[0] = model.get_activation(range(model.BATCHES))
        coming: dict[int, Any] = {}

        def fetch(layer: int) -> None:
            if layer < model.LAYERS and plan[layer] == "h":
                coming[layer] = model.fetch(parked[layer])

        if ahead:
            fetch(0)
        for layer in range(model.LAYERS):
            if plan[layer] in "lb":
                weights[layer], _ = model.load_weights(layer)
            if not ahead:
                fetch(layer)
            if layer in coming:
                weights[layer] = await coming.pop(layer)
            if ahead:
                fetch(layer + 1)
            acts[layer + 1] = model.forward(layer, acts.pop(layer), weights[layer])
            if plan[layer] != "d":
                del weights[layer]
        model.set_output(acts[model.LAYERS])

    return schedule


# --- Any schedule, made to load every weight again before each use, so that no rank keeps a weight or gets it sent ---


Schedule = Callable[[Model], Any]


def load_again(schedule: Schedule) -> Callable[[Model], Awaitable[None]]:
    """The schedule, in which whoever reads a weight that was not updated yet, gets it loaded; gathers of such weights
    are left out."""

    async def reloading(model: Model) -> None:
        result = schedule(_Reloading(model))  # type: ignore[arg-type]  # it answers as the model does
        if hasattr(result, "__await__"):
            await result

    return reloading


class _Reloading:
    """A model whose dictionary of weights loads what is read from it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.weights = _Weights(model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def storage(self) -> tuple[Any, ...]:
        return (self.weights, *self._model.storage()[1:])

    def allgather(self, value: Any, layer: Any, group: Any = None) -> Awaitable[Any]:
        if isinstance(value, Weight) and value.step == 0:
            return self._loaded(value.layer)
        return self._model.allgather(value, layer, group)

    async def _loaded(self, layer: int) -> Weight:
        return self._model.load_weights(layer)[0]


class _Weights(dict[Any, Any]):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if not isinstance(value, Weight) or value.step:
            return value
        return self._model.load_weights(value.layer, *_part(value))[0]

    def pop(self, key: Any, *default: Any) -> Any:
        value = self[key] if key in self else default[0]
        super().pop(key, None)
        return value


def _part(weight: Weight) -> tuple[int, int]:
    """Which of how many equal parts a weight is."""
    start, count = min(weight.shards), len(weight.shards)
    assert weight.shards == {*range(start, start + count)}
    assert start % count == weight.total % count == 0
    return start // count, weight.total // count


# --- Any schedule, made to take each microbatch from the model once, and to keep what it then needs again ---


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
