"""Coroutines that play timetables: `pipeline` any order, also with older weights than data, and with token shares;
`begun` what can already be computed of a draft, a timetable in the making.

`TimetableRank` decides what a rank stores under which key, and when it receives, sends, gathers and updates. The order
of its cells comes from the timetable, and what an operation takes from the costs of the game.

An order that computes in another way is a subclass that replaces one step: where a weight is taken from, how a layer
is computed, when a layer is updated. A coroutine for each textbook order would repeat the storage and the messages.

`Draft` is no `Timetable`, because it may lack cells: it says where a cell may go, and why not elsewhere. What can be
computed of it is a `BegunTable`, whose cells may also lack their backward.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from lib import CLASSIC_SETTING, Activation, ActivationGrad, Model, RuleError, Setting, Weight, WeightGrad
from lib.errors import Sentences
from lib.ledger.algebra import counted
from lib.ledger.rank import Handle
from lib.ledger.values import object_text

from .timetable import (
    Cell,
    Dependencies,
    Slot,
    Timetable,
    by_message,
    in_order,
    untagged,
)

# --- One rank: cells, stages of layers, messages, weights and updates ---


class Axes(NamedTuple):
    """The lengths of the mesh axes: ranks of one pipeline, replicas of it, shards of a layer."""

    pp: int
    dp: int
    tp: int


def axes_of(setting: Setting, ranks: int) -> Axes:
    """The axes of a game; without a mesh all ranks form one pipeline."""
    mesh = dict(setting.mesh) or {"pp": ranks}
    return Axes(*(mesh.get(name, 1) for name in Axes._fields))


class TimetableRank:
    """One rank's row of the timetable.

    `activations[layer, batch]` is the input of a layer, `grad_activations[layer, batch]` the gradient of its output.
    """

    def __init__(self, model: Model, table: Timetable, recompute: bool, sharded: bool, buffered: bool) -> None:
        self.model, self.table, self.recompute = model, table, recompute
        self.tag = by_message(table.stages) if buffered else table.tag
        self.travels = buffered and model.dist.setting.costs.overlap
        self.under_way: deque[Handle] = deque()
        """Messages that have been sent and not awaited."""
        axes = dict(model.dist.setting.mesh)
        alone = ((model.rank,), 0) if axes else (tuple(range(model.RANKS)), model.rank)
        self.peers, self.place = (model.axis("pp"), model.index("pp")) if "pp" in axes else alone
        _, self.replicas, self.shards = axes_of(model.dist.setting, model.RANKS)
        self.replica = model.index("dp") if "dp" in axes else 0
        self.shard = model.index("tp") if "tp" in axes else 0
        # The game's number of this pipeline's microbatch 0.
        self.first_batch = self.replica * (model.BATCHES // self.replicas)
        self.sharded = sharded and self.replicas > 1
        self.depth = model.LAYERS // table.stages
        self.whole: int | None = None
        """The stage whose weights this rank has gathered, if they are sharded."""

    async def train(self) -> None:
        model = self.model
        layers = [layer for stage in self.table.stages_of(self.place) for layer in self.layers(stage)]
        shard = (self.replica, self.replicas) if self.sharded else (self.shard, self.shards)
        for layer in layers:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *shard)
        await self.all_steps(layers)
        for handle in self.under_way:
            await handle
        for layer in layers:
            model.set_final_weight(layer, model.weights[layer])

    async def all_steps(self, layers: Sequence[int]) -> None:
        """Plays each step in its order, and then the updates."""
        for step in range(self.model.dist.setting.steps):
            for slot in self.table.rows[self.place]:
                await self.play(slot, step)
            await self.switch(None)
            for layer in layers:
                await self.update(layer)

    def layers(self, stage: int) -> range:
        return range(stage * self.depth, (stage + 1) * self.depth)

    async def play(self, slot: Slot, step: int) -> None:
        """Receives the inputs of a slot, computes its cells, and sends their results."""
        await self.drop_what_arrived()
        await self.reach(slot[0])
        for message in self.table.needs.received(slot):
            self.keep(message.made, await self.model.receive(self.peers[message.source], self.tag(message)))
        outgoing = {message.made: message for message in self.table.needs.sent(slot)}
        results = await self.pair(slot, step) if self.pairs(slot) else dict[Cell, Any]()
        for cell in slot:
            if cell not in results:
                results[cell] = await self.compute(cell, step)
            if cell not in outgoing:  # the next stage is on this rank too
                self.keep(cell, results.pop(cell))
        for cell, message in outgoing.items():
            sent = self.model.pass_to(self.peers[message.to], results.pop(cell), self.tag(message))
            if self.travels:
                assert isinstance(sent, Handle)
                self.under_way.append(sent)
            else:
                await sent

    def pairs(self, slot: Slot) -> bool:
        """True if a slot is one operation: a forward and a backward of single layers, where a pair has a price."""
        kinds = sorted(cell.op for cell in slot)
        plain = not (self.recompute or self.sharded) and self.depth == self.shards == 1
        return kinds == ["B", "F"] and plain and self.model.dist.setting.costs.priced("pair")

    async def drop_what_arrived(self) -> None:
        """Awaits messages that have arrived. Until awaited, they take memory."""
        now = round(self.model.time * self.model.dist.setting.costs.unit)
        while self.under_way and 0 <= self.under_way[0].call.end <= now:
            await self.under_way.popleft()

    # --- Cells ---

    def first_input(self, batch: int, step: int) -> Activation:
        """The model's input for a microbatch."""
        return self.model.get_activation([self.first_batch + batch], step)

    async def layer_forward(self, layer: int, batch: int) -> Activation:
        """Computes a layer from its stored input."""
        return self.model.forward(layer, self.model.activations[layer, batch], await self.weight(layer))

    async def layer_backward(self, layer: int, batch: int, grad: ActivationGrad) -> tuple[WeightGrad, ActivationGrad]:
        """The gradients of a layer's weight and input; deletes the stored input."""
        inp = self.model.activations.pop((layer, batch))
        return self.model.backward(layer, inp, grad, await self.weight(layer))

    def keep(self, cell: Cell, value: Activation | ActivationGrad | None) -> None:
        """Stores the result of a cell, for the next or the previous stage."""
        if isinstance(value, Activation):
            self.model.activations[self.layers(cell.stage).stop, cell.batch] = value
        elif isinstance(value, ActivationGrad):
            self.model.grad_activations[self.layers(cell.stage).start - 1, cell.batch] = value

    async def compute(self, cell: Cell, step: int = 0) -> Activation | ActivationGrad | None:
        """Computes a cell of a training step, and returns the result that another stage waits for."""
        await self.reach(cell)
        match cell.op:
            case "F":
                return await self.forward(cell, step)
            case "B":
                return await self.backward(cell)
            case "I":
                return await self.backward_input(cell)
        await self.backward_weight(cell)
        return None

    async def forward(self, cell: Cell, step: int) -> Activation | None:
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        if layers.start == 0:
            model.activations[0, b] = self.first_input(b, step)
        for layer in layers:
            out: Activation = await self.summed(await self.layer_forward(layer, b), layer + 1)
            if self.recompute and layer > layers.start:
                del model.activations[layer, b]  # it is computed again
            if layer + 1 < layers.stop:
                model.activations[layer + 1, b] = out
        if layers.stop < model.LAYERS:
            return out
        model.grad_activations[layers.stop - 1, b] = model.loss(out)
        return None

    async def backward(self, cell: Cell) -> ActivationGrad | None:
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        await self.before_backward(cell)
        grad = model.grad_activations.pop((layers.stop - 1, b))
        for layer in reversed(layers):
            new, grad = await self.layer_backward(layer, b, grad)
            await self.add(layer, new)
            if layer:  # nobody needs the gradient of the model's input
                grad = await self.summed(grad, layer - 1)
        return grad if layers.start else None

    async def pair(self, slot: Slot, step: int) -> dict[Cell, Activation | ActivationGrad | None]:
        """Computes the forward and the backward of a slot, of one layer each, at once."""
        model = self.model
        ahead, behind = sorted(slot, key=lambda cell: cell.op, reverse=True)
        layer, back = self.layers(ahead.stage).start, self.layers(behind.stage).start
        if layer == 0:
            model.activations[0, ahead.batch] = self.first_input(ahead.batch, step)
        inp, grad = model.activations.pop((back, behind.batch)), model.grad_activations.pop((back, behind.batch))
        out, (new, before) = model.forward_backward(
            (layer, model.activations[layer, ahead.batch], await self.weight(layer)),
            (back, inp, grad, await self.weight(back)),
        )
        await self.add(back, new)
        if layer == model.LAYERS - 1:
            model.grad_activations[layer, ahead.batch] = model.loss(out)
        return {ahead: out if layer < model.LAYERS - 1 else None, behind: before if back else None}

    async def backward_input(self, cell: Cell) -> ActivationGrad | None:
        """Keeps what the weight half needs: each layer's input, and the gradient of its output."""
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        await self.before_backward(cell)
        for layer in reversed(layers):
            given = model.activations[layer, b], model.grad_activations[layer, b]
            grad = model.backward_input(layer, *given, await self.weight(layer))
            if layer > layers.start:
                model.grad_activations[layer - 1, b] = grad
        return grad if layers.start else None

    async def backward_weight(self, cell: Cell) -> None:
        model, b = self.model, cell.batch
        for layer in reversed(self.layers(cell.stage)):
            grad = model.grad_activations.pop((layer, b))
            await self.add(layer, model.backward_weight(layer, model.activations.pop((layer, b)), grad))

    async def before_backward(self, cell: Cell) -> None:
        """Recomputes the inputs of a stage's layers from the input of the stage."""
        model, b = self.model, cell.batch
        for layer in self.layers(cell.stage)[:-1] if self.recompute else ():
            inp = model.activations[layer, b]
            part = model.forward(layer, inp, await self.weight(layer))
            model.activations[layer + 1, b] = await self.summed(part, layer + 1)

    # --- Weights ---

    async def weight(self, layer: int) -> Weight:
        return self.model.weights["whole", layer] if self.sharded else self.model.weights[layer]

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Adds one microbatch's gradient to the gradient of a layer."""
        key = ("whole", layer) if self.sharded else layer
        grads = self.model.grad_weights
        grads[key] = grads[key] + new if key in grads else new

    async def summed(self, part: Any, layer: int) -> Any:
        """The sum of a value's parts from ranks with shards of a layer; `layer` is its label."""
        return await self.model.allreduce(part, layer, group="tp") if self.shards > 1 else part

    async def reach(self, cell: Cell) -> None:
        """Provides the weights that a cell needs."""
        if self.sharded and cell.stage != self.whole and cell.op != "W":
            await self.switch(cell.stage)

    async def switch(self, stage: int | None) -> None:
        """Scatters the gradients of one stage, and gathers the weights of the next."""
        model = self.model
        weights, grads = model.weights, model.grad_weights
        for key in [key for key in grads if isinstance(key, tuple)]:
            layer = key[1]
            shard = await model.scatterreduce(grads.pop(key), layer, group="dp")
            grads[layer] = grads[layer] + shard if layer in grads else shard
        for key in [key for key in weights if isinstance(key, tuple)]:
            del weights[key]
        for layer in self.layers(stage) if stage is not None else ():
            weights["whole", layer] = await model.allgather(weights[layer], layer, group="dp")
        self.whole = stage

    async def update(self, layer: int) -> None:
        model = self.model
        grad = model.grad_weights.pop(layer)
        others = [self.peers[r] for r in self.table.ranks_of[layer // self.depth] if r != self.place]
        tag = 0 if self.tag is untagged else 2 * self.table.stages * self.table.batches + layer
        for other in others:  # a copy of the stage, with other microbatches
            await model.pass_to(other, grad, tag)
        for other in others:
            grad = grad + await model.receive(other, tag)
        if self.replicas > 1 and not self.sharded:
            grad = await model.allreduce(grad, layer, group="dp")
        weights, states = model.weights, model.opt_states
        weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])


