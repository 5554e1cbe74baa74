"""Inference with one weight on the device at a time: each is fetched when the layer before is done."""

from lib import Model


async def stream_inference(model: Model) -> Model:
    weights, activations, parked = model.weights, model.activations, model.parked

    for layer in range(model.LAYERS):
        parked[layer], _ = model.load_weights(layer, tier="host")
    activations[0] = model.get_activation(range(model.BATCHES))

    for layer in range(model.LAYERS):
        weights[layer] = await model.fetch(parked[layer])
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        del activations[layer], weights[layer]
    model.set_output(activations[model.LAYERS])
    return model
