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
    # Tour: one training step, by hand

    The puzzles ask you to schedule the training of a model on several devices: who computes what, when, and what to
    send to whom. This tour shows every piece that you will use. Run the cells from top to bottom with Shift+Enter, then
    change something and run it again. You cannot break anything: an invalid call is refused, and the message says why.
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
    import asyncio

    from drawing import draw, draw_group
    from lib import Dist, Model, WeightGrad, referee, trace_of
    from puzzles import play

    return (
        Dist,
        Model,
        WeightGrad,
        asyncio,
        draw,
        draw_group,
        play,
        referee,
        trace_of,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What a device holds

    A `Model` represents one device, which we call a *rank*, and a model to train for one step. Ours has two layers, and
    the step is made of four microbatches, or *batches* for short.

    No numbers are multiplied here. Every value is a label. It records what it is, its layer and batches, and how much
    memory it takes. A schedule needs nothing else, and a run takes milliseconds.
    """)
    return


@app.cell
def _(Model):
    model = Model(layers=2, batches=4)
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    return (
        activations,
        grad_activations,
        grad_weights,
        model,
        opt_states,
        weights,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    These five dictionaries are the memory of the device.

    | dictionary | holds |
    |---|---|
    | `weights` | the weights, which are trained |
    | `opt_states` | the optimizer state of each weight, such as its momentum |
    | `activations` | the input of each layer, in the forward pass |
    | `grad_activations` | the gradient of each layer's output, in the backward pass |
    | `grad_weights` | the gradients that the update needs |

    Load each layer's weight and optimizer state. The last line of the cell shows one of them.
    """)
    return


@app.cell
def _(model, opt_states, weights):
    for _layer in range(model.LAYERS):
        weights[_layer], opt_states[_layer] = model.load_weights(_layer)
    weights[0]
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    The picture shows the network: a column for each layer, and slots between the columns for the activations. The
    weight fills its column because it is whole. Its size is shown below it: a layer is a square matrix of 512 x 512, so
    its weight has 262,144 elements. Its optimizer state has the same size, and so will its gradient.

    Now the input of the model, for batches 2 and 3 only:
    """)
    return


@app.cell
def _(activations, model):
    activations[0] = model.get_activation([2, 3])
    activations[0]
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Half of the slot is filled, because two of the four batches are there. One batch of activations takes 131,072
    elements.

    ## Forward, loss, backward

    `forward` takes an activation through a layer. Store the result under the number of the layer that reads it next: the
    output of layer 0 is `activations[1]`.
    """)
    return


@app.cell
def _(activations, draw_group, model, weights):
    for _layer in range(model.LAYERS):
        activations[_layer + 1] = model.forward(_layer, activations[_layer], weights[_layer])
    draw_group(activations)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    At the end, `loss` turns an activation into a gradient. `backward` takes the gradient back through a layer. It also
    needs the layer's input from the forward pass, which is why you kept it. It returns two values: the gradient of the
    layer's weight, and the gradient for the previous layer.
    """)
    return


@app.cell
def _(activations, draw_group, grad_activations, grad_weights, model, weights):
    grad_activations[2] = model.loss(activations[2])
    for _layer in reversed(range(model.LAYERS)):
        grad_weights[_layer], grad_activations[_layer] = model.backward(_layer, activations[_layer], grad_activations[_layer + 1], weights[_layer])
    draw_group(grad_activations)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What `del` frees

    A value takes memory as long as it is in a dictionary. After backward, the activations and their gradients will not
    be read again, so delete them:
    """)
    return


@app.cell
def _(activations, grad_activations, model):
    before = model.memory()
    activations.clear()
    grad_activations.clear()
    print(f"{before:,} elements before, {model.memory():,} after")
    model.status()
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    `del activations[0]` deletes a single one. Keeping a value in a local variable instead does not hide it: the referee
    sees when it is used, and counts it until then.

    ## What a gradient covers

    A weight gradient records the batches that it covers. These two have seen batches 2 and 3, as the little squares
    below show:
    """)
    return


@app.cell
def _(draw_group, grad_weights):
    draw_group(grad_weights)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Reading an error message

    The update needs the gradient of the whole step. Ours covers only half of the batches, so it is refused:
    """)
    return


