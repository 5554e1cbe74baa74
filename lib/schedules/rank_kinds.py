"""Ranks that differ from `TimetableRank`: weights may be older than the data, or a cell is a share of a sequence."""

from collections.abc import Sequence
from typing import Any

from lib import Activation, ActivationGrad, Weight, WeightGrad
from lib.errors import RuleError

from .cells import Cell
from .timetable_rank import TimetableRank


class UnflushedRank(TimetableRank):
    """One rank of an order of the microbatches of all steps, whose weights may be older than the data."""

    async def all_steps(self, mine: Sequence[int]) -> None:
        model, setting = self.model, self.model.dist.setting
        self.step, self.lag, self.each = 0, setting.lag, self.table.batches // setting.steps
        self.left = dict.fromkeys([(step, layer) for step in range(setting.steps) for layer in mine], self.each)
        """By step and layer the microbatches whose gradients are missing."""
        for layer in mine:
            model.weights[layer, 0] = model.weights.pop(layer)
        for slot in self.table.rows[self.place]:
            await self.play(slot, 0)
        for layer in mine:
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
            raise RuleError(
                f"step {self.step} needs version {version} of layer {layer}, which is not made yet; this order is too "
                "far ahead for the microbatches of a step: flush, or take more of them"
            )
        return self.model.weights[layer, version]

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Sums a step's gradients, and updates after the last: a version goes when no later step computes with it."""
        grads, weights, states, step = self.model.grad_weights, self.model.weights, self.model.opt_states, self.step
        grads[layer, step] = grads[layer, step] + new if (layer, step) in grads else new
        self.left[step, layer] -= 1
        if not self.left[step, layer]:
            grad, weight = grads.pop((layer, step)), weights[layer, step]
            weights.pop((layer, step - self.lag), None)
            weights[layer, step + 1], states[layer] = self.model.update(layer, grad, weight, states[layer])


class TokenShareRank(TimetableRank):
    """One rank of an order of shares of tokens. Later shares attend to the keys of earlier ones, and in backward the
    keys need the gradients from later ones."""

    def share(self, unit: int) -> tuple[int, int, int]:
        """The microbatch, which of its shares it is, and how many shares it has."""
        shares = self.table.batches * max(1, self.replicas) // self.model.BATCHES
        return *divmod(unit, shares), shares

    def first_input(self, batch: int, step: int) -> Activation:
        microbatch, share, shares = self.share(batch)
        tokens = self.model.SHARES
        mine = range(share * tokens // shares, (share + 1) * tokens // shares)
        return self.model.get_activation([self.first_batch + microbatch], step, mine)

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
