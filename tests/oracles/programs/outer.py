"""Random programs with outer steps, and how long they take: one list of actions, followed twice.

Every rank trains a replica on its own microbatches, some of them with a forward that is computed twice. Each layer has
rounds of its own, whose averages come at once or late, and are merged with the copies or replace them.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

WEIGHT = 512 * 512
"""Elements of a weight."""


class Action(NamedTuple):
    """What all ranks do: train a step, begin the average of a layer, or take it over."""

    name: str
    step: int
    layer: int = 0


class Program:
    """A random program: its `size`, its `steps`, the longest of its `rounds`, how `late` averages may be, its prices in
    `ticks`, and whether communication `overlaps` with computation."""

    def __init__(self, seed: int) -> None:
        self.choice = choice = Random(seed)
        ranks = choice.choice((1, 2, 3))
        batches = choice.randint(ranks, 4)
        self.size = choice.choice((1, 2, 3)), batches, ranks
        self.own = [[b for b in range(batches) if b % ranks == rank] for rank in range(ranks)]
        self.steps, self.rounds, self.late = choice.randint(1, 5), choice.randint(1, 3), choice.randint(0, 2)
        ticks = {name: choice.randint(1, 30) for name in ("forward", "backward", "update", "outer_update", "allreduce")}
        self.ticks, self.overlaps = {**ticks, "loss": 0}, choice.random() < 0.7
        self.twice = {(rank, step) for rank in range(ranks) for step in range(self.steps) if choice.random() < 0.4}
        self.replaced = {(layer, step) for layer in range(3) for step in range(6) if choice.random() < 0.3}
        self.actions = [*self._actions()]

    def _actions(self) -> Iterator[Action]:
        layers = range(self.size[0])
        ends = {layer: [*self._ends()] for layer in layers}
        begins = [(layer, end) for layer in layers for end in ends[layer]]
        comes = {}
        for layer in layers:
            for end, following in zip(ends[layer], [*ends[layer][1:], self.steps + self.late]):
                comes[layer, end] = self.choice.randint(end, min(end + self.late, following))
        for step in range(1, self.steps + 1):
            yield Action("train", step - 1)
            order = self.choice.sample(layers, len(layers))
            for layer in order:
                yield from (
                    Action("take", end, at) for at, end in begins if at == layer and end < comes[at, end] == step
                )
                if (layer, step) in begins:
                    yield Action("begin", step, layer)
                    if comes[layer, step] == step:
                        yield Action("take", step, layer)
        yield from (Action("end", end, layer) for layer, end in begins if comes[layer, end] > self.steps)

    def _ends(self) -> Iterator[int]:
        """The steps after which the rounds of a layer end."""
        end = 0
        while end <= self.steps - self.rounds or (end < self.steps and self.choice.random() < 0.5) or not end:
            end = self.choice.randint(end + 1, min(end + self.rounds, self.steps))
            yield end

    # --- By the game ---

    def schedule(self) -> Callable[[Any], Any]:
        async def schedule(model: Any) -> None:
            layers, own = range(model.LAYERS), self.own[model.rank]
            copies, states, agreed, outer, pending = {}, {}, {}, {}, {}
            for layer in layers:
                copies[layer], states[layer], outer[layer] = model.load_weights(layer, outer=True)
                agreed[layer] = copies[layer]
            for name, step, layer in self.actions:
                if name == "train":
                    grads: dict[int, Any] = {}
                    for batch in own:
                        for _ in range(1 + ((model.rank, step) in self.twice)):
                            inputs = [model.get_activation([batch], step)]
                            for at in layers:
                                inputs.append(model.forward(at, inputs[-1], copies[at]))
                        grad = model.loss(inputs.pop())
                        for at in reversed(layers):
                            new, grad = model.backward(at, inputs.pop(), grad, copies[at])
                            grads[at] = grads[at] + new if at in grads else new
                    for at in layers:
                        copies[at], states[at] = model.update(at, grads.pop(at), copies[at], states[at])
                elif name == "begin":
                    change = model.delta(layer, agreed[layer], copies[layer])
                    pending[layer] = model.allreduce(change, layer)
                    if not self.overlaps:
                        pending[layer] = await pending[layer]
                else:
                    total = pending.pop(layer)
                    if self.overlaps:
                        total = await total
                    agreed[layer], outer[layer] = model.outer_update(layer, agreed[layer], total, outer[layer])
                    if name == "take" and copies[layer].step == step and (layer, step) in self.replaced:
                        last = step == self.steps  # there is no copy of the step then
                        copies[layer] = copies[layer] if last else agreed[layer]
                    elif name == "take":
                        copies[layer] = model.merge(layer, copies[layer], agreed[layer])
            for layer in layers:
                model.set_final_weight(layer, agreed[layer])
                model.set_final_copy(layer, copies[layer])

        return schedule

    # --- By a second simulator ---

    def simulated(self) -> tuple[int, int]:
        """Ticks until the end, and the elements that the busiest rank sends."""
        layers, _, ranks = self.size
        price = self.ticks
        clock, lane, ends, averages = [0] * ranks, 0, dict[int, int](), 0
        for name, step, layer in self.actions:
            if name == "train":
                for rank in range(ranks):
                    forwards = 1 + ((rank, step) in self.twice)
                    each = price["forward"] * forwards + price["backward"]
                    clock[rank] += layers * (len(self.own[rank]) * each + price["update"])
            elif name == "begin":
                averages += 1
                lane = ends[layer] = max(lane, *clock) + price["allreduce"]
                if not self.overlaps:
                    clock = [lane] * ranks
            else:
                clock = [max(one, ends[layer]) + price["outer_update"] for one in clock]
        return max(clock), averages * (2 * (ranks - 1) * WEIGHT // ranks)