@app.cell
def _(grad_weights, model, opt_states, weights):
    try:
        model.update(0, grad_weights[0], weights[0], opt_states[0])
    except AssertionError as refusal:
        print(refusal)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Read it from left to right. First comes the rank, the time on its clock, and the call. Then comes what is wrong with
    the arguments, and after that what to do next. The call had no effect: neither the clock nor the memory has changed.

    While exploring, you can fake the rest. `fake_grad` creates a gradient of the missing batches, and `+` adds the two.
    (In a puzzle, the referee refuses a fake gradient, unless it covers no batches, which means zero.)
    """)
    return


@app.cell
def _(grad_weights, model):
    for _layer in range(model.LAYERS):
        grad_weights[_layer] = grad_weights[_layer] + model.fake_grad(_layer, [0, 1])
    grad_weights[0]
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Now the gradient is complete, so the update succeeds. It returns a new weight and a new state; store both.
    `set_final_weight` marks a weight as the result for its layer.
    """)
    return


@app.cell
def _(Model, grad_weights, model, opt_states, weights):
    for _layer in range(model.LAYERS):
        weights[_layer], opt_states[_layer] = model.update(_layer, grad_weights[_layer], weights[_layer], opt_states[_layer])
        model.set_final_weight(_layer, weights[_layer])
    report = Model.check([model])
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## How to read the timeline

    `draw` shows a run as a picture. Each rank has a lane, and time runs to the right. A box is an operation. Its width is
    the duration, its colour the layer. **F0** is the forward of layer 0, pale and pointing to the right, with its batches
    below. **B0** is its backward, darker and pointing to the left. **U0** is its update. The flag **L** is the loss,
    which takes no time. Where a lane is hatched, the rank is idle; the *bubble* is the share of idle time.

    Below the lanes is the memory of each rank by kind, and a red mark shows the peak. Hover over a box for details. The
    line at the top shows the figures that count for your score.
    """)
    return


@app.cell
def _(draw, model):
    draw([model])
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What is counted

    | operation | takes |
    |---|---|
    | `forward`, `backward` | 1 step for each batch |
    | `update` | 0.5 steps |
    | a collective | 0.3 steps, from when the last rank has joined |
    | `pass_to`, `receive` | 0.2 steps for each value |
    | everything else | nothing |

    *Timesteps* is when the last operation starts, on any rank. *Peak memory* is the most that any rank holds when one
    of its operations starts, or at the end. Every puzzle sets a target for each. You get one star for a correct
    schedule, two if it meets both targets, and three if no schedule that we know beats it.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Several ranks

    From here on there are four ranks. Each has its own `Model`, and they share a `Dist`, through which they communicate.
    You write one function. It runs once on each rank, all at the same time, and `model.rank` is the number of the rank. A
    call that involves other ranks has to be awaited. Python's own `asyncio.gather` runs them:
    """)
    return


