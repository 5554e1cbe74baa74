"""Schedules that keep a part of what they need on the host."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from lib import Model
from solutions.records.stream_inference_nothing_ahead import stream_inference as stream_inference_in_turn
from solutions.stream_inference import stream_inference

__all__ = ["offload", "stream_inference", "stream_inference_in_turn"]


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
