"""What a rank computes in a cell, whoever decides when: forward, backward, and the two halves of backward."""

from lib import Activation, ActivationGrad, Model, Weight, WeightGrad

from .cells import Cell, Slot


class CellWork:
    """One rank's part of a pipeline's cells.

    `activations[layer, batch]` is the input of a layer, `grad_activations[layer, batch]` the gradient of its output.
    """

    model: Model
    first_batch: int
    """The game's number of this pipeline's microbatch 0."""

    # --- Where pipelines differ ---

    def layers(self, stage: int) -> range:
        """The layers of a stage."""
        raise NotImplementedError

    async def weight(self, layer: int) -> Weight:
        """The whole weight of a layer."""
        raise NotImplementedError

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Takes in the gradient of a layer by one microbatch."""
        raise NotImplementedError

    def first_input(self, batch: int, step: int) -> Activation:
        """The model's input for a microbatch."""
        return self.model.get_activation([self.first_batch + batch], step)

    async def layer_forward(self, layer: int, batch: int) -> Activation:
        """Computes a layer from its stored input."""
        return self.model.forward(layer, self.model.activations[layer, batch], await self.weight(layer))

    async def layer_backward(self, layer: int, batch: int, grad: ActivationGrad) -> tuple[WeightGrad, ActivationGrad]:
        """The gradients of a layer's weight and input; the stored input goes."""
        inp = self.model.activations.pop((layer, batch))
        return self.model.backward(layer, inp, grad, await self.weight(layer))

    def after_forward(self, cell: Cell, layer: int) -> None:
        """Follows the forward of a layer."""

    async def before_backward(self, cell: Cell) -> None:
        """Precedes backward, or its input half."""

    # --- What they share ---

    def keep(self, cell: Cell, value: Activation | ActivationGrad | None) -> None:
        """Stores what a cell has made, for the next stage or for the one before."""
        if isinstance(value, Activation):
            self.model.activations[self.layers(cell.stage).stop, cell.batch] = value
        elif isinstance(value, ActivationGrad):
            self.model.grad_activations[self.layers(cell.stage).start - 1, cell.batch] = value

    async def compute(self, cell: Cell, step: int = 0) -> Activation | ActivationGrad | None:
        """Computes a cell of a training step, and returns what another stage waits for."""
        match cell.op:
            case "F":
                return await self.forward(cell, step)
            case "B":
                return await self.backward(cell)
            case "I":
                return await self.backward_input(cell)
        await self.backward_weight(cell)
        return None

    async def forward(self, cell: Cell, step: int) -> Activation | None:
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        if layers.start == 0:
            model.activations[0, b] = self.first_input(b, step)
        for layer in layers:
            out = await self.layer_forward(layer, b)
            self.after_forward(cell, layer)
            if layer + 1 < layers.stop:
                model.activations[layer + 1, b] = out
        if layers.stop < model.LAYERS:
            return out
        model.grad_activations[layers.stop - 1, b] = model.loss(out)
        return None

    async def backward(self, cell: Cell) -> ActivationGrad | None:
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        await self.before_backward(cell)
        grad = model.grad_activations.pop((layers.stop - 1, b))
        for layer in reversed(layers):
            new, grad = await self.layer_backward(layer, b, grad)
            await self.add(layer, new)
        return grad if layers.start else None

    async def pair(self, slot: Slot, step: int) -> dict[Cell, Activation | ActivationGrad | None]:
        """The forward and the backward of a slot, of one layer each, at once."""
        model = self.model
        ahead, behind = sorted(slot, key=lambda cell: cell.op, reverse=True)
        layer, back = self.layers(ahead.stage).start, self.layers(behind.stage).start
        if layer == 0:
            model.activations[0, ahead.batch] = self.first_input(ahead.batch, step)
        inp, grad = model.activations.pop((back, behind.batch)), model.grad_activations.pop((back, behind.batch))
        out, (new, before) = model.forward_backward(
            (layer, model.activations[layer, ahead.batch], await self.weight(layer)),
            (back, inp, grad, await self.weight(back)),
        )
        await self.add(back, new)
        if layer == model.LAYERS - 1:
            model.grad_activations[layer, ahead.batch] = model.loss(out)
        return {ahead: out if layer < model.LAYERS - 1 else None, behind: before if back else None}

    async def backward_input(self, cell: Cell) -> ActivationGrad | None:
        """Keeps what the weight half needs: each layer's input, and the gradient of its output."""
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        await self.before_backward(cell)
        for layer in reversed(layers):
            given = model.activations[layer, b], model.grad_activations[layer, b]
            grad = model.backward_input(layer, *given, await self.weight(layer))
            if layer > layers.start:
                model.grad_activations[layer - 1, b] = grad
        return grad if layers.start else None

    async def backward_weight(self, cell: Cell) -> None:
        model, b = self.model, cell.batch
        for layer in reversed(self.layers(cell.stage)):
            grad = model.grad_activations.pop((layer, b))
            await self.add(layer, model.backward_weight(layer, model.activations.pop((layer, b)), grad))