@app.cell
def _(Dist, Model, asyncio):
    async def together(function, ranks=4):
        dist = Dist(ranks)
        return await asyncio.gather(*(function(Model(rank, dist, layers=2, batches=4)) for rank in range(ranks)))

    return (together,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### All-reduce: every rank gets the sum

    Each rank contributes the gradient of one batch. Afterwards, each has the gradient of all batches. In the picture, a
    box is a gradient, its filled part is what the rank holds, and the dots beside it are the batches that it covers.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ![all-reduce: every rank gets the sum of all batches' gradients](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSIzNDAiIGhlaWdodD0iMjU4IiByb2xlPSJpbWciIGFyaWEtbGFiZWw9ImFsbC1yZWR1Y2U6IGV2ZXJ5IHJhbmsgZ2V0cyB0aGUgc3VtIG9mIGFsbCBiYXRjaGVzJyBncmFkaWVudHMiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIj48dGl0bGU+YWxsLXJlZHVjZTogZXZlcnkgcmFuayBnZXRzIHRoZSBzdW0gb2YgYWxsIGJhdGNoZXMnIGdyYWRpZW50czwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSI5MiIgeT0iMjAiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmJyaW5nczwvdGV4dD48dGV4dCB4PSIyNzIiIHk9IjIwIiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj5nZXRzPC90ZXh0Pjx0ZXh0IHg9IjU2IiB5PSI1NiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAwPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSIzMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSI3MCIgeT0iMzAiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMzUuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSI0Ni41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0ibm9uZSIvPjxjaXJjbGUgY3g9IjEyMyIgY3k9IjU3LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iNjguNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48cmVjdCB4PSIyNTAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiNmNWY3ZjkiLz48cmVjdCB4PSIyNTAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjM1LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iNDYuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSI1Ny41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjY4LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PHRleHQgeD0iNTYiIHk9IjExMiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAxPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSI4NiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSI3MCIgeT0iODYiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iOTEuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIxMDIuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIxMTMuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIxMjQuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiNmNWY3ZjkiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjkxLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iMTAyLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iMTEzLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iMTI0LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PHRleHQgeD0iNTYiIHk9IjE2OCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAyPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iI2Y1ZjdmOSIvPjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTQ3LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTU4LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTY5LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTgwLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PHJlY3QgeD0iMjUwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iI2Y1ZjdmOSIvPjxyZWN0IHg9IjI1MCIgeT0iMTQyIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjE0MiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxNDcuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxNTguNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxNjkuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxODAuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48dGV4dCB4PSI1NiIgeT0iMjI0IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIj5yYW5rIDM8L3RleHQ+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMDMuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMTQuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMjUuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMzYuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48cmVjdCB4PSIyNTAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iMjUwIiB5PSIxOTgiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjI1MCIgeT0iMTk4IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIwMy41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIxNC41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIyNS41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIzNi41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxwYXRoIGQ9Ik0xMzQgNTJIMTkwIiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTkwIDUySDI0Mm0tNSAtNGw1IDRsLTUgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTEzNCAxMDhIMTkwIiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTkwIDEwOEgyNDJtLTUgLTRsNSA0bC01IDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCIvPjxwYXRoIGQ9Ik0xMzQgMTY0SDE5MCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTE5MCAxNjRIMjQybS01IC00bDUgNGwtNSA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTM0IDIyMEgxOTAiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCIvPjxwYXRoIGQ9Ik0xOTAgMjIwSDI0Mm0tNSAtNGw1IDRsLTUgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTE5MCA1MlYyMjAiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSI1IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48L3N2Zz4=)
    """)
    return


@app.cell
async def _(WeightGrad, draw_group, together):
    grads = [WeightGrad(0, 2, {rank}, 4) for rank in range(4)]


    async def reduce_all(model):
        return await model.allreduce(grads[model.rank], 0)


    sums = await together(reduce_all)
    draw_group({"rank 1, before": grads[1], "rank 1, after": sums[1]})
    return grads, reduce_all, sums


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### All-gather: every rank gets all the shards

    A weight can be cut into *shards*, equal parts that live on different ranks. `load_weights(layer, shard, total)`
    loads one. An all-gather joins them.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ![all-gather: every rank gets all shards, joined](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSIzNDAiIGhlaWdodD0iMjU4IiByb2xlPSJpbWciIGFyaWEtbGFiZWw9ImFsbC1nYXRoZXI6IGV2ZXJ5IHJhbmsgZ2V0cyBhbGwgc2hhcmRzLCBqb2luZWQiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIj48dGl0bGU+YWxsLWdhdGhlcjogZXZlcnkgcmFuayBnZXRzIGFsbCBzaGFyZHMsIGpvaW5lZDwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSI5MiIgeT0iMjAiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmJyaW5nczwvdGV4dD48dGV4dCB4PSIyNzIiIHk9IjIwIiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj5nZXRzPC90ZXh0Pjx0ZXh0IHg9IjU2IiB5PSI1NiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAwPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSIzMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSI3MCIgeT0iMzAiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PHJlY3QgeD0iMjUwIiB5PSIzMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iMjUwIiB5PSIzMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSI0MSIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSI1MiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSI2MyIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSIzMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48dGV4dCB4PSI1NiIgeT0iMTEyIiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIj5yYW5rIDE8L3RleHQ+PHJlY3QgeD0iNzAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiNmNWY3ZjkiLz48cmVjdCB4PSI3MCIgeT0iOTciIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjcwIiB5PSI4NiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiNmNWY3ZjkiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9Ijk3IiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjEwOCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSIxMTkiIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjI1MCIgeT0iODYiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PHRleHQgeD0iNTYiIHk9IjE2OCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAyPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iI2Y1ZjdmOSIvPjxyZWN0IHg9IjcwIiB5PSIxNjQiIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PHJlY3QgeD0iMjUwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iI2Y1ZjdmOSIvPjxyZWN0IHg9IjI1MCIgeT0iMTQyIiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjE1MyIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSIxNjQiIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjI1MCIgeT0iMTc1IiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjE0MiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48dGV4dCB4PSI1NiIgeT0iMjI0IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIj5yYW5rIDM8L3RleHQ+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9IjIzMSIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48cmVjdCB4PSIyNTAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iMjUwIiB5PSIxOTgiIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjI1MCIgeT0iMjA5IiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjIyMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjExIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjUwIiB5PSIyMzEiIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjI1MCIgeT0iMTk4IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxwYXRoIGQ9Ik0xMzQgNTJIMTkwIiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTkwIDUySDI0Mm0tNSAtNGw1IDRsLTUgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTEzNCAxMDhIMTkwIiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTkwIDEwOEgyNDJtLTUgLTRsNSA0bC01IDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCIvPjxwYXRoIGQ9Ik0xMzQgMTY0SDE5MCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTE5MCAxNjRIMjQybS01IC00bDUgNGwtNSA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTM0IDIyMEgxOTAiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCIvPjxwYXRoIGQ9Ik0xOTAgMjIwSDI0Mm0tNSAtNGw1IDRsLTUgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTE5MCA1MlYyMjAiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSI1IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48L3N2Zz4=)
    """)
    return


@app.cell
async def _(draw_group, together):
    async def gather_all(model):
        shard, _ = model.load_weights(0, model.rank, model.RANKS)
        return shard, await model.allgather(shard, 0)


    pairs = await together(gather_all)
    draw_group({"rank 1, before": pairs[1][0], "rank 1, after": pairs[1][1]})
    return (gather_all,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### Reduce-scatter: every rank gets a shard of the sum

    It is called `scatterreduce` here. The gradients are summed over the ranks as in an all-reduce, but each rank gets
    only the shard with its own number.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ![reduce-scatter: every rank gets one shard of the summed gradient](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSIzNDAiIGhlaWdodD0iMjU4IiByb2xlPSJpbWciIGFyaWEtbGFiZWw9InJlZHVjZS1zY2F0dGVyOiBldmVyeSByYW5rIGdldHMgb25lIHNoYXJkIG9mIHRoZSBzdW1tZWQgZ3JhZGllbnQiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIj48dGl0bGU+cmVkdWNlLXNjYXR0ZXI6IGV2ZXJ5IHJhbmsgZ2V0cyBvbmUgc2hhcmQgb2YgdGhlIHN1bW1lZCBncmFkaWVudDwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSI5MiIgeT0iMjAiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmJyaW5nczwvdGV4dD48dGV4dCB4PSIyNzIiIHk9IjIwIiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj5nZXRzPC90ZXh0Pjx0ZXh0IHg9IjU2IiB5PSI1NiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAwPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSIzMCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSI3MCIgeT0iMzAiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMzUuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSI0Ni41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0ibm9uZSIvPjxjaXJjbGUgY3g9IjEyMyIgY3k9IjU3LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iNjguNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48cmVjdCB4PSIyNTAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiNmNWY3ZjkiLz48cmVjdCB4PSIyNTAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjMwIiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjM1LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iNDYuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSI1Ny41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjY4LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PHRleHQgeD0iNTYiIHk9IjExMiIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAxPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSI4NiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSI3MCIgeT0iODYiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iOTEuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIxMDIuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIxMTMuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIxMjQuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9IiNmNWY3ZjkiLz48cmVjdCB4PSIyNTAiIHk9Ijk3IiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9Ijg2IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjkxLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iMTAyLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iMTEzLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMzAzIiBjeT0iMTI0LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PHRleHQgeD0iNTYiIHk9IjE2OCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCI+cmFuayAyPC90ZXh0PjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iI2Y1ZjdmOSIvPjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjcwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTQ3LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTU4LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTY5LjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSIjMWYyOTMzIi8+PGNpcmNsZSBjeD0iMTIzIiBjeT0iMTgwLjUiIHI9IjMuNSIgc3Ryb2tlPSIjMWYyOTMzIiBmaWxsPSJub25lIi8+PHJlY3QgeD0iMjUwIiB5PSIxNDIiIHdpZHRoPSI0NCIgaGVpZ2h0PSI0NCIgZmlsbD0iI2Y1ZjdmOSIvPjxyZWN0IHg9IjI1MCIgeT0iMTY0IiB3aWR0aD0iNDQiIGhlaWdodD0iMTEiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyNTAiIHk9IjE0MiIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxNDcuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxNTguNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxNjkuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48Y2lyY2xlIGN4PSIzMDMiIGN5PSIxODAuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48dGV4dCB4PSI1NiIgeT0iMjI0IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIj5yYW5rIDM8L3RleHQ+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iNzAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMDMuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMTQuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMjUuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9Im5vbmUiLz48Y2lyY2xlIGN4PSIxMjMiIGN5PSIyMzYuNSIgcj0iMy41IiBzdHJva2U9IiMxZjI5MzMiIGZpbGw9IiMxZjI5MzMiLz48cmVjdCB4PSIyNTAiIHk9IjE5OCIgd2lkdGg9IjQ0IiBoZWlnaHQ9IjQ0IiBmaWxsPSIjZjVmN2Y5Ii8+PHJlY3QgeD0iMjUwIiB5PSIyMzEiIHdpZHRoPSI0NCIgaGVpZ2h0PSIxMSIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjI1MCIgeT0iMTk4IiB3aWR0aD0iNDQiIGhlaWdodD0iNDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIwMy41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIxNC41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIyNS41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxjaXJjbGUgY3g9IjMwMyIgY3k9IjIzNi41IiByPSIzLjUiIHN0cm9rZT0iIzFmMjkzMyIgZmlsbD0iIzFmMjkzMyIvPjxwYXRoIGQ9Ik0xMzQgNTJIMTkwIiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTkwIDUySDI0Mm0tNSAtNGw1IDRsLTUgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTEzNCAxMDhIMTkwIiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTkwIDEwOEgyNDJtLTUgLTRsNSA0bC01IDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCIvPjxwYXRoIGQ9Ik0xMzQgMTY0SDE5MCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTE5MCAxNjRIMjQybS01IC00bDUgNGwtNSA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48cGF0aCBkPSJNMTM0IDIyMEgxOTAiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCIvPjxwYXRoIGQ9Ik0xOTAgMjIwSDI0Mm0tNSAtNGw1IDRsLTUgNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjEuNSIgc3Ryb2tlLWxpbmVjYXA9InJvdW5kIi8+PHBhdGggZD0iTTE5MCA1MlYyMjAiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSI1IiBzdHJva2UtbGluZWNhcD0icm91bmQiLz48L3N2Zz4=)
    """)
    return


@app.cell
async def _(draw_group, grads, together):
    async def scatter_all(model):
        return await model.scatterreduce(grads[model.rank], 0)


    scattered = await together(scatter_all)
    draw_group({"rank 1, before": grads[1], "rank 1, after": scattered[1]})
    return (scatter_all,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    If you gather those shards, you have the result of the all-reduce. So an all-reduce is a reduce-scatter followed by an
    all-gather, which will matter in puzzle 4. The next cell shows that the values are equal, and what each rank sends:
    with four ranks, the bytes of the two halves add up to those of the whole.
    """)
    return


@app.cell
async def _(
    gather_all,
    grads,
    reduce_all,
    referee,
    scatter_all,
    sums,
    together,
    trace_of,
):
    async def in_two_halves(model):
        return await model.allgather(await model.scatterreduce(grads[model.rank], 0), 0)


    async def bytes_sent(function):
        models = []

        async def noted(model):
            models.append(model)
            return await function(model)

        await together(noted)
        return referee(trace_of(models)).ranks[0].bytes_sent


    halves = await together(in_two_halves)
    print("equal:", all(half.batches == total.batches and half.is_complete() for half, total in zip(halves, sums)))
    for function in (reduce_all, scatter_all, gather_all, in_two_halves):
        print(f"{function.__name__:14} {await bytes_sent(function):>10,} bytes from each rank")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### Point to point

    `pass_to(rank, value)` sends a value, and `receive()` returns what was sent. The sender continues right away, but a
    mailbox holds only one unread message: a second send waits until the first message is read. You can send any object.
    In the picture, **S** is a send, **R** a receive, and an arrow connects them. (`judged=False` is needed because
    nothing is trained here; otherwise `draw` would report that in red.)
    """)
    return


@app.cell
async def _(draw, together):
    async def talk(model):
        if model.rank == 0:
            await model.pass_to(1, "How much is the fish?")
            print("rank 0 hears:", await model.receive())
        else:
            print("rank 1 hears:", await model.receive())
            await model.pass_to(0, model.get_activation([3]))
        return model


    conversation = await together(talk, ranks=2)
    draw(conversation, judged=False)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### Deadlocks

    A rank could wait forever for a message or a collective that never comes. Instead, you get an error that says which
    rank waits where, and for whom:
    """)
    return


