"""The coroutine of a planned step: plays the actions of each rank on the Model, for pictures and tests."""

from collections.abc import Callable, Coroutine
from typing import Any

from lib import Model, Weight
from lib.schedules.cells import Message, by_message

from .actions import Call, OpIndex, Program, actions


def planned(program: Program) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays a program, on a mesh with the axes dp (if there are replicas) and pp."""

    async def schedule(model: Model) -> None:
        rank = _Rank(model, program)
        for _, operation, what in actions(program, model.index("pp")):
            waiting = getattr(rank, operation)(what)
            if waiting is not None:
                await waiting

    return schedule


class _Rank:
    """One rank: a method for each action. `activations[layer, batch]` is the input of a layer, `grad_activations[layer,
    batch]` the gradient of its output. With ZeRO 3 `weights["gathered"]` is the full weight of one layer."""

    def __init__(self, model: Model, program: Program) -> None:
        self.model, self.program, self.zero = model, program, program.zero
        self.peers, self.tag = model.axis("pp"), by_message(program.table.stages)
        self.shard = (model.index("dp"), len(model.axis("dp"))) if program.replicated else (0, 1)
        self.pending: dict[Call, Any] = {}
        self.gradients: list[Any] = []
        """Gradients of weights that are not stored yet, the newest last."""

    def load(self, layer: int) -> None:
        model = self.model
        weight, state = model.load_weights(layer, *(self.shard if self.zero == 3 else (0, 1)))
        model.weights[layer] = weight
        if self.program.offload:
            shard = self.shard if self.zero else (0, 1)
            model.parked[layer] = model.load_weights(layer, *shard, tier="host")[1]
        else:
            model.opt_states[layer] = state.shard(*self.shard) if self.zero in (1, 2) else state

    def input(self, at: OpIndex) -> None:
        self.model.activations[at] = self.model.get_activation([self.shard[0] * self.program.table.batches + at[1]])

    def weight(self, layer: int) -> Weight:
        return self.model.weights["gathered" if self.zero == 3 else layer]

    def forward(self, at: OpIndex) -> None:
        model, (layer, batch) = self.model, at
        model.activations[layer + 1, batch] = model.forward(layer, model.activations[at], self.weight(layer))

    def recompute(self, at: OpIndex) -> None:
        self.model.forward(at[0], self.model.activations[at], self.weight(at[0]))

    def loss(self, at: OpIndex) -> None:
        layer, batch = at
        self.model.grad_activations[at] = self.model.loss(self.model.activations.pop((layer + 1, batch)))

    def backward(self, at: OpIndex) -> None:
        model, (layer, batch) = self.model, at
        given = model.activations.pop(at), model.grad_activations.pop(at)
        new, model.grad_activations[layer - 1, batch] = model.backward(layer, *given, self.weight(layer))
        self.gradients.append(new)

    def backward_input(self, at: OpIndex) -> None:
        model, (layer, batch) = self.model, at
        given = model.activations[at], model.grad_activations[at]
        model.grad_activations[layer - 1, batch] = model.backward_input(layer, *given, self.weight(layer))

    def backward_weight(self, at: OpIndex) -> None:
        model, layer = self.model, at[0]
        grad = model.grad_activations.pop(at)
        self.gradients.append(model.backward_weight(layer, model.activations.pop(at), grad))

    def drop(self, at: OpIndex) -> None:
        del self.model.grad_activations[at[0] - 1, at[1]]

    # --- Gradients, weights and states ---

    def keep(self, layer: int) -> None:
        self.model.grad_weights[layer] = self.gradients.pop()

    def add(self, layer: int) -> None:
        self.model.grad_weights[layer] += self.gradients.pop()

    def keep_reduced(self, layer: int) -> None:
        self.model.grad_weights["reduced", layer] = self.gradients.pop()

    def add_reduced(self, layer: int) -> None:
        self.model.grad_weights["reduced", layer] += self.gradients.pop()

    def release(self, layer: int) -> None:
        del self.model.weights["gathered"]

    def update(self, layer: int) -> None:
        model = self.model
        grad = model.grad_weights.pop(("reduced", layer) if self.program.replicated else layer)
        weight, state = model.weights.pop(layer), model.opt_states.pop(layer)
        weight = weight.shard(*self.shard) if self.zero in (1, 2) else weight
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)

    def store(self, layer: int) -> None:
        self.model.set_final_weight(layer, self.model.weights[layer])

    # --- Calls ---

    async def receive(self, message: Message) -> None:
        values, key = self.passed(message)
        values[key] = await self.model.receive(self.peers[message.source], self.tag(message))

    def send(self, message: Message) -> None:
        values, key = self.passed(message)
        call = self.model.pass_to(self.peers[message.to], values.pop(key), self.tag(message))
        self.pending["send", message] = call

    def passed(self, message: Message) -> tuple[Any, OpIndex]:
        """The dictionary and the key of a message's value, which are the same on both ranks."""
        layers, batch = self.program.layers(message.made.stage), message.made.batch
        if message.made.op == "F":
            return self.model.activations, (layers.stop, batch)
        return self.model.grad_activations, (layers.start - 1, batch)

    def gather(self, layer: int) -> None:
        self.pending["gather", layer] = self.model.allgather(self.model.weights[layer], layer, group="dp")

    def reduce(self, layer: int) -> None:
        reduce = self.model.scatterreduce if self.zero else self.model.allreduce
        by_microbatch = self.zero > 1 and not self.program.by_run
        grad = self.gradients.pop() if by_microbatch else self.model.grad_weights.pop(layer)
        self.pending["reduce", layer] = reduce(grad, layer, group="dp")

    def fetch(self, layer: int) -> None:
        self.pending["fetch", layer] = self.model.fetch(self.model.parked.pop(layer))

    def park(self, layer: int) -> None:
        self.pending["park", layer] = self.model.offload(self.model.opt_states.pop(layer), "host")

    async def wait(self, call: Call) -> None:
        """Stores the result of a call."""
        model, (operation, layer) = self.model, call
        result = await self.pending.pop(call)
        match operation:
            case "gather":
                model.weights["gathered" if self.zero == 3 else layer] = result
            case "reduce":
                self.gradients.append(result)
            case "fetch":
                model.opt_states[layer] = result
            case "park":
                model.parked[layer] = result