# --- Drafts: the cells placed so far, where others may go, and which can already be run ---

Links = Mapping[Cell, Sequence[Cell]]


@dataclass(frozen=True)
class Draft:
    """Some cells of a training step in rows, one for each rank. Each forward has its B, or its I and W if `halves`.

    Raises:
        RuleError: a cell occurs twice, or does not belong to the step.
    """

    rows: tuple[tuple[Cell, ...], ...]
    stages: int
    batches: int
    halves: bool = False

    def __post_init__(self) -> None:
        seen = set[Cell]()
        for cell in (cell for row in self.rows for cell in row):
            if cell not in self.wanted:
                raise RuleError(
                    f"{cell} is not a cell of a step with {self.stages} stages and {self.batches} microbatches"
                )
            if cell in seen:
                raise RuleError(f"{cell} occurs twice")
            seen.add(cell)

    @cached_property
    def wanted(self) -> Mapping[Cell, None]:
        """All cells of the step, stage by stage."""
        ops = "FIW" if self.halves else "FB"
        return dict.fromkeys(Cell(s, op, b) for s in range(self.stages) for op in ops for b in range(self.batches))

    @cached_property
    def rank_of(self) -> Mapping[Cell, int]:
        """The placed cells with their ranks."""
        return {cell: rank for rank, row in enumerate(self.rows) for cell in row}

    @property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.wanted if cell not in self.rank_of]

    def without(self, cell: Cell) -> Draft:
        return replace(self, rows=tuple(tuple(other for other in row if other != cell) for row in self.rows))

    def refusals(self, cell: Cell) -> list[list[str]]:
        """For each rank and each index in its row, up to its end, why an unplaced cell cannot be there; empty where it
        can."""
        needs = self._needs([*self.rank_of, cell])
        earlier, later = reached(cell, needs), reached(cell, inverse(needs))
        home = next((rank for placed, rank in self.rank_of.items() if placed.stage == cell.stage), None)
        return [
            [f"stage {cell.stage} is on rank {home}: put {cell} there"] * (len(row) + 1)
            if home not in (None, rank)
            else [_refusal(cell, row, at, earlier, later) for at in range(len(row) + 1)]
            for rank, row in enumerate(self.rows)
        ]

    def starts(self, durations: Mapping[str, int]) -> dict[Cell, int]:
        """The earliest start of each placed cell, by the duration of each operation; messages take no time.

        Raises:
            RuleError: cells wait for each other.
        """
        needs = self._needs(self.rank_of)
        starts: dict[Cell, int] = {}
        left = dict.fromkeys(self.rank_of)
        while left:
            ready = [cell for cell in left if all(needed in starts for needed in needs[cell])]
            if not ready:
                raise RuleError(f"{next(iter(left))} and others wait for each other; move one of them")
            for cell in ready:
                del left[cell]
                starts[cell] = max((starts[needed] + durations[needed.op] for needed in needs[cell]), default=0)
        return starts

    def computable(self) -> list[list[Cell]]:
        """The beginning of each row, up to the first cell that waits for an unplaced one."""
        slots = [[(cell,) for cell in row] for row in self.rows]
        count = Counter(rank for rank, _ in in_order(slots, self.step))
        return [[*row[: count[rank]]] for rank, row in enumerate(self.rows)]

    def ready(self) -> Iterator[tuple[Cell, int]]:
        """For each stage and operation, the next missing cell whose inputs are placed, with its rank: the rank of the
        stage, or the rank with the stage's number, counted in a circle."""
        first: dict[tuple[int, str], Cell] = {}
        for cell in self.missing:
            first.setdefault((cell.stage, cell.op), cell)
        home = {cell.stage: rank for cell, rank in self.rank_of.items()}
        for cell in first.values():
            if self.rank_of.keys() >= {*self.step.of(cell)}:
                yield cell, home.get(cell.stage, cell.stage % len(self.rows))

    @cached_property
    def step(self) -> Dependencies:
        return Dependencies([[tuple(self.wanted)]])

    def _needs(self, cells: Iterable[Cell]) -> dict[Cell, list[Cell]]:
        """For each cell, those that it waits for: the previous one of its microbatch and the previous one in its
        row."""
        among = set(cells)
        needs: dict[Cell, list[Cell]] = {cell: [] for cell in among}
        for batch in range(self.batches):
            way = list(self._way(batch))
            for before, cell in pairwise(cell for cell in way if cell in among):
                needs[cell].append(before)
            for stage in range(self.stages):
                if (weight := Cell(stage, "W", batch)) in among:
                    until = way[: way.index(Cell(stage, "I", batch)) + 1]
                    needs[weight] += [cell for cell in until if cell in among][-1:]
        for row in self.rows:
            for before, cell in pairwise(row):
                needs[cell].append(before)
        return needs

    def _way(self, batch: int) -> Iterator[Cell]:
        """The cells of a microbatch: forward through all stages, and back."""
        back = "I" if self.halves else "B"
        yield from (Cell(stage, "F", batch) for stage in range(self.stages))
        yield from (Cell(stage, back, batch) for stage in reversed(range(self.stages)))


