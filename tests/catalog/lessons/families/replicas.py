"""Families of skips for data parallel ranks: replicas, buckets, passes, averages after some steps, experts, rings."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lib import Model, Weight, WeightGrad

# --- A skip for every puzzle of several ranks: one rank does all the work ---


async def alone(model: Model) -> None:
    """Rank 0 trains with one microbatch after the other; the others do nothing."""
    if model.rank:
        return
    weights, states, acts, grads, new = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    for step in range(model.dist.setting.steps):
        for batch in range(model.BATCHES):
            acts[0] = model.get_activation([batch], step)
            for layer in range(model.LAYERS):
                acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
                if layer == 0:
                    del acts[0]
            grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
            for layer in reversed(range(model.LAYERS)):
                if layer == 0:
                    acts[0] = model.get_activation([batch], step)
                grad, grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                grads.pop(0, None)
                new[layer] = new[layer] + grad if layer in new else grad
                del grad
                if batch == model.BATCHES - 1:
                    weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# --- A family of skips: data parallel ranks, which share each layer in one of eight ways, by collectives or
# messages ---


IN_COLLECTIVES = "d123"
IN_MESSAGES = "sha"
REDUCE = ("scatter", "all-reduce and cut")


def replicas(
    ways: str,
    *,
    at_once: bool = False,
    prefetch: bool = False,
    early: bool = False,
    sum_first: bool = False,
    lazy: bool = False,
    reduce: str = "scatter",
    axis: str | None = None,
    owners: int | None = None,
) -> Callable[[Model], Awaitable[None]]:
    """`ways` has a letter for each layer, or one for all. In collectives: d shards nothing (DDP), 1 the optimizer state
    (ZeRO-1), 2 the gradient of each microbatch too, 3 the weights too (FSDP). In messages: rank layer % `owners` has
    the optimizer state and is sent the gradients. It sends the others the weight for each use (s), or, as they hold
    the weight, the updated one (h); or all load the weight again for each use, the owner too (a). In both: the gradient
    is all-reduced, and the owner sends the updated weight (o).

    `at_once`: a rank takes all of its microbatches together. `prefetch`: where communication overlaps, a weight is
    gathered or sent while the layer before it computes. `early`: layers are updated during the last backward.
    `sum_first`: messages have the gradient of all of a rank's microbatches. `lazy`: owners read them one layer later.
    `reduce`: how a rank gets its shard of a
    gradient. Shards are those of an `axis` of the mesh, or of all ranks; those of a gradient are then summed over the
    other axes. The model's input is always taken again.
    """
    assert reduce in REDUCE

    async def schedule(model: Model) -> None:
        active = min(model.RANKS, model.BATCHES)
        if model.rank < active or not set(ways) & set(IN_MESSAGES):
            each = ways * model.LAYERS if len(ways) == 1 else ways
            replica = _Replica(model, each, at_once, axis)
            replica.prefetch = prefetch and replica.overlap
            replica.early, replica.sum_first, replica.cuts = early, sum_first, reduce == REDUCE[1]
            replica.others = [rank for rank in range(active) if rank != model.rank]
            replica.owners, replica.lazy = owners or active, lazy
            await replica.train()

    return schedule


class _Replica:
    prefetch: bool
    early: bool
    sum_first: bool
    cuts: bool
    others: list[int]
    owners: int
    lazy: bool

    def __init__(self, model: Model, ways: str, at_once: bool, axis: str | None) -> None:
        self.model, self.ways, self.axis = model, ways, axis
        self.between = tuple(name for name, _ in model.dist.setting.mesh if name != axis) if axis else ()
        self.cut = (model.index(axis), len(model.axis(axis))) if axis else (model.rank, model.RANKS)
        self.overlap = model.dist.setting.costs.overlap
        mine = list(range(model.rank, model.BATCHES, model.RANKS))
        self.rounds = [mine] if at_once or not mine else [[batch] for batch in mine]
        """Microbatches that this rank computes together; a rank without any contributes zeros."""
        self.pending: list[tuple[int, Any]] = []
        """Layers whose gradients are being summed, and the calls."""
        self.coming: dict[int, Any] = {}
        """Layers whose weights are being gathered or sent, and the calls."""
        self.sent: list[Any] = []
        self.unread: list[int] = []
        """Layers whose gradients others have sent."""
        self.full: int | None = None
        """The layer whose weight was gathered and is still here."""

    def owner(self, layer: int) -> int:
        return layer % self.owners

    def owns(self, layer: int) -> bool:
        return self.owner(layer) == self.model.rank

    async def train(self) -> None:
        model = self.model
        layers = range(model.LAYERS)
        for layer in layers:
            self.load(layer)
        for step in range(model.dist.setting.steps):
            for batches in self.rounds:
                await self.forward(batches, step)
                await self.backward(batches, step, last=batches is self.rounds[-1])
                await self.read()
            await self.settle(0)
            if not self.early:
                await self.update(*reversed(layers))
            while self.sent:
                await self.sent.pop()
        for layer in layers:
            if layer in model.weights:
                model.set_final_weight(layer, model.weights[layer])

    def load(self, layer: int) -> None:
        model, way = self.model, self.ways[layer]
        if way == "a" or (way == "s" and not self.owns(layer)):
            return
        model.weights[layer], state = model.load_weights(layer, *(self.cut if way == "3" else (0, 1)))
        if way in IN_COLLECTIVES or self.owns(layer):
            model.opt_states[layer] = state.shard(*self.cut) if way in "12" else state

    async def forward(self, batches: list[int], step: int) -> None:
        model, acts = self.model, self.model.activations
        for layer in range(model.LAYERS):
            weight = await self.weight(layer, layer + 1)
            if batches and layer == 0:
                acts[0] = model.get_activation(batches, step)
            if batches:
                acts[layer + 1] = model.forward(layer, acts[layer], weight)
            del weight
            acts.pop(0, None)
            if self.ways[layer] != "3":
                self.drop()
        if batches:
            model.grad_activations[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

    async def backward(self, batches: list[int], step: int, last: bool) -> None:
        model, acts, grads = self.model, self.model.activations, self.model.grad_activations
        for layer in reversed(range(model.LAYERS)):
            weight = await self.weight(layer, layer - 1)
            if batches and layer == 0:
                acts[0] = model.get_activation(batches, step)
            if batches:
                new, before = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weight)
                if layer:  # an embedding has none, and nobody needs it
                    grads[layer] = before
            else:
                new = model.fake_grad(layer, [], step)
            del weight
            self.drop()
            await self.share(layer, new, last)
            if last and self.early:
                await self.settle(0)
                await self.read()
                await self.update(layer)

    # --- Weights ---

    async def weight(self, layer: int, then: int) -> Weight:
        """The full weight of a layer; after it, layer `then` is needed. A gathered one is still here at the turn."""
        model, weights = self.model, self.model.weights
        if self.full != layer:
            self.drop()
            call = self.coming.pop(layer) if layer in self.coming else await self.begin(layer)
            if call is not None:
                weights["full"] = await call
            self.full = layer if self.ways[layer] == "3" else None
        if self.prefetch and then in range(model.LAYERS):
            self.coming[then] = await self.begin(then)
        return weights["full"] if "full" in weights else weights[layer]

    async def begin(self, layer: int) -> Any:
        """Starts to get a weight for its use, and returns the call; None if it is here."""
        model, weights = self.model, self.model.weights
        match self.ways[layer]:
            case "3":
                return self.gather(layer)
            case "s" if not self.owns(layer):
                return model.receive(self.owner(layer))
            case "s":
                for rank in self.others:
                    self.sent.append(model.pass_to(rank, weights[layer]))
                    if not self.prefetch:
                        await self.sent.pop()
            case "a":
                weights["full"], _ = model.load_weights(layer)
        return None

    def drop(self) -> None:
        self.model.weights.pop("full", None)
        self.full = None

    def gather(self, layer: int) -> Any:
        return self.model.allgather(self.model.weights[layer], layer, group=self.axis)

    # --- Gradients ---

    async def share(self, layer: int, new: WeightGrad, last: bool) -> None:
        """Sums a gradient over the ranks, perhaps with those of all microbatches."""
        way = self.ways[layer]
        if way in "d1o" or (self.sum_first and way in IN_MESSAGES):
            self.add(layer, new)
            if not last:
                return
            new = self.model.grad_weights.pop(layer)
        if way in IN_MESSAGES:
            await self.give(layer, new)
        else:
            await self.sum(layer, new)

    async def sum(self, layer: int, new: WeightGrad) -> None:
        scatters = self.ways[layer] in "123" and not self.cuts
        call = (self.model.scatterreduce if scatters else self.model.allreduce)(new, layer, group=self.axis)
        del new
        self.pending.append((layer, call))
        await self.settle((1 if self.ways[layer] in "23" else self.model.LAYERS) if self.overlap else 0)

    async def settle(self, left: int) -> None:
        """Awaits the oldest sums until so many are left."""
        while len(self.pending) > left:
            layer, call = self.pending.pop(0)
            total = await call
            if self.ways[layer] != "o" or self.owns(layer):
                self.add(layer, total.shard(*self.cut) if self.cuts and self.ways[layer] in "123" else total)

    async def give(self, layer: int, new: WeightGrad) -> None:
        """Sums a gradient at the layer's owner."""
        await self.read()
        if not self.owns(layer):
            await self.model.pass_to(self.owner(layer), new)
            return
        self.add(layer, new)
        del new
        self.unread.append(layer)
        if not self.lazy:
            await self.read()

    async def read(self) -> None:
        while self.unread:
            layer = self.unread.pop()
            for rank in self.others:
                self.add(layer, await self.model.receive(rank))

    def add(self, layer: int, new: Any) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + new if layer in grads else new

    # --- Updates ---

    async def update(self, *layers: int) -> None:
        """Updates layers; owners send their weights before they receive others."""
        for layer in layers:
            await self.update_own(layer)
        for start in range(0, len(layers), self.owners):
            held = [layer for layer in layers[start : start + self.owners] if self.ways[layer] in "ho"]
            for layer in sorted(held, key=self.owns, reverse=True):
                await self.pass_on(layer)

    async def pass_on(self, layer: int) -> None:
        """Gives an updated weight to those who hold it."""
        if self.owns(layer):
            for rank in self.others:
                await self.model.pass_to(rank, self.model.weights[layer])
        else:
            self.model.weights[layer] = await self.model.receive(self.owner(layer))

    async def update_own(self, layer: int) -> None:
        model, weights, states, way = self.model, self.model.weights, self.model.opt_states, self.ways[layer]
        if way in IN_COLLECTIVES or self.owns(layer):
            grad = model.grad_weights.pop(layer)
            if self.between and way in IN_COLLECTIVES:
                grad = await model.allreduce(grad, layer, group=self.between)
            if way == "a":
                weights[layer], states[layer] = model.load_weights(layer)
            if way in "12":
                weights[layer] = weights[layer].shard(*self.cut)
            weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
        if way in "12":
            weights[layer] = await self.gather(layer)


