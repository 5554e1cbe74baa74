"""Binomial checkpointing: the fewest forwards with room for so many activations (Griewank and Walther 2000).

To go back through layers `first` to `end - 1`, keep one input between them, go back through the layers above it with
one slot less, forget it, and go back through the layers below it. The input to keep is the one with which all this
takes the fewest forwards. The model's input needs no slot, because it can be had again.
"""

from functools import cache

from lib import Model

SLOTS = 4
"""How many activations are stored at a time, at most. A slot less takes the memory of an activation less."""

VARIANTS = {
    # As good as the reference: four forwards more than with eight slots.
    "four_slots": {"SLOTS": 4},
    # With nine layers every input has a slot, and no forward is repeated.
    "eight_slots": {"SLOTS": 8},
    # One forward more than with eight slots.
    "seven_slots": {"SLOTS": 7},
    # Two forwards more than with eight slots.
    "six_slots": {"SLOTS": 6},
    # Three forwards more than with eight slots.
    "five_slots": {"SLOTS": 5},
    # Five forwards more than with eight slots.
    "three_slots": {"SLOTS": 3},
    # Nine forwards more than with eight slots.
    "two_slots": {"SLOTS": 2},
    # The least memory: 28 forwards more than with eight slots.
    "one_slot": {"SLOTS": 1},
}


@cache
def forwards(layers: int, slots: int) -> float:
    """How many forwards it takes to go back through so many layers, from the input of the first."""
    if layers == 1:
        return 0
    return min((forwards_by(keep, layers, slots) for keep in range(1, layers)), default=0) if slots else float("inf")


def forwards_by(keep: int, layers: int, slots: int) -> float:
    """The same, if the input of this layer is the first to be kept."""
    return keep + forwards(layers - keep, slots - 1) + forwards(keep, slots)


def checkpoint(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def forward(layer: int, keeps_input: bool) -> None:
        inp = activations[layer] if layer else model.get_activation(range(model.BATCHES))
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        del inp
        if layer and not keeps_input:
            del activations[layer]

    def backward(layer: int) -> None:
        if layer == model.LAYERS - 1:
            forward(layer, keeps_input=True)
            grad_activations[0] = model.loss(activations.pop(model.LAYERS))
        inp = activations.pop(layer) if layer else model.get_activation(range(model.BATCHES))
        grad_weights[layer], grad_activations[0] = model.backward(layer, inp, grad_activations[0], weights[layer])
        del inp
        if layer == 0:
            del grad_activations[0]
        new = model.update(layer, grad_weights.pop(layer), weights[layer], opt_states[layer])
        weights[layer], opt_states[layer] = new
        model.set_final_weight(layer, weights[layer])

    def back(first: int, end: int, slots: int) -> None:
        if end - first == 1:
            return backward(first)
        keep = min(range(1, end - first), key=lambda keep: forwards_by(keep, end - first, slots))
        for layer in range(first, first + keep):
            forward(layer, keeps_input=layer == first)
        back(first + keep, end, slots - 1)
        back(first, first + keep, slots)

    back(0, model.LAYERS, SLOTS)
    return model