def reached(cell: Cell, links: Links) -> dict[Cell, Cell]:
    """All cells that the links lead to, each with the previous one on the way."""
    through = {linked: linked for linked in links[cell]}
    queue = deque(through)
    while queue:
        here = queue.popleft()
        for linked in links[here]:
            if linked not in through:
                through[linked] = through[here]
                queue.append(linked)
    return through


def inverse(links: Links) -> dict[Cell, list[Cell]]:
    """The reversed links."""
    turned: dict[Cell, list[Cell]] = {cell: [] for cell in links}
    for cell, others in links.items():
        for other in others:
            turned[other].append(cell)
    return turned


def _refusal(cell: Cell, row: Sequence[Cell], at: int, earlier: Mapping[Cell, Cell], later: Mapping[Cell, Cell]) -> str:
    """Why a cell cannot be at an index of a row: a cell that must come before it would come after it, or the
    reverse."""
    behind = next((other for other in reversed(row[at:]) if other in earlier), None)
    if behind is not None:
        through = earlier[behind]
        waits = f"needs {through}" if through == behind else f"waits for {through}, which waits for {behind}"
        return f"{cell} {waits}: put it after {behind}"
    ahead = next((other for other in row[:at] if other in later), None)
    if ahead is not None:
        through = later[ahead]
        waits = f"needs {cell}" if through == ahead else f"waits for {through}, which waits for {cell}"
        return f"{ahead} {waits}: put {cell} before {ahead}"
    return ""