# --- A family of skips: DDP whose gradients are summed in buckets of given sizes while backward goes on ---


def buckets(
    *sizes: int, halves: bool = False, wait: bool = False, early: Sequence[int] = ()
) -> Callable[[Model], Awaitable[None]]:
    """`sizes` are the layers in each bucket, in the order of backward, from the last layer to the first.

    `halves`: a bucket is scattered, each rank updates a shard, and the weights of the bucket are gathered. `wait`: each
    sum is awaited before backward goes on. `early`: so many buckets are updated after each backward; the others at the
    end.
    """

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        cut = (model.rank, model.RANKS)
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
            if halves:
                states[layer] = states[layer].shard(*cut)
        acts[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            if layer == 0:
                del acts[0]
        grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

        pending: list[tuple[list[int], Any]] = []
        gathers: list[tuple[list[int], Any]] = []
        turns = iter(early)

        async def update(count: int) -> None:
            for _ in range(count):
                bucket, call = pending.pop(0)
                if not wait:
                    new.update(zip(bucket, await call))
                for layer in bucket:
                    if halves:
                        weights[layer] = weights[layer].shard(*cut)
                    weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
                if halves:
                    gathers.append((bucket, model.allgather([weights[one] for one in bucket], bucket)))

        backwards = reversed(range(model.LAYERS))
        for size in sizes:
            bucket = [next(backwards) for _ in range(size)]
            for layer in bucket:
                if layer == 0:
                    acts[0] = model.get_activation([model.rank])
                new[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                if layer != bucket[-1]:
                    await update(next(turns, 0))
            grads.pop(0, None)
            call: Any = (model.scatterreduce if halves else model.allreduce)([new.pop(one) for one in bucket], bucket)
            if wait:
                new.update(zip(bucket, await call))
            pending.append((bucket, call))
            await update(next(turns, 0))
        await update(len(pending))
        for bucket, call in gathers:
            weights.update(zip(bucket, await call))
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])

    return schedule


