"""A family of skips: stages of a pipeline, rows of a tensor and replicas of both, in any numbers and any order."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from lib import Activation, ActivationGrad, Model, Weight, WeightGrad
from lib.pipelines.orders import one_f_one_b
from lib.pipelines.timetable import Cell, Timetable

# --- Orders of a pipeline that no textbook recommends ---


Order = Callable[..., Timetable]


def one_by_one(p: int, m: int) -> Timetable:
    """Each microbatch goes forth and back before the next one starts."""
    return Timetable.of([[Cell(r, op, b) for b in range(m) for op in "FB"] for r in range(p)])


def long_warm_up(p: int, m: int) -> Timetable:
    """1F1B in which rank r is 2(p - r) - 1 forwards ahead, nearly twice as many as it needs."""
    return Timetable.of([_row(r, m, min(2 * (p - r) - 1, m)) for r in range(p)])


def _row(r: int, m: int, ahead: int) -> list[Cell]:
    row = [Cell(r, "F", b) for b in range(ahead)]
    for b in range(m):
        row.append(Cell(r, "B", b))
        if b + ahead < m:
            row.append(Cell(r, "F", b + ahead))
    return row


def in_halves(order: Order) -> Order:
    """The order with both halves of each backward, one after the other."""

    def halved(p: int, m: int, **sizes: int) -> Timetable:
        rows = [[cell for slot in row for cell in slot] for row in order(p, m, **sizes).rows]
        halves = {"F": "F", "B": "IW"}
        return Timetable.of([[cell._replace(op=op) for cell in row for op in halves[cell.op]] for row in rows])

    return halved


def in_pairs(order: Order) -> Order:
    """The order in which each forward and the backward right after it, of another microbatch, are a pair."""

    def paired(p: int, m: int, **sizes: int) -> Timetable:
        return Timetable(tuple(tuple(_paired([*row])) for row in order(p, m, **sizes).rows))

    def _paired(row: list[tuple[Cell, ...]]) -> Iterator[tuple[Cell, ...]]:
        while row:
            slot = row.pop(0)
            if len(slot) == 1 == len(row[0] if row else ()) and _is_pair(slot[0], row[0][0]):
                slot = (*slot, *row.pop(0))
            yield slot

    return paired


def _is_pair(first: Cell, second: Cell) -> bool:
    return (first.op, second.op) == ("F", "B") and first.batch != second.batch


# --- A family of skips: stages of a pipeline, rows of a tensor and replicas of both, in any numbers and any order ---


def grid(
    stages: int = 1,
    rows: int = 1,
    replicas: int = 1,
    order: Order = one_f_one_b,
    *,
    zero: int = 0,
    in_messages: bool = False,
    together: int = 1,
    sum_at_the_input: bool = False,
    early: bool = False,
    chunks: int = 1,
    replicas_inside: bool = False,
) -> Callable[[Model], Awaitable[None]]:
    """`stages` of consecutive layers, each layer cut into `rows`, and `replicas` that share the microbatches. A rank is
    (replica x stages + stage) x rows + row, or, with `replicas_inside`, (stage x replicas + replica) x rows + row.

    `zero`: what replicas keep in shards: nothing (0), optimizer states (1), or weights too (3), which are gathered for
    each use. `in_messages`: a layer's replicas send its gradient to one of them, which has the optimizer state and
    sends them the updated weight. `together`: so many microbatches are computed as one. `sum_at_the_input`: rows also
    sum the gradient of the model's input. `early`: with one stage, a layer is updated as soon as its gradient is
    complete. `chunks`: the stages of a rank, if the order has several.
    """

    async def schedule(model: Model) -> None:
        assert stages * rows * replicas == model.RANKS
        assert zero in (0, 1, 3)
        assert stages == 1 or not early, "a rank that updates early makes the stage before it wait"
        assert not model.LAYERS % (stages * chunks)
        assert not model.BATCHES % (replicas * together)
        microbatches = model.BATCHES // replicas // together
        more = {"v": chunks} if chunks > 1 else {}
        table = order(stages, microbatches, **more)
        place = _Place(model, (stages, rows, replicas), replicas_inside, table)
        place.zero, place.in_messages = zero, in_messages and replicas > 1
        place.together, place.sum_at_the_input, place.early = together, sum_at_the_input, early
        await place.train()

    return schedule


class _Place:
    zero: int
    in_messages: bool
    together: int
    sum_at_the_input: bool
    early: bool

    def __init__(self, model: Model, shape: tuple[int, int, int], replicas_inside: bool, table: Timetable) -> None:
        self.model, self.table = model, table
        stages, rows, replicas = shape
        at, self.row = divmod(model.rank, rows)
        self.replica, self.stage = divmod(at, replicas)[::-1] if replicas_inside else divmod(at, stages)

        def rank(stage: int, replica: int, row: int) -> int:
            at = stage * replicas + replica if replicas_inside else replica * stages + stage
            return at * rows + row

        self.peers = [rank(s, self.replica, self.row) for s in range(stages)]
        self.rows = rows
        self.tensor = None if rows == model.RANKS else [rank(self.stage, self.replica, row) for row in range(rows)]
        self.same = [rank(self.stage, r, self.row) for r in range(replicas)]
        self.all_same = None if replicas == model.RANKS else self.same
        self.shard = (self.row, rows)
        self.finer = (self.row * replicas + self.replica, rows * replicas)
        self.left = dict[int, int]()
        """Microbatches whose gradient of a layer is still to come."""

    def layers(self, stage: int) -> range:
        depth = self.model.LAYERS // self.table.stages
        return range(stage * depth, (stage + 1) * depth)

    def owner(self, layer: int) -> int:
        """The replica that updates a layer, where gradients are sent in messages."""
        return self.same[layer % len(self.same)]

    def batches(self, cell: Cell) -> list[int]:
        start = (self.replica * self.table.batches + cell.batch) * self.together
        return list(range(start, start + self.together))

    async def train(self) -> None:
        model, table = self.model, self.table
        mine = [layer for stage in table.stages_of(self.stage) for layer in self.layers(stage)]
        for layer in mine:
            weight, state = model.load_weights(layer, *(self.finer if self.zero == 3 else self.shard))
            model.weights[layer] = weight
            if not self.in_messages or self.owner(layer) == model.rank:
                model.opt_states[layer] = state.shard(*self.finer) if self.zero == 1 else state
            del weight, state
        messages = [*table.needs.sent(tuple(table.cells))]
        by_use = {message.used: message for message in messages}
        by_source = {message.made: message for message in messages}
        for step in range(model.dist.setting.steps):
            self.left = dict.fromkeys(mine, table.batches)
            for cells in self.slots():
                for cell in cells:
                    if (received := by_use.get(cell)) is not None:
                        value = await model.receive(self.peers[received.source], *self.tags(received))
                        self.keep(received.made, value)
                        del value
                results = [await self.compute(cells[0], step)] if len(cells) == 1 else await self.pair(*cells, step)
                for cell in cells:
                    made = results.pop(0)
                    if (sent := by_source.get(cell)) is not None:
                        await model.pass_to(self.peers[sent.to], made, *self.tags(sent))
                    elif made is not None:
                        self.keep(cell, made)
                    del made
            for start in range(0, len(mine), replicas := len(self.same)):
                await self.update_all([one for one in mine[start : start + replicas] if one in model.grad_weights])
        for layer in mine:
            model.set_final_weight(layer, model.weights[layer])

    def slots(self) -> Iterator[tuple[Cell, ...]]:
        """The cells that are computed at once: a forward and a backward where pairs have a price, or one."""
        for slot in self.table.rows[self.stage]:
            if len(slot) == 2 and self.model.dist.setting.costs.priced("pair") and self.rows == 1 and not self.zero:
                yield tuple(sorted(slot, key=lambda cell: cell.op, reverse=True))
            else:
                yield from ((cell,) for cell in slot)

    def tags(self, message: Any) -> list[int]:
        """A tag, where messages need one: the classic costs have none."""
        return [tag] if (tag := self.table.tag(message)) else []

    def keep(self, cell: Cell, value: Activation | ActivationGrad) -> None:
        if isinstance(value, Activation):
            self.model.activations[self.layers(cell.stage).stop, cell.batch] = value
        else:
            self.model.grad_activations[self.layers(cell.stage).start, cell.batch] = value

    # --- Cells ---

    async def compute(self, cell: Cell, step: int) -> Activation | ActivationGrad | None:
        match cell.op:
            case "F":
                return await self.forward(cell, step)
            case "B":
                return await self.backward(cell, step)
            case "I":
                return await self.backward_input(cell, step)
        await self.backward_weight(cell, step)
        return None

    def take_input(self, layer: int, cell: Cell, step: int) -> None:
        """The model's input, which is not kept between two uses."""
        if layer == 0:
            self.model.activations[0, cell.batch] = self.model.get_activation(self.batches(cell), step)

    async def pair(self, ahead: Cell, behind: Cell, step: int) -> list[Activation | ActivationGrad | None]:
        """A forward and a backward, layer by layer, with the results of both."""
        model, acts, grads = self.model, self.model.activations, self.model.grad_activations
        f, b = ahead.batch, behind.batch
        for layer, other in zip(self.layers(ahead.stage), reversed(self.layers(behind.stage))):
            self.take_input(layer, ahead, step)
            self.take_input(other, behind, step)
            back = other, acts.pop((other, b)), grads.pop((other + 1, b)), model.weights[other]
            acts[layer + 1, f], (new, grads[other, b]) = model.forward_backward(
                (layer, acts[layer, f], model.weights[layer]), back
            )
            del back
            if layer == 0:
                del acts[0, f]
            await self.add(other, new)
            del new
        out, grad = acts.pop((layer + 1, f)), grads.pop((other, b))
        if layer + 1 == model.LAYERS:
            grads[layer + 1, f] = model.loss(out)
        return [out if layer + 1 < model.LAYERS else None, grad if other else None]

    async def forward(self, cell: Cell, step: int) -> Activation | None:
        model, acts, b = self.model, self.model.activations, cell.batch
        for layer in self.layers(cell.stage):
            self.take_input(layer, cell, step)
            out = model.forward(layer, acts[layer, b], await self.weight(layer))
            self.drop()
            if layer == 0:
                del acts[0, b]
            if self.rows > 1:
                out = await model.allreduce(out, layer + 1, group=self.tensor)
            acts[layer + 1, b] = out
        out = acts.pop((layer + 1, b))
        if layer + 1 < model.LAYERS:
            return out
        model.grad_activations[layer + 1, b] = model.loss(out)
        return None

    async def backward(self, cell: Cell, step: int) -> ActivationGrad | None:
        model, acts, grads, b = self.model, self.model.activations, self.model.grad_activations, cell.batch
        for layer in reversed(self.layers(cell.stage)):
            weight = await self.weight(layer)
            self.take_input(layer, cell, step)
            new, out = model.backward(layer, acts.pop((layer, b)), grads.pop((layer + 1, b)), weight)
            del weight
            self.drop()
            await self.add(layer, new)
            del new
            if self.rows > 1 and (layer or self.sum_at_the_input):
                out = await model.allreduce(out, layer - 1, group=self.tensor)
            if layer:
                grads[layer, b] = out
            del out
            if self.early and not self.left[layer]:
                await self.update_all([layer])
        return grads.pop((layer, b)) if layer else None

    async def backward_input(self, cell: Cell, step: int) -> ActivationGrad | None:
        model, acts, grads, b = self.model, self.model.activations, self.model.grad_activations, cell.batch
        for layer in reversed(self.layers(cell.stage)):
            self.take_input(layer, cell, step)
            out = model.backward_input(layer, acts[layer, b], grads[layer + 1, b], model.weights[layer])
            if layer:
                grads[layer, b] = out
            else:
                del acts[0, b]
        return grads.pop((layer, b)) if layer else None

    async def backward_weight(self, cell: Cell, step: int) -> None:
        model, b = self.model, cell.batch
        for layer in reversed(self.layers(cell.stage)):
            self.take_input(layer, cell, step)
            out = model.grad_activations.pop((layer + 1, b))
            await self.add(layer, model.backward_weight(layer, model.activations.pop((layer, b)), out))

    # --- Weights ---

    async def weight(self, layer: int) -> Weight:
        """The weight of a layer as it is used: gathered for this use where replicas keep it in shards."""
        model = self.model
        if self.zero == 3:
            model.weights["full"] = await model.allgather(model.weights[layer], layer, group=self.all_same)
            return model.weights["full"]
        return model.weights[layer]

    def drop(self) -> None:
        self.model.weights.pop("full", None)

    async def add(self, layer: int, new: WeightGrad) -> None:
        grads = self.model.grad_weights
        if self.zero == 3:
            new = await self.model.scatterreduce(new, layer, group=self.all_same)
        grads[layer] = grads[layer] + new if layer in grads else new
        self.left[layer] -= 1

    async def update_all(self, layers: list[int]) -> None:
        """Updates layers, of which each rank owns at most one where gradients are sent in messages."""
        model, weights = self.model, self.model.weights
        others = [layer for layer in layers if self.in_messages and self.owner(layer) != model.rank]
        for layer in others:
            await model.pass_to(self.owner(layer), model.grad_weights.pop(layer))
            del weights[layer]
        for layer in layers:
            if layer not in others:
                await self.update(layer)
        for layer in others:
            weights[layer] = await model.receive(self.owner(layer))

    async def update(self, layer: int) -> None:
        model, weights, states = self.model, self.model.weights, self.model.opt_states
        grad = model.grad_weights.pop(layer)
        others = [rank for rank in self.same if rank != model.rank] if self.in_messages else []
        for rank in others:
            grad = grad + await model.receive(rank)
        if self.zero == 1:
            grad = await model.scatterreduce(grad, layer, group=self.all_same)
            weights[layer] = weights[layer].shard(*self.finer)
        elif not self.in_messages and self.zero == 0 and len(self.same) > 1:
            grad = await model.allreduce(grad, layer, group=self.all_same)
        weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
        if self.zero == 1:
            weights[layer] = await model.allgather(weights[layer], layer, group=self.all_same)
        for rank in others:
            await model.pass_to(rank, weights[layer])
