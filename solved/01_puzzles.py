import marimo

__generated_with = "0.25.2"
app = marimo.App()


@app.cell
def _():
    import marimo as mo

    return (mo,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Training Puzzles

    How do you train a model that is too slow for one device, or too large? Eight puzzles lead from a single device to a
    pipeline of sharded stages. In each, you complete one function between two marks. Run its cell, then the cell with
    `play` below it. That runs every rank, judges and draws the schedule, and says what to do next. A run takes
    milliseconds, so try things.

    - One star: the result is correct. Two: it meets both targets. Three: no schedule that we know beats it.
    - Targets are limits: `< 67` timesteps is met by 66.9, and not by 67.
    - Everything in the five dictionaries is memory, and so is a value that you keep elsewhere and use later.
    - New here? **00_tour** shows all the pieces, with pictures.

    To play in a file instead, see `puzzles start`. To run everything yourself with `asyncio.gather`, `draw` and
    `Model.check`, see the end of the tour.
    """)
    return


@app.cell
def _(get_ipython):
    # Makes the puzzles importable. It installs them only if they are missing, as in Colab; in a clone it installs nothing.
    import sys
    from importlib.util import find_spec
    from pathlib import Path

    here = Path.cwd()
    clone = next((folder for folder in (here, *here.parents) if (folder / "puzzles" / "catalog").is_dir()), None)
    if clone is not None:
        sys.path.insert(0, str(clone / "puzzles" / "package"))
    elif find_spec("training_puzzles") is None:
        wheel = next(here.glob("training_puzzles-0.2.0-*.whl"), None)
        if wheel is not None:
            get_ipython().run_line_magic("pip", f"install --quiet '{wheel}'")
        else:
            raise ImportError("put training_puzzles-0.2.0-py3-none-any.whl next to this notebook, run again")

    import training_puzzles  # now lib, drawing and puzzles are those of the game

    return


@app.cell
def _():
    from lib import Model, WeightGrad
    from puzzles import play

    return Model, play


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # One device
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 0: Standard training

    Train the whole model for one step on a single rank, with all batches together. Go forward through every
    layer, compute the loss, go backward through every layer, and update each weight with its gradient.

    Each of the four parts takes a few lines. The trick is deleting: a value counts as memory as long as it is in
    one of the five dictionaries, so delete whatever will not be used again. You can't reduce the time here:
    every batch has to pass through every layer twice.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSIyNDYiIGhlaWdodD0iNzYiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIiByb2xlPSJpbWciIGFyaWEtbGFiZWw9IjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVycyI+PHRpdGxlPjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtMywgYXQgb25jZTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 2 layers, 4 batches, 1 rank | < 18 steps | < 2.7M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    def basic(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[0] = model.get_activation(range(model.BATCHES))

        # Backward needs the input of every layer, so forward keeps them all.
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        # Each layer's backward is the last use of the values around it.
        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
        del grad_activations[0]

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (basic,)


@app.cell
async def _(basic, play):
    await play("basic", basic)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Write it without any `del` first, and check that it is correct. Then ask, for each value, which operation is the last to read it.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Store each activation under the number of the layer that reads it: `activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])`. Keep all of them during forward, because a layer's backward reads the same input again.

    </details>

    <details><summary>Hint 3 of 4</summary>

    The loss is the last operation to read the last layer's output: `grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])`. After it, you can delete that activation.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Go backward with `for layer in reversed(range(model.LAYERS))`. `backward` returns two values: the weight's gradient, and the activation gradient for the layer before. After it, delete `activations[layer]` and `grad_activations[layer + 1]`. Then update every layer.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Backpropagation visits the layers in reverse, and each visit needs that layer's input from the forward pass.
    So activations pile up during forward and are freed during backward. Memory peaks where forward ends and
    backward begins. The weights and the optimizer state take memory all the time.

    PyTorch's autograd keeps each layer's input until backward has used it, as you do here. Adam keeps two
    numbers for each weight, so optimizer state is a large share of a real device's memory. When activations are
    the larger share, activation checkpointing drops most of them and recomputes them during backward (Chen et
    al. 2016).

    <details><summary>Sources</summary>

    - David E. Rumelhart, Geoffrey E. Hinton, Ronald J. Williams (1986). Learning representations by back-propagating errors. Nature 323, 533-536
    - Diederik P. Kingma, Jimmy Ba (2014). Adam: A Method for Stochastic Optimization. ICLR 2015, [arXiv 1412.6980](https://arxiv.org/abs/1412.6980)
    - Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin (2016). Training Deep Nets with Sublinear Memory Cost. [arXiv 1604.06174](https://arxiv.org/abs/1604.06174)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    Whenever everything fits: nothing has to be sent, and no rank ever waits. But look at how much has to fit. At the peak
    of the reference solution, three fifths of the memory are activations and their gradients, and this model has just two
    layers and four batches. With sixteen batches the same schedule needs 2.8 times the memory.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 1: Gradient accumulation

    Train the same model on the same single rank, with less memory. Instead of all batches together, take one
    batch forward and backward by itself, then the next. Each gradient covers only its own batch. Add the
    gradients up with `+`, and update once, when the sum covers every batch.

    The time does not change, because the work is the same. But only one batch's activations are stored at a time.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSIyNDYiIGhlaWdodD0iNzYiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIiByb2xlPSJpbWciIGFyaWEtbGFiZWw9IjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVycyI+PHRpdGxlPjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtMywgaW4gdHVybjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 2 layers, 4 batches, 1 rank | < 18 steps | < 2.1M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    def grad_accum(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)

        for batch in range(model.BATCHES):
            activations[0] = model.get_activation([batch])
            for layer in range(model.LAYERS):
                activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
            del activations[model.LAYERS]

            for layer in reversed(range(model.LAYERS)):
                grad, grad_activations[layer] = model.backward(
                    layer, activations[layer], grad_activations[layer + 1], weights[layer]
                )
                # The sum is no larger than its parts: only one gradient per layer is kept.
                grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
                del activations[layer], grad_activations[layer + 1]
            del grad_activations[0]

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (grad_accum,)


@app.cell
async def _(grad_accum, play):
    await play("grad_accum", grad_accum)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Take your solution of `basic` and put a loop over the batches around everything except the update.

    </details>

    <details><summary>Hint 2 of 4</summary>

    `model.get_activation([batch])` is the input of one batch alone. At the start of each round, no activation of the previous batch should be left.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Add two gradients of a layer with `+`; the sum takes no more memory than one of them. Don't keep one gradient per batch until the end.

    </details>

    <details><summary>Hint 4 of 4</summary>

    In the backward loop, if this is the first batch, `grad_weights[layer] = grad`, otherwise `grad_weights[layer] = grad_weights[layer] + grad`, where `grad, grad_activations[layer] = model.backward(...)`. After the loop over batches, update each layer once.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    The gradient of a sum is the sum of the gradients. So a large batch can be cut into microbatches, and the
    update after the last one is the same as if they had all been processed together. Activation memory shrinks
    by the number of microbatches; weights, optimizer state and gradients do not.

    PyTorch adds to `.grad` on every `backward()` until it is cleared, so gradients accumulate if the optimizer
    steps only after several microbatches. Ott et al. (2018) trained that way, with batches of some 400,000 tokens
    on one machine with 8 GPUs. With several devices it also saves communication: DDP's `no_sync` keeps the sum
    local until the last microbatch.

    <details><summary>Sources</summary>

    - Myle Ott, Sergey Edunov, David Grangier, Michael Auli (2018). Scaling Neural Machine Translation. WMT 2018, [arXiv 1806.00187](https://arxiv.org/abs/1806.00187)
    - Yanping Huang, Youlong Cheng, Ankur Bapna et al. (2019). GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism. NeurIPS 2019, [arXiv 1811.06965](https://arxiv.org/abs/1811.06965) (for the word micro-batch)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    When a single batch fits, but not all of them together. The peak is a quarter lower than before, in the same 16.5
    steps, and it no longer grows: with sixteen batches it is still 1,966,080 elements. On a real device the price is that
    small batches use the hardware less efficiently. Our clock charges each batch the same, so it does not show this.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Many devices, one model on each
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 2: Distributed data parallel

    Now there are as many ranks as batches, and each rank takes the batch with its own number. Every rank holds
    the whole model: it loads all the weights and goes forward and backward with its batch. Its gradient then
    covers only one batch of four. Sum the gradients over all ranks with `await model.allreduce(grad, layer)`,
    and let every rank make the same update.

    Your function runs once on each rank, at the same time; `model.rank` is the number of the rank. Compared with
    gradient accumulation, the same work takes about a quarter of the time.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1MDciIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDIgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjE5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIxOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cGF0aCBkPSJNMjM4IDMwaDhWMTg0aC04IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjx0ZXh0IHg9IjI1NiIgeT0iMTEwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM0NDU0NmEiIHRleHQtYW5jaG9yPSJzdGFydCI+Z3JhZGllbnRzIGFyZSBzdW1tZWQgb3ZlciBhbGwgcmFua3M8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 2 layers, 4 batches, 4 ranks | < 6 steps | < 1.9M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.load_weights(layer, shard=0, total=1)`: Shard `shard` of `total` of a layer's weight and of its optimizer state. Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.allreduce(v, layer)`: The sum of every rank's `v`, for everyone; 0.3 steps after the last rank has joined.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def ddp(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[0] = model.get_activation([model.rank])

        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]

        # The only collective. After it, every rank has the gradient of all batches and makes the same update.
        for layer in range(model.LAYERS):
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (ddp,)


@app.cell
async def _(ddp, play):
    await play("ddp", ddp)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    From loading to the end of backward, a rank does what it does in `basic`, with one batch. No rank needs another until the gradients are ready.

    </details>

    <details><summary>Hint 2 of 4</summary>

    `allreduce` involves other ranks, so you have to await it, and every rank has to call it for the same layers in the same order.

    </details>

    <details><summary>Hint 3 of 4</summary>

    `allreduce` returns a new value, the sum. Store it over the rank's own gradient, so that you don't keep both: `grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)`.

    </details>

    <details><summary>Hint 4 of 4</summary>

    After backward, for each layer: all-reduce the gradient, then `weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])`. Remember the deletions from `basic`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Data parallelism: replicate the model, divide the batch, sum the gradients. All ranks start from the same
    weights and apply the same summed gradient, so the replicas stay equal and no weight is ever sent. An
    all-reduce can pass pieces around a ring. Each device then sends about twice the size of the gradient, no
    matter how many devices there are (Patarasuk and Yuan 2009).

    PyTorch's DistributedDataParallel does this. It does not wait for the end of backward, as our clock makes you
    do. It collects gradients in buckets and starts the all-reduce of a bucket as soon as the bucket is full,
    while backward continues (Li et al. 2020).

    <details><summary>Sources</summary>

    - Shen Li, Yanli Zhao, Rohan Varma et al. (2020). PyTorch Distributed: Experiences on Accelerating Data Parallel Training. VLDB 2020, [arXiv 2006.15704](https://arxiv.org/abs/2006.15704)
    - Pitch Patarasuk, Xin Yuan (2009). Bandwidth optimal all-reduce algorithms for clusters of workstations. Journal of Parallel and Distributed Computing 69(2), 117-124
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    When the model, with its optimizer state and gradients, fits on every device. This is the most common case. Four
    devices finish in 5.1 steps what took one device 16.5, so 3.2 times as fast. The updates and the all-reduces keep it
    from being four times as fast. Each rank sends 3,145,728 bytes, 1.5 times the size of the gradient, and that hardly
    grows with the number of ranks. The memory for the model does not shrink: four ranks keep four copies of every weight.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Sharded weights
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 3: Weight-sharded data parallel

    In data parallel training, every rank keeps the same weights. Here each keeps a quarter: shard `model.rank` of
    `model.RANKS` of every layer's weight, and of its optimizer state. But `forward` and `backward` need the full
    weight. Gather it with `await model.allgather(shard, layer)` just before the call, and delete it right after.

    Each rank again takes the batch with its own number. At the end, sum the gradients with `allreduce`, and let
    each rank update the shard that it keeps.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2ODYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDYgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA2IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0NCIgeT0iNTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyODg1OGIiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyODg1OGIiLz48cmVjdCB4PSIyNzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAyPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI4ODU4YiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI5YWI4MCIvPjxyZWN0IHg9IjMxMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMzY1YzhhIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjg4NThiIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzEwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNzBjYzU3Ii8+PHJlY3QgeD0iMzUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTM5OCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSI0MTYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPndlaWdodHMgYXJlIGdhdGhlcmVkLCBncmFkaWVudHMgc3VtbWVkPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 6 layers, 4 batches, 4 ranks | < 21 steps | < 2.9M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.3 steps after the last rank has joined.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.allreduce(v, layer)`: The sum of every rank's `v`, for everyone; 0.3 steps after the last rank has joined.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def wsdp(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        activations[0] = model.get_activation([model.rank])

        # One full weight at a time: gathered, used, deleted.
        for layer in range(model.LAYERS):
            weights["whole"] = await model.allgather(weights[layer], layer)
            activations[layer + 1] = model.forward(layer, activations[layer], weights["whole"])
            del weights["whole"]
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])

        for layer in reversed(range(model.LAYERS)):
            weights["whole"] = await model.allgather(weights[layer], layer)
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights["whole"]
            )
            del activations[layer], grad_activations[layer + 1], weights["whole"]
        del grad_activations[0]

        # The gradients are still whole on every rank; the next puzzle saves that memory.
        for layer in range(model.LAYERS):
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (wsdp,)


@app.cell
async def _(play, wsdp):
    await play("wsdp", wsdp)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Start from `ddp`. Only two lines change: the weight that forward uses, and the weight that backward uses.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Keep the gathered weight under a separate key, such as `weights["whole"]`, so that the shard stays in `weights[layer]`. You update the shard.

    </details>

    <details><summary>Hint 3 of 4</summary>

    One full weight at a time is enough. Forward no longer needs it once the next activation exists; backward gathers it again.

    </details>

    <details><summary>Hint 4 of 4</summary>

    For each layer forward: `weights["whole"] = await model.allgather(weights[layer], layer)`, then forward with it, then `del weights["whole"]`. Do the same around backward, in reverse order. At the end, all-reduce each gradient and update the shards, `weights[layer]` and `opt_states[layer]`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    If every rank holds the same weight, all copies but one are redundant. Sharding stores the weight once over
    all ranks, and pays with communication: the weight is sent twice, once for forward and once for backward. The
    optimizer state is never sent, because each rank updates only its own shard.

    ZeRO (Rajbhandari et al. 2020) defines three stages: shard the optimizer state, then the gradients, then the
    weights. This puzzle shards states and weights, and keeps full gradients; it is a step towards the next
    puzzle. Xu et al. (2020) made a compiler that shards the weight update of data parallel programs automatically.

    <details><summary>Sources</summary>

    - Samyam Rajbhandari, Jeff Rasley, Olatunji Ruwase, Yuxiong He (2020). ZeRO: Memory Optimizations Toward Training Trillion Parameter Models. SC20, [arXiv 1910.02054](https://arxiv.org/abs/1910.02054)
    - Yuanzhong Xu et al. (2020). Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training. [arXiv 2004.13336](https://arxiv.org/abs/2004.13336)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    Data parallel training of this model of six layers, as you wrote it for `ddp`, would need 4,980,736 elements on every
    rank; this needs 2,752,512. The price is communication: each rank sends twice the bytes. Real systems rarely stop
    here, because the step to the next puzzle costs nothing and saves more.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 4: Fully sharded data parallel

    In the last puzzle, every rank still held a full gradient for every layer. That is more than it needs: it
    updates one shard, so one shard of the summed gradient is enough.

    `await model.scatterreduce(grad, layer)` does both steps at once. Every rank contributes its full gradient.
    The gradients are summed over the batches, and each rank gets its own shard of the sum. Use it in place of
    `allreduce`, and use it early, so that a full gradient never lives for long.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MDQiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDYgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA2IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0NCIgeT0iNTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyODg1OGIiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyODg1OGIiLz48cmVjdCB4PSIyNzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAyPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI4ODU4YiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI5YWI4MCIvPjxyZWN0IHg9IjMxMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMzY1YzhhIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjg4NThiIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzEwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNzBjYzU3Ii8+PHJlY3QgeD0iMzUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTM5OCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSI0MTYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPndlaWdodHMgYXJlIGdhdGhlcmVkLCBncmFkaWVudHMgc2NhdHRlcmVkPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 6 layers, 4 batches, 4 ranks | < 21 steps | < 2.4M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.3 steps after the last rank has joined.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.scatterreduce(v, layer)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.3 steps after the last rank has joined.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def fsdp(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        activations[0] = model.get_activation([model.rank])

        for layer in range(model.LAYERS):
            weights["whole"] = await model.allgather(weights[layer], layer)
            activations[layer + 1] = model.forward(layer, activations[layer], weights["whole"])
            del weights["whole"]
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        # A full gradient exists only between its backward and its reduce-scatter.
        for layer in reversed(range(model.LAYERS)):
            weights["whole"] = await model.allgather(weights[layer], layer)
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights["whole"]
            )
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
            del activations[layer], grad_activations[layer + 1], weights["whole"]
        del grad_activations[0]

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (fsdp,)


@app.cell
async def _(fsdp, play):
    await play("fsdp", fsdp)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Start from `wsdp`. Where does memory grow during backward, and does it have to?

    </details>

    <details><summary>Hint 2 of 4</summary>

    Call `scatterreduce` inside the backward loop, right after the `backward` of the layer, not at the end. Every rank reaches that line for the same layer, so the collective is safe there.

    </details>

    <details><summary>Hint 3 of 4</summary>

    `grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)` replaces the full gradient with your shard of the sum, which is small.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Shard `rank` of the gradient matches shard `rank` of the weight and of the optimizer state, so the update is the same line as before. Delete the last layer's output right after the loss. In the backward loop, delete the full weight, `activations[layer]` and `grad_activations[layer + 1]`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    With weights, optimizer states and gradients all sharded, each rank's share of the model shrinks by the
    number of ranks. Only one layer at a time is whole. An all-reduce is a reduce-scatter followed by an
    all-gather. Sharding uses the two halves separately, and puts the all-gather where the weight is needed.

    This is stage 3 of ZeRO (Rajbhandari et al. 2020), and PyTorch's Fully Sharded Data Parallel (Zhao et al.
    2023). The weights of a few layers at a time are gathered, used and freed. PyTorch also prefetches the next
    weights while the current ones are in use, so that communication overlaps with computation.

    <details><summary>Sources</summary>

    - Samyam Rajbhandari, Jeff Rasley, Olatunji Ruwase, Yuxiong He (2020). ZeRO: Memory Optimizations Toward Training Trillion Parameter Models. SC20, [arXiv 1910.02054](https://arxiv.org/abs/1910.02054)
    - Yanli Zhao, Andrew Gu, Rohan Varma et al. (2023). PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel. VLDB 2023, [arXiv 2304.11277](https://arxiv.org/abs/2304.11277)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    When the model does not fit on one device and the network is fast. Compared with `ddp` on the same six layers, the
    peak falls from 4,980,736 to 2,359,296 elements, and each rank sends 1.5 times the bytes: the weights are gathered
    twice and the gradients scattered once. ZeRO's paper derives the same factor. Each rank still stores the activations
    of its own batch for all layers. They are not sharded, and often they are what fills the device. Then recomputing them
    helps, or the idea of the next puzzle.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # The weights stay, the activations move
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 5: Pipeline parallelism

    So far, the weights were sent between ranks. Now they stay where they are: each rank owns a *stage*, an equal
    share of consecutive layers, with their optimizer states. Instead, the activations are sent. Rank 0 takes all
    batches through its layers and sends the result to rank 1 with `await model.pass_to(1, activation)`. Rank 1
    receives it with `await model.receive()`. The last rank computes the loss, and the gradient is sent back the
    same way.

    After backward, each rank has everything it needs to update its own layers. No collective is needed.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MTYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDggbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtMywgYXQgb25jZTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzNjNTA4OSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzMTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNNDg1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzJlNmU4ZCIvPjxyZWN0IHg9IjIzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjc4YjhhIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzUwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA5MC40VjEyMy42bS0zIC00bDMgNGwzIC00TTQ4NSAxMjMuNlY5MC40bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzMTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjJhNjg0Ii8+PHJlY3QgeD0iMzEwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzUyYmU2OCIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iNDMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNNDc2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTQ4NSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzNTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM4YWQ0NGMiLz48cmVjdCB4PSIzOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSI0MzAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iNDMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNTA0IiB5PSIxMTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzQ0NTQ2YSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5hY3RpdmF0aW9ucyBkb3duLCBncmFkaWVudHMgdXA8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 4 batches, 4 ranks | < 67 steps | < 3.4M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.pass_to(rank, v)`: Sends any object; 0.2 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0.2 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def pipeline(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        depth = model.LAYERS // model.RANKS
        stage = range(model.rank * depth, (model.rank + 1) * depth)
        first, last = model.rank == 0, model.rank == model.RANKS - 1

        for layer in stage:
            weights[layer], opt_states[layer] = model.load_weights(layer)

        if first:
            activations[0] = model.get_activation(range(model.BATCHES))
        else:
            activations[stage[0]] = await model.receive()
        for layer in stage:
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

        # After the stage's last layer, either the loss starts backward here, or the next rank continues.
        if last:
            grad_activations[stage[-1] + 1] = model.loss(activations[stage[-1] + 1])
        else:
            await model.pass_to(model.rank + 1, activations[stage[-1] + 1])
            grad_activations[stage[-1] + 1] = await model.receive()
        for layer in reversed(stage):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
        if not first:
            await model.pass_to(model.rank - 1, grad_activations[stage[0]])

        for layer in stage:
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (pipeline,)


@app.cell
async def _(pipeline, play):
    await play("pipeline", pipeline)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Write down what the first, a middle and the last rank receive and pass on. Only the first and the last differ from the others.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Rank 0 gets its input with `model.get_activation(range(model.BATCHES))`, all others with `await model.receive()`. The last rank gets its gradient from `model.loss(...)`, all others with `await model.receive()`.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Number the activations as before, by the layer that reads them. A stage starts with `activations[my_layers[0]]` and ends with `activations[my_layers[-1] + 1]`, which it passes on.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Go forward through `my_layers`; if not last, `await model.pass_to(model.rank + 1, ...)`. Then get the gradient and go backward through `reversed(my_layers)`, with the same deletions as before; if not first, `await model.pass_to(model.rank - 1, grad_activations[my_layers[0]])`. Then update.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Dividing a model by layers makes each rank's share of weights, optimizer states and gradients small. It needs
    little communication: one activation crosses each stage boundary. But each rank has to wait for the previous
    one, so with all batches together only one rank works at a time. The idle time is called the pipeline bubble;
    here it is about three quarters.

    This is the simplest form of pipeline parallelism, also called naive model parallelism. You get it by placing
    layers on different GPUs and doing nothing else. Huang et al. (2019) show it as the baseline to improve on,
    and Narayanan et al. (2019) start from it too. The next puzzle fills the bubble.

    <details><summary>Sources</summary>

    - Yanping Huang, Youlong Cheng, Ankur Bapna et al. (2019). GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism. NeurIPS 2019, [arXiv 1811.06965](https://arxiv.org/abs/1811.06965)
    - Deepak Narayanan et al. (2019). PipeDream: Generalized Pipeline Parallelism for DNN Training. SOSP 2019
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    Almost never in this form: 74% of the time is idle. But see how little is sent. A rank in the middle sends 4,194,304
    bytes, an activation one way and a gradient the other, no matter how large the weights are. `fsdp` on this model and
    these ranks would send 18,874,368. That is why pipelines run between machines, where the links are slow.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 6: GPipe schedule

    In the last puzzle, three ranks out of four were always waiting. The fix is to pass on smaller pieces: take
    each batch through the pipeline by itself, so that rank 1 can work on batch 0 while rank 0 works on batch 1.

    First all batches go forward, one after the other. Then all go backward. Then each rank adds up the gradients
    of its layers and updates the weights. The picture looks like the last one, with a smaller bubble. It also
    needs more memory, because activations of all batches are stored when backward begins.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MTYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDggbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtMywgaW4gdHVybjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzNjNTA4OSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzMTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNNDg1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzJlNmU4ZCIvPjxyZWN0IHg9IjIzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjc4YjhhIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzUwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA5MC40VjEyMy42bS0zIC00bDMgNGwzIC00TTQ4NSAxMjMuNlY5MC40bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzMTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjJhNjg0Ii8+PHJlY3QgeD0iMzEwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzUyYmU2OCIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iNDMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNNDc2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTQ4NSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzNTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM4YWQ0NGMiLz48cmVjdCB4PSIzOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSI0MzAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iNDMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNTA0IiB5PSIxMTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzQ0NTQ2YSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5hY3RpdmF0aW9ucyBkb3duLCBncmFkaWVudHMgdXA8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 4 batches, 4 ranks | < 34 steps | < 4.2M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.pass_to(rank, v)`: Sends any object; 0.2 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0.2 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def gpipe(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        depth = model.LAYERS // model.RANKS
        stage = range(model.rank * depth, (model.rank + 1) * depth)
        first, last = model.rank == 0, model.rank == model.RANKS - 1

        for layer in stage:
            weights[layer], opt_states[layer] = model.load_weights(layer)

        for batch in range(model.BATCHES):
            activations[stage[0], batch] = model.get_activation([batch]) if first else await model.receive()
            for layer in stage:
                activations[layer + 1, batch] = model.forward(layer, activations[layer, batch], weights[layer])
            if not last:
                await model.pass_to(model.rank + 1, activations[stage[-1] + 1, batch])

        for batch in range(model.BATCHES):
            if last:
                grad_activations[stage[-1] + 1, batch] = model.loss(activations[stage[-1] + 1, batch])
            else:
                grad_activations[stage[-1] + 1, batch] = await model.receive()
            for layer in reversed(stage):
                grad_weights[layer, batch], grad_activations[layer, batch] = model.backward(
                    layer, activations[layer, batch], grad_activations[layer + 1, batch], weights[layer]
                )
                del activations[layer, batch], grad_activations[layer + 1, batch]
            if not first:
                await model.pass_to(model.rank - 1, grad_activations[stage[0], batch])

        for layer in stage:
            for batch in range(model.BATCHES):
                grad = grad_weights.pop((layer, batch))
                grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (gpipe,)


@app.cell
async def _(gpipe, play):
    await play("gpipe", gpipe)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Split `pipeline` into its forward half and its backward half, and put a loop over the batches around each of them.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Several batches are now in flight at the same time, so give each its own keys: `activations[layer, batch]`, `grad_activations[layer, batch]`, `grad_weights[layer, batch]`.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Messages from one rank to another arrive in the order in which they were sent. If all ranks process the batches in the same order, the k-th message that you receive is batch k.

    </details>

    <details><summary>Hint 4 of 4</summary>

    The last rank can compute the loss of a batch when that batch's turn to go backward comes. After the two loops, for each of your layers add `grad_weights[layer, batch]` over all batches with `+`, deleting the parts, and update with the sum.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    With M microbatches and K equal stages, a pipeline that runs all forward and then all backward is idle for
    (K - 1) / (M + K - 1) of the time, apart from communication: three sevenths here, instead of three quarters.
    More microbatches make the bubble smaller. The price is that the activations of all M are stored before the
    first goes backward.

    GPipe (Huang et al. 2019) introduced this schedule. It keeps only the inputs of each stage and recomputes the
    rest during backward. PipeDream's order alternates one forward and one backward (1F1B), which frees
    activations earlier. Megatron-LM uses a form of 1F1B that keeps the weights consistent, and interleaves
    several small stages on each device to shrink the bubble further (Narayanan et al. 2021).

    <details><summary>Sources</summary>

    - Yanping Huang, Youlong Cheng, Ankur Bapna et al. (2019). GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism. NeurIPS 2019, [arXiv 1811.06965](https://arxiv.org/abs/1811.06965)
    - Deepak Narayanan, Mohammad Shoeybi, Jared Casper et al. (2021). Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM. SC21, [arXiv 2104.04473](https://arxiv.org/abs/2104.04473)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    When a model spans machines, and there are many more microbatches than stages. With four microbatches 43% of the time
    is idle; with sixteen it is 18%, and with thirty-two 12%. Memory grows with the number of microbatches, because all of
    them are in flight when backward begins. One forward, one backward (1F1B) fixes that. Can you find a schedule here
    that needs less memory in less time? One is known, and `play` shows its figures.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # All together
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 7: Pipeline + FSDP

    The last puzzle combines everything. There are 16 ranks: four pipelines of four stages. Rank `r` is stage
    `r % 4` of pipeline `r // 4`, and pipeline `p` takes batch `p`. Between the stages of a pipeline, activations
    and their gradients are sent with `pass_to` and `receive`, from one rank to its neighbor.

    At the same time, every layer's weight and optimizer state are cut into 16 shards, one on each rank. So a
    weight has to be gathered from all ranks before a stage can use it, and its gradient is reduce-scattered over
    all ranks afterwards. Collectives involve every rank: a rank with no work on a layer still has to join. To a
    `scatterreduce` it contributes a gradient of no batches, which is zero: `empty_grad(layer)`.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2ODAiIGhlaWdodD0iNDU4IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSIxNiByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVycyI+PHRpdGxlPjE2IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzPC90aXRsZT48cmVjdCB3aWR0aD0iMTAwJSIgaGVpZ2h0PSIxMDAlIiByeD0iNiIgZmlsbD0iI2ZmZiIvPjx0ZXh0IHg9IjE2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+bGF5ZXIgMDwvdGV4dD48dGV4dCB4PSIyMDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjE8L3RleHQ+PHRleHQgeD0iMjQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4yPC90ZXh0Pjx0ZXh0IHg9IjI4NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MzwvdGV4dD48dGV4dCB4PSI0NCIgeT0iNDQuMSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNDMuNSIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxwYXRoIGQ9Ik0zMTYgNDIuMjRWNjQuNTZtLTMgLTRsMyA0bDMgLTRNMzI1IDY0LjU2VjQyLjI0bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iNzAuNCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNjkuOSIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iNTYuNCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iNTcuNjciIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSI1Ni40IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48cmVjdCB4PSIxOTAiIHk9IjU3LjY3IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iNTYuNCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iNTcuNjciIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSI1Ni40IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSI1Ny42NyIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiNkNmUwMzIiLz48cGF0aCBkPSJNMzE2IDY4LjY0VjkwLjk2bS0zIC00bDMgNGwzIC00TTMyNSA5MC45NlY2OC42NG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9Ijk2LjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9Ijk2LjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjgyLjgiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9Ijg1LjM1IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iODIuOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iODUuMzUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSI4Mi44IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48cmVjdCB4PSIyMzAiIHk9Ijg1LjM1IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iODIuOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iODUuMzUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxNiA5NS4wNFYxMTcuMzZtLTMgLTRsMyA0bDMgLTRNMzI1IDExNy4zNlY5NS4wNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjEyMy4yIiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMjIuNyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTA5LjIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjExMy4wMiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjEwOS4yIiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTMuMDIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxMDkuMiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTEzLjAyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMTA5LjIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEzLjAyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNDkuNiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgNDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTQ5LjEiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDE8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMzUuNiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMTUwIiB5PSIxNDAuNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxMzUuNiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTQwLjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMTM1LjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjE0MC43MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjEzNS42IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNDAuNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxNiAxNDcuODRWMTcwLjE2bS0zIC00bDMgNGwzIC00TTMyNSAxNzAuMTZWMTQ3Ljg0bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMTc2LjAiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDU8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjE3NS41IiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNjIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjE2OC4zOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjE2MiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMTkwIiB5PSIxNjguMzgiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxNjIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjE2OC4zOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjE2MiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTY4LjM4IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxwYXRoIGQ9Ik0zMTYgMTc0LjI0VjE5Ni41Nm0tMyAtNGwzIDRsMyAtNE0zMjUgMTk2LjU2VjE3NC4yNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjIwMi40IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayA2PC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIyMDEuOSIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTg4LjQiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjE5Ni4wNSIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjE4OC40IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxOTYuMDUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxODguNCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMjMwIiB5PSIxOTYuMDUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIxODguNCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTk2LjA1IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxwYXRoIGQ9Ik0zMTYgMjAwLjY0VjIyMi45Nm0tMyAtNGwzIDRsMyAtNE0zMjUgMjIyLjk2VjIwMC42NG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjIyOC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayA3PC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIyMjguMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMjE0LjgiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjIyMy43MiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjIxNC44IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIyMjMuNzIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIyMTQuOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMjIzLjcyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMjE0LjgiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjxyZWN0IHg9IjI3MCIgeT0iMjIzLjcyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIyNTUuMiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgODwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMjU0LjciIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDI8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIyNDEuMiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMTUwIiB5PSIyNTEuNDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIyNDEuMiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMjUxLjQwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMjQxLjIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjI1MS40MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjI0MS4yIiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIyNTEuNDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxNiAyNTMuNDRWMjc1Ljc2bS0zIC00bDMgNGwzIC00TTMyNSAyNzUuNzZWMjUzLjQ0bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMjgxLjciIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDk8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjI4MS4xIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIyNjcuNiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMjc5LjA4IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMjY3LjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjxyZWN0IHg9IjE5MCIgeT0iMjc5LjA4IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMjY3LjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjI3OS4wOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjI2Ny42IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIyNzkuMDgiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxNiAyNzkuODRWMzAyLjE2bS0zIC00bDMgNGwzIC00TTMyNSAzMDIuMTZWMjc5Ljg0bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMzA4LjEiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDEwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIzMDcuNSIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMjk0IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIzMDYuNzUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIyOTQiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwNi43NSIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjI5NCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMjMwIiB5PSIzMDYuNzUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIyOTQiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwNi43NSIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiNkNmUwMzIiLz48cGF0aCBkPSJNMzE2IDMwNi4yNFYzMjguNTZtLTMgLTRsMyA0bDMgLTRNMzI1IDMyOC41NlYzMDYuMjRtLTMgNGwzIC00bDMgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIvPjx0ZXh0IHg9IjQ0IiB5PSIzMzQuNCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjMzMy45IiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzMjAuNCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMzM0LjQyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMzIwLjQiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMzNC40MiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjMyMC40IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMzQuNDIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIzMjAuNCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMjcwIiB5PSIzMzQuNDIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjZDZlMDMyIi8+PHRleHQgeD0iNDQiIHk9IjM2MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAxMjwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMzYwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzNDYuOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHJlY3QgeD0iMTUwIiB5PSIzNjIuMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIzNDYuOCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzYyLjEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMzQ2LjgiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjM2Mi4xMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjM0Ni44IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIzNjIuMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxNiAzNTkuMDRWMzgxLjM2bS0zIC00bDMgNGwzIC00TTMyNSAzODEuMzZWMzU5LjA0bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMzg3LjIiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDEzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIzODYuNyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzczLjIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjM4OS43NyIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjM3My4yIiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48cmVjdCB4PSIxOTAiIHk9IjM4OS43NyIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjM3My4yIiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzODkuNzciIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIzNzMuMiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzg5Ljc3IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxwYXRoIGQ9Ik0zMTYgMzg1LjQ0VjQwNy43Nm0tMyAtNGwzIDRsMyAtNE0zMjUgNDA3Ljc2VjM4NS40NG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjQxMy42IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAxNDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNDEzLjEiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjM5OS42IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSI0MTcuNDUiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIzOTkuNiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNDE3LjQ1IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMzk5LjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjxyZWN0IHg9IjIzMCIgeT0iNDE3LjQ1IiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMzk5LjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjQxNy40NSIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiNkNmUwMzIiLz48cGF0aCBkPSJNMzE2IDQxMS44NFY0MzQuMTZtLTMgLTRsMyA0bDMgLTRNMzI1IDQzNC4xNlY0MTEuODRtLTMgNGwzIC00bDMgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIvPjx0ZXh0IHg9IjQ0IiB5PSI0NDAuMSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTU8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjQzOS41IiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSI0MjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjQ0NS4xMiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjQyNiIgd2lkdGg9IjM0IiBoZWlnaHQ9IjIwLjQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNDQ1LjEyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iNDI2IiB3aWR0aD0iMzQiIGhlaWdodD0iMjAuNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSI0NDUuMTIiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyLjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSI0MjYiIHdpZHRoPSIzNCIgaGVpZ2h0PSIyMC40IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjxyZWN0IHg9IjI3MCIgeT0iNDQ1LjEyIiB3aWR0aD0iMzQiIGhlaWdodD0iMi4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxwYXRoIGQ9Ik0zMzYgMzBoOFY0NDYuNGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSIzNTQiIHk9IjI0Mi4wIiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmFsbCByYW5rcyBzaGFyZSBzaGFyZHM7IGEgZnJhbWUgbWFya3Mgd2hvIGNvbXB1dGVzPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 4 batches, 16 ranks | < 16 steps | < 1.1M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.3 steps after the last rank has joined.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.scatterreduce(v, layer)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.3 steps after the last rank has joined.
    - `await model.pass_to(rank, v)`: Sends any object; 0.2 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0.2 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    STAGES = 4


    async def pipeline_fsdp(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        depth = model.LAYERS // STAGES
        stage = model.rank % STAGES
        mine = range(stage * depth, (stage + 1) * depth)
        first, last = stage == 0, stage == STAGES - 1

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        # Every rank joins every gather, because every rank has a shard; only one stage uses the result.
        for layer in range(model.LAYERS):
            if layer == mine[0]:
                batch = model.rank // STAGES
                activations[layer] = model.get_activation([batch]) if first else await model.receive()
            weights["whole"] = await model.allgather(weights[layer], layer)
            if layer in mine:
                activations[layer + 1] = model.forward(layer, activations[layer], weights["whole"])
            del weights["whole"]
            if layer == mine[-1]:
                if last:
                    grad_activations[layer + 1] = model.loss(activations[layer + 1])
                else:
                    await model.pass_to(model.rank + 1, activations[layer + 1])

        # Ranks without a gradient for the layer contribute zero to its reduce-scatter.
        for layer in reversed(range(model.LAYERS)):
            if layer == mine[-1] and not last:
                grad_activations[layer + 1] = await model.receive()
            weights["whole"] = await model.allgather(weights[layer], layer)
            if layer in mine:
                grad_weights[layer], grad_activations[layer] = model.backward(
                    layer, activations[layer], grad_activations[layer + 1], weights["whole"]
                )
                del activations[layer], grad_activations[layer + 1]
            else:
                grad_weights[layer] = model.fake_grad(layer, [])
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
            del weights["whole"]
            if layer == mine[0] and not first:
                await model.pass_to(model.rank - 1, grad_activations[layer])

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (pipeline_fsdp,)


@app.cell
async def _(pipeline_fsdp, play):
    await play("pipeline_fsdp", pipeline_fsdp)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Let every rank loop over all layers, not only over its own. In the loop, put the collectives outside any `if`, and the computation inside `if layer in my_layers`.

    </details>

    <details><summary>Hint 2 of 4</summary>

    A stage receives just before its first layer and passes on just after its last. For all other layers it only gathers the weight and deletes it right away.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Watch the order: a rank that waits in `receive` does not join a collective. Receive for layer `my_layers[0]` after the collectives of all earlier layers, because the sender joins those first.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Forward, for every layer: `if layer == my_layers[0]`, get the input (stage 0 with `get_activation([batch])`); gather; `if layer in my_layers`, forward; delete the full weight; `if layer == my_layers[-1]`, pass the activation on, or compute the loss. Backward mirrors this, with a `scatterreduce` of the gradient or of `empty_grad(layer)` in every round. Then update your shard of every layer.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    You can combine kinds of parallelism: data between the pipelines, layers within each pipeline, shards over all
    ranks. Each rank permanently stores a sixteenth of the model. The catch is synchronization. Every rank has to
    join every gather, so the stages wait for each other in communication as well as in computation.

    No combination is best in all cases. It depends on the sizes of model and batch, on memory, and on how fast the
    links are within a machine and between machines. Combined naively, as here, pipelines and sharding do not work
    well together, because the weights are sent again for each microbatch. Lamy-Poirier (2022) orders the schedule
    breadth-first, so that one gather serves many microbatches. Megatron-LM combines pipelines with data and tensor
    parallelism (Narayanan et al. 2021).

    <details><summary>Sources</summary>

    - Joel Lamy-Poirier (2022). Breadth-First Pipeline Parallelism. [arXiv 2211.05953](https://arxiv.org/abs/2211.05953)
    - Deepak Narayanan, Mohammad Shoeybi, Jared Casper et al. (2021). Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM. SC21, [arXiv 2104.04473](https://arxiv.org/abs/2104.04473)
    - Samyam Rajbhandari, Jeff Rasley, Olatunji Ruwase, Yuxiong He (2020). ZeRO: Memory Optimizations Toward Training Trillion Parameter Models. SC20, [arXiv 1910.02054](https://arxiv.org/abs/1910.02054)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### When does it make sense?

    When nothing else fits: 966,656 elements on a rank, less than half of what `fsdp` needed (though the model has four
    layers and not six). But 49% of the time is idle, and the weights are sent to ranks that have no use for them: each
    rank sends twelve to thirteen million bytes in one step. Real systems give each kind of parallelism its own group of
    ranks. Shards are gathered within a group that shares fast links, and a pipeline runs between the groups.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Which one should I use?

    There is no single best choice. It depends on the model and the batch, on the memory of a device, on the links, and on
    how much complexity you are willing to maintain. A rule of thumb:

    1. It fits on one device: train there. Accumulate gradients if the batch does not fit.
    2. It fits, and you want it faster: data parallelism.
    3. It does not fit, and the links are fast: shard it, as in FSDP.
    4. It does not fit, and the links between machines are slow: a pipeline between the machines, shards within them.

    How pipelines went on is shown in **02_modern**. There is more to play: optimizer states in shards and forgotten
    activations (**03_memory**), communication that overlaps with computation (**05_overlap**), and several kinds of
    parallelism at once (**07_clusters**). `puzzles list schedule` names all chapters.
    """)
    return


if __name__ == "__main__":
    app.run()