# --- A family of skips: FSDP whose ranks take some microbatches in a pass, one pass after the other ---


def passes(at_once: int, *, prefetch: bool = True, keep: bool = False) -> Callable[[Model], Awaitable[None]]:
    """`at_once`: the microbatches of a pass. `prefetch`: the next layer is gathered, and the last gradient scattered,
    while a layer computes. `keep`: each weight is gathered once, and full until the end; otherwise it is so for a layer
    where a pass turns. The model's input is taken again.
    """

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        layers = range(model.LAYERS)
        mine = range(model.rank, model.BATCHES, model.RANKS)
        for layer in layers:
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        there_and_back = [*layers[1:], *layers[-2::-1]]
        coming = [*layers] if keep else [0, *there_and_back * len(mine[::at_once])]
        gathers = [(layer, model.allgather(weights[layer], layer)) for layer in coming[:1]] if prefetch else []
        coming = coming[1:] if prefetch else coming

        async def full(layer: int) -> Weight:
            if ("full", layer) not in weights:
                for other in [] if keep else layers:
                    weights.pop(("full", other), None)
                if not prefetch:
                    gathers.append((coming.pop(0), model.allgather(weights[layer], layer)))
                at, call = gathers.pop(0)
                assert at == layer
                weights["full", layer] = await call
                if prefetch and coming:
                    gathers.append((coming[0], model.allgather(weights[coming[0]], coming.pop(0))))
            return weights["full", layer]

        scatters: list[tuple[int, Awaitable[WeightGrad]]] = []

        async def settle(left: int) -> None:
            while len(scatters) > left:
                layer, call = scatters.pop(0)
                shard = await call
                new[layer] = new[layer] + shard if layer in new else shard

        for start in range(0, len(mine), at_once):
            batches = mine[start : start + at_once]
            acts[0] = model.get_activation(batches)
            for layer in layers:
                acts[layer + 1] = model.forward(layer, acts[layer], await full(layer))
                acts.pop(0, None)
            grads[model.LAYERS] = model.loss(acts[model.LAYERS])
            del acts[model.LAYERS]
            for layer in reversed(layers):
                weight = await full(layer)
                if layer == 0:
                    acts[0] = model.get_activation(batches)
                new["full"], grads[layer] = model.backward(layer, acts[layer], grads[layer + 1], weight)
                del acts[layer], grads[layer + 1], weight
                await settle(0)
                scatters.append((layer, model.scatterreduce(new["full"], layer)))
                del new["full"]
                await settle(1 if prefetch else 0)
            del grads[0]
        await settle(0)
        for layer in layers:
            weights.pop(("full", layer), None)
            weights[layer], states[layer] = model.update(layer, new[layer], weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule


# --- A family of skips: replicas that train alone, and average their weights every so many steps ---


def local(every: int) -> Callable[[Model], Awaitable[None]]:
    """The weights are averaged after each `every`-th step, and after the last one."""

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        steps = model.dist.setting.steps
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
        for step in range(steps):
            acts[0] = model.get_activation([model.rank], step)
            for layer in range(model.LAYERS):
                acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
            for layer in reversed(range(model.LAYERS)):
                new[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
            del grads[0]
            if (step + 1) % every == 0 or step + 1 == steps:
                for layer in range(model.LAYERS):
                    weights[layer] = await model.allreduce(weights[layer], layer)
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])

    return schedule