@app.cell
async def _(grads, together):
    async def impolite(model):
        if model.rank != 2:
            return await model.allreduce(grads[model.rank], 0)
        return None


    try:
        refused = await together(impolite)
    except AssertionError as refusal:
        print(refusal)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## A whole step on two ranks, with the classic interface

    This is a schedule from start to end. It is correct, but as wasteful as possible: both ranks do all the work. `draw`
    and `Model.check` work on the models that `gather` returns.
    """)
    return


@app.cell
async def _(Model, draw, together):
    async def everybody_does_everything(model):
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model


    out = await together(everybody_does_everything, ranks=2)
    Model.check(out)
    draw(out)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## `play` does all of this in one call

    In the puzzles, one cell runs every rank, judges and draws the run, and shows how you did. Here is a first try at
    puzzle 0 that fails. You see the message, your line of code, and how far the run got:
    """)
    return


@app.cell
async def _(play):
    def first_try(model):
        weights, opt_states, activations, *_ = model.storage()
        weights[0], opt_states[0] = model.load_weights(0)
        activations[0] = model.get_activation(range(model.BATCHES))
        activations[1] = model.forward(0, activations[0], weights[0])
        activations[2] = model.forward(1, activations[1], weights[0])


    await play("basic", first_try)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    That's everything you need. Open **01_puzzles**, and have fun.
    """)
    return


if __name__ == "__main__":
    app.run()