@dataclass(frozen=True)
class BegunTable(Timetable):
    """The cells of a draft whose inputs are made by other cells of it, in the order of their rows."""

    count: int = 1
    has_tags: bool = False

    @classmethod
    def of_draft(cls, draft: Draft, has_tags: bool) -> BegunTable:
        """All cells that can be computed."""
        rows = tuple(tuple((cell,) for cell in row) for row in draft.computable())
        return cls(rows, count=draft.stages, has_tags=has_tags)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", Dependencies(self.rows, self.count))
        if not self.has_tags and self.tag is not untagged:
            raise RuleError(SAYS("messages change places"))

    @property
    def stages(self) -> int:
        return self.count


def begun(table: BegunTable, sharded: bool = False) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that computes these cells as `pipeline` does, and updates layers whose gradients are complete."""

    async def schedule(model: Model) -> None:
        await _BegunRank(model, table, recompute=False, sharded=sharded, buffered=False).train()

    return schedule


class _BegunRank(TimetableRank):
    """One rank, which may end early."""

    async def update(self, layer: int) -> None:
        grad = self.model.grad_weights.get(layer)
        replicas = 1 if self.sharded else self.replicas  # whose gradients come later
        if grad is not None and replicas * len(grad.batches) == self.model.BATCHES:
            await super().update(layer)


# --- Pipelines ---


class UnflushedRank(TimetableRank):
    """One rank of an order of all steps' microbatches, whose weights may be older than the data."""

    async def all_steps(self, layers: Sequence[int]) -> None:
        model, setting = self.model, self.model.dist.setting
        self.step, self.lag, self.each = 0, setting.lag, self.table.batches // setting.steps
        self.left = dict.fromkeys([(step, layer) for step in range(setting.steps) for layer in layers], self.each)
        """By step and layer, the number of microbatches whose gradients are missing."""
        for layer in layers:
            model.weights[layer, 0] = model.weights.pop(layer)
        for slot in self.table.rows[self.place]:
            await self.play(slot, 0)
        for layer in layers:
            model.weights[layer] = model.weights.pop((layer, setting.steps))

    def first_input(self, batch: int, step: int) -> Activation:
        step, batch = divmod(batch, self.each)
        return super().first_input(batch, step)

    async def compute(self, cell: Cell, step: int = 0) -> Activation | ActivationGrad | None:
        self.step = cell.batch // self.each
        return await super().compute(cell, step)

    async def weight(self, layer: int) -> Weight:
        version = max(0, self.step - self.lag)
        if (layer, version) not in self.model.weights:
            raise RuleError(SAYS("version not made", step=self.step, version=version, layer=layer))
        return self.model.weights[layer, version]

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Sums a step's gradients, and updates after the last. Drops a weight version when no later step computes with
        it."""
        grads, weights, states, step = self.model.grad_weights, self.model.weights, self.model.opt_states, self.step
        grads[layer, step] = grads[layer, step] + new if (layer, step) in grads else new
        self.left[step, layer] -= 1
        if not self.left[step, layer]:
            grad, weight = grads.pop((layer, step)), weights[layer, step]
            weights.pop((layer, step - self.lag), None)
            weights[layer, step + 1], states[layer] = self.model.update(layer, grad, weight, states[layer])


class TokenShareRank(TimetableRank):
    """One rank of an order of token shares. Later shares attend to the keys of earlier ones; in backward, keys need the
    gradients from later shares."""

    def share(self, unit: int) -> tuple[int, int, int]:
        """The microbatch of a cell, the index of its share, and the number of shares."""
        shares = self.table.batches * max(1, self.replicas) // self.model.BATCHES
        return *divmod(unit, shares), shares

    def first_input(self, batch: int, step: int) -> Activation:
        microbatch, share, shares = self.share(batch)
        tokens = self.model.SHARES
        tokens_of_share = range(share * tokens // shares, (share + 1) * tokens // shares)
        return self.model.get_activation([self.first_batch + microbatch], step, tokens_of_share)

    async def layer_forward(self, layer: int, batch: int) -> Activation:
        stored: dict[Any, Any] = self.model.activations
        _, share, _ = self.share(batch)
        past = [stored["keys", layer, batch - share + k] for k in range(share)]
        out, stored["keys", layer, batch] = self.model.block_forward(
            layer, stored[layer, batch], await self.weight(layer), past
        )
        return out

    async def layer_backward(self, layer: int, batch: int, grad: ActivationGrad) -> tuple[WeightGrad, ActivationGrad]:
        model, (_, share, shares) = self.model, self.share(batch)
        stored: dict[Any, Any] = model.activations
        units = [("keys", layer, batch - share + k) for k in range(share + 1)]
        keys, inp = [stored[unit] for unit in units], stored.pop((layer, batch))
        del stored[units[-1]]
        later = [model.grad_activations.pop(unit) for unit in units] if share < shares - 1 else ()
        new, before, of_keys = model.block_backward(layer, inp, keys, grad, await self.weight(layer), later)
        model.grad_activations.update(zip(units, of_keys))
        return new, before


Order = Callable[..., Timetable]
"""Makes a timetable from ranks, microbatches and other sizes."""


def pipeline(
    order: Timetable | Order,
    *,
    recompute: bool = False,
    sharded: bool = False,
    buffered: bool = False,
    flush: bool = True,
    **sizes: int,
) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays an order, such as `pipeline(one_f_one_b)` or `pipeline(interleaved, v=2)`.

    An order gets the ranks and microbatches of the game, and `sizes`. All stages have the same number of layers. In a
    game of several steps the order is repeated, without a wait between steps. Without `flush` one order has the
    microbatches of all steps, and weights are as old as the game allows (`Setting.lag`): 2BW is `pipeline(one_f_one_b,
    flush=False)` (Narayanan et al. 2021). In games of attention layers, an order of several times the microbatches
    computes shares of their tokens, as in `pipeline(seq1f1b, shares=4)`.

    `recompute` keeps only a stage's input, and recomputes the rest before its backward (Chen et al. 2016). On a mesh
    with the axes pp and dp each replica is a pipeline with its part of the microbatches; gradients are summed along dp
    at the end. With an axis tp, each rank has a shard of each layer, and partial activations and their gradients are
    summed along tp. `sharded` splits weights and states along dp, and a rank holds the full weights of one stage at a
    time (ZeRO-3): when it turns to another stage, gradients are scattered and weights gathered. `buffered` gives each
    message its own tag, so that none waits until the previous one is read. Where costs have overlap, messages then
    travel while their sender continues.

    Raises:
        RuleError: the argument is not an order, or it is a timetable with other sizes. In a run: the game's size
            differs from the timetable's, or the order is refused.
    """
    if not isinstance(order, Timetable) and not callable(order):
        raise RuleError(f"pipeline takes an order, such as one_f_one_b, or a timetable; got {object_text(order)}")
    if isinstance(order, Timetable) and sizes:
        raise RuleError(f"a timetable has its sizes already; leave out {', '.join(sizes)}")

    async def schedule(model: Model) -> None:
        setting = model.dist.setting
        ranks, replicas, _ = axes_of(setting, model.RANKS)
        batches, left = divmod(model.BATCHES, replicas)
        if left:
            raise RuleError(
                f"{counted(model.BATCHES, 'microbatch')} cannot be dealt to {replicas} replicas; take a multiple"
            )
        in_order = batches if flush else batches * setting.steps
        table = order if isinstance(order, Timetable) else _made(order, ranks, in_order, **sizes)
        shares = table.batches // in_order if setting.layer == "attention" else 1
        _require_fit(table, model.LAYERS, ranks, in_order * max(shares, 1))
        if shares > setting.shares:
            raise RuleError(f"this order cuts a sequence into {shares} shares; the game has {setting.shares}")
        if not flush and (sharded or setting.layer == "attention"):
            raise RuleError("an order without a flush is played with full weights and layers that are not attention")
        if (buffered or table.tag is not untagged) and setting == CLASSIC_SETTING:
            raise RuleError(
                "this order needs messages with tags, which the classic costs lack; take others, such as stages"
            )
        kind = TokenShareRank if setting.layer == "attention" else TimetableRank if flush else UnflushedRank
        await kind(model, table, recompute, sharded, buffered).train()

    return schedule


@lru_cache(16)
def _made(order: Order, ranks: int, batches: int, **sizes: int) -> Timetable:
    return order(ranks, batches, **sizes)


def _require_fit(table: Timetable, layers: int, ranks: int, batches: int) -> None:
    if (table.ranks, table.batches) != (ranks, batches):
        raise RuleError(
            f"this timetable is for {counted(table.ranks, 'rank')} and {counted(table.batches, 'microbatch')}; the "
            f"game has {ranks} and {batches}"
        )
    if layers % table.stages:
        raise RuleError(
            f"{counted(layers, 'layer')} cannot be cut into {table.stages} equal stages; take a multiple of "
            f"{table.stages} layers"
        )


SAYS = Sentences(
    {
        "messages change places": "in this order messages between two ranks would change places, which needs tags",
        "version not made": "step {step} needs version {version} of layer {layer}, which is not made yet; this order is too far ahead for the microbatches of a step: flush, or take more of them",
    }
)