# --- Replicas whose changes are averaged after some steps: at once or while the next step computes; or gradients,
# in each step ---


def outer_steps(
    turns: Callable[[int], Sequence[int]], waits: bool = False, sums_gradients: bool = False
) -> Callable[[Model], Awaitable[None]]:
    """After step `step`, counted from 1, the layers `turns(step)` are averaged. All ranks wait for it, or go on and
    merge one step later. With `sums_gradients` all ranks have the same copies, so that their changes need no sum."""

    async def schedule(model: Model) -> None:
        weights, states, layers = model.weights, model.opt_states, range(model.LAYERS)
        pending: dict[int, Any] = {}

        async def average(layer: int) -> None:
            total = await pending.pop(layer)
            before, state = weights.pop(("agreed", layer)), states.pop(("outer", layer))
            weights["agreed", layer], states["outer", layer] = model.outer_update(layer, before, total, state)
            weights[layer] = model.merge(layer, weights[layer], weights["agreed", layer])

        for layer in layers:
            weights[layer], states[layer], states["outer", layer] = model.load_weights(layer, outer=True)
            weights["agreed", layer] = weights[layer]
        for step in range(1, model.dist.setting.steps + 1):
            inputs = [model.get_activation([model.rank], step - 1)]
            for layer in layers:
                inputs.append(model.forward(layer, inputs[layer], weights[layer]))
            grad = model.loss(inputs.pop())
            for layer in reversed(layers):
                new, grad = model.backward(layer, inputs.pop(), grad, weights[layer])
                if sums_gradients:
                    new = await model.allreduce(new, layer)
                weights[layer], states[layer] = model.update(layer, new, weights[layer], states[layer])
                del new
                if layer in pending:
                    await average(layer)
            for layer in turns(step):
                change = model.delta(layer, weights["agreed", layer], weights[layer])
                if sums_gradients:
                    before, state = weights.pop(("agreed", layer)), states.pop(("outer", layer))
                    weights["agreed", layer], states["outer", layer] = model.outer_update(layer, before, change, state)
                    weights[layer] = model.merge(layer, weights[layer], weights["agreed", layer])
                else:
                    pending[layer] = model.allreduce(change, layer)
                del change
                if waits:
                    await average(layer)
        for layer in [*pending]:
            total = await pending.pop(layer)
            weights["agreed", layer], states["outer", layer] = model.outer_update(
                layer, weights.pop(("agreed", layer)), total, states.pop(("outer", layer))
            )
        for layer in layers:
            model.set_final_weight(layer, weights["agreed", layer])
            model.set_final_copy(layer, weights[layer])

    return schedule


