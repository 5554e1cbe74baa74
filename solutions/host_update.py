"""ZeRO-Offload: masters and optimizer states stay on the host, which updates them while the device computes on."""

from lib import Model


async def host_update(model: Model) -> Model:
    weights, _, activations, grad_activations, grad_weights = model.storage()
    parked, layers, steps = model.parked, range(model.LAYERS), model.dist.setting.steps
    leaving, updates, coming, results = {}, {}, {}, {}  # handles, by layer

    async def join():
        """Awaits what was begun before the last backward, which has taken as long."""
        for layer in [*leaving]:
            await leaving.pop(layer)
            parked["weight", layer], parked["state", layer] = await updates.pop(layer)
        for layer in [*coming]:
            weights[layer] = await coming.pop(layer)

    for layer in layers:
        parked["weight", layer], parked["state", layer] = model.load_weights(layer, tier="host")
    coming |= {layer: model.fetch(parked["weight", layer]) for layer in layers}

    for step in range(steps):
        first, last = step == 0, step == steps - 1
        activations[0] = model.get_activation(range(model.BATCHES), step)
        for layer in layers:
            if layer in coming:
                weights[layer] = await coming.pop(layer)
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            if layer == 1 and not first:
                await join()
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

        for layer in reversed(layers):
            renewed = not first and not last
            if renewed and layer == 0:
                coming[layer] = model.fetch(parked["weight", layer])  # early: the next step begins with it
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            if not first:  # the next step computes with newer weights
                del weights[layer]
            await join()
            if renewed and layer:
                coming[layer] = model.fetch(parked["weight", layer])
            leaving[layer] = model.offload(grad_weights.pop(layer))
            masters = parked.pop(("weight", layer)), parked.pop(("state", layer))
            updates[layer] = model.update(layer, leaving[layer], *masters, on="host")
            if last:
                results[layer] = model.fetch(updates[layer][0])
        del grad_activations[0]

    await join()
    for layer in layers:
        weights[layer] = await results[layer]
        model.set_final_weight(layer, weights[layer])
    return model
