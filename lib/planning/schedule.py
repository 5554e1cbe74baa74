"""The coroutine of a planned step: plays the actions of each rank on the Model, for pictures and tests."""

from collections.abc import Callable, Coroutine
from typing import Any

from lib import Model, Weight
from lib.pipelines.timetable import Cell

from .estimate import Program, turns


def planned(program: Program) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays a program, on a mesh with the axes dp (if there are replicas) and pp."""

    async def schedule(model: Model) -> None:
        rank = _Rank(model, program)
        for pattern, rank.cell, rank.received, rank.sent in turns(program, model.index("pp")):
            for _, operation, layer in pattern.actions:
                waiting = getattr(rank, operation.replace(" ", "_"))(layer, rank.cell.batch)
                if waiting is not None:
                    await waiting

    return schedule


class _Rank:
    """One rank: a method for each action, of a layer and a microbatch. `activations[layer, batch]` is the input of a
    layer, `grad_activations[layer, batch]` the gradient of its output. With ZeRO 3 `weights["gathered"]` is the full
    weight of one layer."""

    cell: Cell
    received: int
    sent: int

    def __init__(self, model: Model, program: Program) -> None:
        self.model, self.program, self.zero = model, program, program.zero
        self.peers = model.axis("pp")
        self.shard = (model.index("dp"), len(model.axis("dp"))) if program.replicated else (0, 1)
        self.pending: dict[str, Any] = {}
        """The calls that are awaited later, by the operation and the layer."""
        self.gradients: list[Any] = []
        """Gradients of weights that are not stored yet, the newest last."""

    def load(self, layer: int, _: int) -> None:
        model = self.model
        weight, state = model.load_weights(layer, *(self.shard if self.zero == 3 else (0, 1)))
        model.weights[layer] = weight
        if self.program.offload:
            shard = self.shard if self.zero else (0, 1)
            model.parked[layer] = model.load_weights(layer, *shard, tier="host")[1]
        else:
            model.opt_states[layer] = state.shard(*self.shard) if self.zero in (1, 2) else state

    def input(self, layer: int, batch: int) -> None:
        first = self.shard[0] * self.program.table.batches
        self.model.activations[layer, batch] = self.model.get_activation([first + batch])

    def weight(self, layer: int) -> Weight:
        return self.model.weights["gathered" if self.zero == 3 else layer]

    def forward(self, layer: int, batch: int) -> None:
        model = self.model
        model.activations[layer + 1, batch] = model.forward(layer, model.activations[layer, batch], self.weight(layer))

    def recompute(self, layer: int, batch: int) -> None:
        self.model.forward(layer, self.model.activations[layer, batch], self.weight(layer))

    def loss(self, layer: int, batch: int) -> None:
        self.model.grad_activations[layer, batch] = self.model.loss(self.model.activations.pop((layer + 1, batch)))

    def backward(self, layer: int, batch: int) -> None:
        model = self.model
        given = model.activations.pop((layer, batch)), model.grad_activations.pop((layer, batch))
        new, model.grad_activations[layer - 1, batch] = model.backward(layer, *given, self.weight(layer))
        self.gradients.append(new)

    def backward_input(self, layer: int, batch: int) -> None:
        model = self.model
        given = model.activations[layer, batch], model.grad_activations[layer, batch]
        model.grad_activations[layer - 1, batch] = model.backward_input(layer, *given, self.weight(layer))

    def backward_weight(self, layer: int, batch: int) -> None:
        model = self.model
        grad = model.grad_activations.pop((layer, batch))
        self.gradients.append(model.backward_weight(layer, model.activations.pop((layer, batch)), grad))

    def drop(self, layer: int, batch: int) -> None:
        del self.model.grad_activations[layer - 1, batch]

    # --- Gradients, weights and states ---

    def keep(self, layer: int, _: int) -> None:
        self.model.grad_weights[layer] = self.gradients.pop()

    def add(self, layer: int, _: int) -> None:
        self.model.grad_weights[layer] += self.gradients.pop()

    def keep_reduced(self, layer: int, _: int) -> None:
        self.model.grad_weights["reduced", layer] = self.gradients.pop()

    def add_reduced(self, layer: int, _: int) -> None:
        self.model.grad_weights["reduced", layer] += self.gradients.pop()

    def release(self, layer: int, _: int) -> None:
        del self.model.weights["gathered"]

    def update(self, layer: int, _: int) -> None:
        model = self.model
        grad = model.grad_weights.pop(("reduced", layer) if self.program.replicated else layer)
        weight, state = model.weights.pop(layer), model.opt_states.pop(layer)
        weight = weight.shard(*self.shard) if self.zero in (1, 2) else weight
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)

    def store(self, layer: int, _: int) -> None:
        self.model.set_final_weight(layer, self.model.weights[layer])

    # --- Calls ---

    async def receive(self, _: int, batch: int) -> None:
        stage, is_forward = self.cell.stage, self.cell.op == "F"
        layers, model = self.program.layers(stage), self.model
        result = await model.receive(self.peer(stage - 1 if is_forward else stage + 1), self.received)
        if is_forward:
            model.activations[layers.start, batch] = result
        else:
            model.grad_activations[layers.stop - 1, batch] = result

    def send(self, _: int, batch: int) -> None:
        stage, is_forward = self.cell.stage, self.cell.op == "F"
        layers, model = self.program.layers(stage), self.model
        if is_forward:
            value = model.activations.pop((layers.stop, batch))
        else:
            value = model.grad_activations.pop((layers.start - 1, batch))
        self.pending["send"] = model.pass_to(self.peer(stage + 1 if is_forward else stage - 1), value, self.sent)

    def peer(self, stage: int) -> int:
        (place,) = self.program.table.ranks_of[stage]
        return self.peers[place]

    async def wait_send(self, *_: int) -> None:
        await self.pending.pop("send")

    def gather(self, layer: int, _: int) -> None:
        self.pending[f"gather {layer}"] = self.model.allgather(self.model.weights[layer], layer, group="dp")

    async def wait_gather(self, layer: int, _: int) -> None:
        self.model.weights["gathered" if self.zero == 3 else layer] = await self.pending.pop(f"gather {layer}")

    def reduce(self, layer: int, _: int) -> None:
        reduce = self.model.scatterreduce if self.zero else self.model.allreduce
        by_microbatch = self.zero > 1 and not self.program.by_run
        grad = self.gradients.pop() if by_microbatch else self.model.grad_weights.pop(layer)
        self.pending[f"reduce {layer}"] = reduce(grad, layer, group="dp")

    async def wait_reduce(self, layer: int, _: int) -> None:
        self.gradients.append(await self.pending.pop(f"reduce {layer}"))

    def fetch(self, layer: int, _: int) -> None:
        self.pending[f"fetch {layer}"] = self.model.fetch(self.model.parked.pop(layer))

    async def wait_fetch(self, layer: int, _: int) -> None:
        self.model.opt_states[layer] = await self.pending.pop(f"fetch {layer}")

    def park(self, layer: int, _: int) -> None:
        self.pending[f"park {layer}"] = self.model.offload(self.model.opt_states.pop(layer), "host")

    async def wait_park(self, layer: int, _: int) -> None:
        self.model.parked[layer] = await self.pending.pop(f"park {layer}")