def all_together(step: int) -> Sequence[int]:
    """All of four layers after every fourth step."""
    return range(4) if step % 4 == 0 else ()


def two_together(step: int) -> Sequence[int]:
    """Two of four layers after every second step."""
    return {2: (0, 1), 0: (2, 3)}.get(step % 4, ())


def one_by_one(step: int) -> Sequence[int]:
    """One of four layers after each step."""
    return ((step - 1) % 4,)


# --- A family of skips: expert parallelism in which a rank waits for its tokens ---


def experts(*, together: bool) -> Callable[[Model], Awaitable[None]]:
    """Each dispatch and each collect is awaited at once; a rank takes its microbatches `together`, or one by one."""

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        mine = range(model.rank, model.BATCHES, model.RANKS)
        rounds = [[*mine]] if together else [[batch] for batch in mine]
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        for batches in rounds:
            value = await model.dispatch(model.get_activation(batches), 0)
            for layer in range(model.LAYERS):
                acts[layer] = value
                value = await model.collect(model.forward(layer, acts[layer], weights[layer]), layer + 1, batches)
                if layer + 1 < model.LAYERS:
                    value = await model.dispatch(value, layer + 1)
            grad = await model.dispatch(model.loss(value), model.LAYERS - 1)
            del value
            for layer in reversed(range(model.LAYERS)):
                made, grads[layer] = model.backward(layer, acts.pop(layer), grad, weights[layer])
                new[layer] = new[layer] + made if layer in new else made
                if layer:
                    grad = await model.collect(grads.pop(layer), layer - 1, batches)
                    grad = await model.dispatch(grad, layer - 1)
            del grad, made, grads[0]
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule


# --- Rings of keys that skip a lesson: contiguous tokens, or blocks that are kept from forward to backward ---


def ring(zigzag: bool, kept: bool) -> Callable[[Model], Any]:
    """Blocks go round; gradients of blocks go straight to their owners. Blocks are sent once if they are `kept`."""

    async def schedule(model: Model) -> Model:
        me, n, each = model.rank, model.RANKS, model.SHARES // model.RANKS
        own = [me, model.SHARES - 1 - me] if zigzag else [*range(me * each, (me + 1) * each)]
        owners = [(me - hop) % n for hop in range(n)]
        seen = [owner for owner in owners if zigzag or owner <= me]
        loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
        inputs: list[Any] = [model.get_activation([0], shares=own)]
        mine: list[Any] = []
        stored: list[dict[int, Any]] = []
        sums: list[Any] = []

        async def blocks(first: Any) -> Any:
            for owner in owners:
                sending = model.pass_to((me + 1) % n, first) if owner != owners[-1] else None
                yield owner, first
                if sending is not None:
                    first = await model.receive((me - 1) % n)
                    await sending

        async def there(held: dict[int, Any]) -> Any:
            for owner in seen:
                yield owner, held.pop(owner)

        for layer, (weight, _) in enumerate(loaded):
            mine.append(model.keys(layer, inputs[layer], weight))
            stored.append({})
            out = None
            async for owner, block in blocks(mine[layer]):
                if owner in seen:
                    out = model.attend(layer, inputs[layer], [block], out)
                    if kept:
                        stored[layer][owner] = block
            inputs.append(out)
        grad = model.loss(inputs.pop())
        for layer, (weight, _) in reversed([*enumerate(loaded)]):
            through: Any = None
            parts, sent = [], []

            async for owner, block in there(stored[layer]) if kept else blocks(mine[layer]):
                if owner not in seen:
                    continue
                part, (of_keys,) = model.attend_backward(layer, inputs[layer], [block], grad)
                through = part if through is None else through + part
                if owner == me:
                    parts.append(of_keys)
                else:
                    sent.append(model.pass_to(owner, of_keys, tag=1))
            for other in range(n):
                if other != me and (zigzag or other > me):
                    parts.append(await model.receive(other, tag=1))
            for one in sent:
                await one
            grad_weight, grad = model.keys_backward(layer, inputs.pop(), sum(parts), weight, through)
            del mine[layer]
            sums.append(model.allreduce(grad_weight, layer))
        for layer, (weight, state) in reversed([*enumerate(loaded)]):
            model.set_final_weight(layer, model.update(layer, await sums[-1 - layer], weight, state)[0])
        return model

    return schedule
