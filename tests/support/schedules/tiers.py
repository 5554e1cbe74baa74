"""Schedules that keep a part of what they need on the host."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from lib import Model
from lib.ledger.costs import Tier
from lib.ledger.named_costs import COSTS
from solutions.records.stream_inference_nothing_ahead import stream_inference as stream_inference_in_turn
from solutions.stream_inference import stream_inference

__all__ = ["moved", "offload", "stream_inference", "stream_inference_in_turn"]

TWO_TIERS = replace(
    COSTS["host_updates"], name="two tiers", tiers={"host": Tier(10, 20, None, 30), "disk": Tier(40, 50)}
)
"""A copy of a weight takes 10 ticks more; an optimizer state is two weights."""


def offload(parked: Collection[int], lead: int = 1) -> Callable[[Model], Any]:
    """One microbatch on one rank. The inputs of some layers go to the host after their forward, and come back so many
    layers before their backward (Rhu et al. 2016, section 3)."""

    async def schedule(model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        down: dict[int, Any] = {}
        up: dict[int, Any] = {}
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
        inputs[0] = model.get_activation([0])
        for layer in range(model.LAYERS):
            if layer in parked:
                down[layer] = model.offload(inputs[layer])
            inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
            if layer == 0:
                del inputs[0]  # the model's input can be had again
            if layer in down:
                model.parked[layer] = await down.pop(layer)
                del inputs[layer]
        grads[0] = model.loss(inputs.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            for near in range(layer, layer - lead - 1, -1):
                if near in model.parked and near not in up:
                    up[near] = model.fetch(model.parked[near])
            if layer in up:
                inputs[layer] = await up.pop(layer)
                del model.parked[layer]
            if layer == 0:
                inputs[0] = model.get_activation([0])
            new, grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
            weight_grads[layer] = new
            if layer == 0:
                del grads[0]
            weights[layer], states[layer] = model.update(layer, weight_grads.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule


async def moved(model: Model) -> None:
    """Trains layer 0 on one rank. Weight and state are on the disk; they come to the host, which updates them, and the
    new weight goes back (Rajbhandari et al. 2021, ZeRO-Infinity, section 5.1)."""
    parked = model.parked
    parked["weight"], parked["state"] = model.load_weights(0, tier="disk")
    for name in ("weight", "state"):
        parked[name, "host"] = await model.move(parked[name], to="host")
        del parked[name]
    weight = await model.fetch(parked["weight", "host"])
    inp = model.get_activation(range(model.BATCHES))
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    del weight, inp
    parked["grad"] = await model.offload(grad)
    updated = model.update(0, parked["grad"], parked["weight", "host"], parked["state", "host"], on="host")
    parked["weight", "host"], parked["state", "host"] = await updated
    del parked["grad"], grad
    parked["weight"] = await model.move(parked.pop(("weight", "host")), to="disk")
    model.weights[0] = await model.fetch(parked["weight"])
    model.set_final_weight(0, model.weights[0])
