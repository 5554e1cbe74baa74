# packing: rule
"""Wrong: no rank knows the gradients of the others."""

from lib import Model


def dealt(lengths, ranks):
    shares = [[] for _ in range(ranks)]
    for batch in sorted(range(len(lengths)), key=lambda batch: -lengths[batch]):
        min(shares, key=lambda share: sum(lengths[other] for other in share)).append(batch)
    return shares


async def packing(model: Model) -> Model:
    loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
    grads = [model.fake_grad(layer, []) for layer in range(model.LAYERS)]
    for batch in dealt(model.dist.setting.lengths, model.RANKS)[model.rank]:
        inputs, keys = [model.get_activation([batch])], []
        for layer, (weight, _) in enumerate(loaded):
            keys.append(model.keys(layer, inputs[layer], weight))
            inputs.append(model.attend(layer, inputs[layer], [keys[layer]]))
        grad = model.loss(inputs.pop())
        for layer, (weight, _) in reversed([*enumerate(loaded)]):
            inp = inputs.pop()
            through, (of_keys,) = model.attend_backward(layer, inp, [keys.pop()], grad)
            new, grad = model.keys_backward(layer, inp, of_keys, weight, through)
            grads[layer] = grads[layer] + new
    for layer, (weight, state) in enumerate(loaded):
        model.set_final_weight(layer, model.update(layer, grads[layer], weight, state)[0])
    return model
