"""Inference with weights on the host: the next layer's weight arrives while this layer computes."""

from lib import Model


async def stream_inference(model: Model) -> Model:
    weights, activations, parked = model.weights, model.activations, model.parked

    for layer in range(model.LAYERS):
        parked[layer], _ = model.load_weights(layer, tier="host")
    activations[0] = model.get_activation(range(model.BATCHES))

    coming = model.fetch(parked[0])
    for layer in range(model.LAYERS):
        weights[layer] = await coming
        if layer + 1 < model.LAYERS:
            coming = model.fetch(parked[layer + 1])
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        del activations[layer], weights[layer]
    model.set_output(activations[model.LAYERS])
    return model
