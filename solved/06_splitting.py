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
    # Splitting a layer

    In **01_puzzles**, ranks shared out batches and layers. Here they work on the same layer at the same time, and share
    its weights, its tokens or its experts. So a single batch gets faster, and what it needs fits on several ranks.

    A puzzle says what is new in its setting, such as a price or a size, in a table below its task.
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
    from lib import Model
    from puzzles import play

    return Model, play


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 21: Tensor parallelism

    There is one batch and there are four ranks. Data parallelism and pipelines need more batches to share out; to make
    a single batch faster, the ranks must work on the same layer at the same time.

    Here a layer is a *block* of two matrices. It can be cut into shards, such that each shard computes something with
    the whole input, and the results only have to be added up. A forward with shard `model.rank` of `model.RANKS` takes
    a quarter of the time and yields a *part* of the activation. The next layer needs the whole sum: `allreduce` works
    on parts of activations, too. In backward it is the same. The gradient of a shard is complete, and stays on its
    rank; the activation gradient is a part of a sum.

    | costs `quarters` | here | in the classics |
    |---|---|---|
    | a layer | two matrices that can be cut | one matrix |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1MDYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDA8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSI5MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAxPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI5MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDA8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxOCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSIzMzYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmFjdGl2YXRpb25zIGFyZSBzdW1tZWQ8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 1 batch, 4 ranks | < 6 steps | < 1.2M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch. Of a block, shards of the weight yield parts of a sum, in as much less time.
    - `await model.allreduce(v, layer)`: The sum of every rank's `v`, for everyone; 0.3 steps after the last rank has joined. Of a block it also sums parts of activations and of their gradients.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch. Of a block, shards take as much less time, and the gradient for backward(layer - 1) is a part of a sum.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def tensor_parallel(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            part = model.forward(layer, activations[layer], weights[layer])
            activations[layer + 1] = await model.allreduce(part, layer + 1)

        grad_activations[model.LAYERS - 1] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], part = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer), weights[layer]
            )
            grad_activations[layer - 1] = await model.allreduce(part, layer - 1)
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])
        return model

    return (tensor_parallel,)


@app.cell
async def _(play, tensor_parallel):
    await play("tensor_parallel", tensor_parallel)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Write the training step of a single rank first: forward through all layers, loss, backward, update. Then see at which values the rules refuse a part.

    </details>

    <details><summary>Hint 2 of 4</summary>

    After each forward: `await model.allreduce(part, layer + 1)`, since the output of a layer is the activation of the next one. The same for the activation gradient after a backward, whose label is `layer - 1`.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Weight gradients need no collective at all. Every rank has seen the whole batch, and its shard's gradient is complete; so it can update its shard right after the backward.

    </details>

    <details><summary>Hint 4 of 4</summary>

    `grad_weights[layer], part = model.backward(layer, activations.pop(layer), grad_activations.pop(layer), weights[layer])`, then the sum of `part`, then the update with `grad_weights.pop(layer)`. One of the eight sums is needed by nobody.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Tensor parallelism cuts the work of a layer, not the batches. It makes a single batch faster, and it cuts weights,
    gradients and states without gathering any of them. The price: an all-reduce of activations after every layer in
    both directions, which computation has to wait for. A step of one rank would take 9.5 here; four ranks need 5.6,
    not a quarter.

    Megatron-LM cuts the first matrix of a block by columns and the second one by rows, so that a block needs one
    all-reduce forward and one backward, and an attention layer, cut by heads, needs the same (Shoeybi et al. 2019).
    Since the sums are so frequent, it is used between the GPUs of one machine.

    <details><summary>Sources</summary>

    - Mohammad Shoeybi, Mostofa Patwary, Raul Puri et al. (2019). Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism. [arXiv 1909.08053](https://arxiv.org/abs/1909.08053)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 22: Sequence parallelism

    Tensor parallelism cuts weights and work, but not activations: after each all-reduce, all ranks keep the same whole
    activation for backward. Here sequences are long, and an activation is four times as large as a whole weight. The
    schedule of `tensor_parallel` keeps eight of them.

    An all-reduce is a reduce-scatter and an all-gather. Stop between the two: after `scatterreduce`, a rank has the
    sum for a quarter of the *tokens*, and that is all it has to keep. `allgather` makes the activation whole when a
    layer needs it, again in backward, and each takes half the time of an all-reduce. Halve the memory, for little more
    time.

    | costs `long_quarters` | here | in the classics |
    |---|---|---|
    | `allgather` | 0.15 steps | 0.3 steps |
    | `scatterreduce` | 0.15 steps | 0.3 steps |
    | an activation | 1,048,576 elements | 131,072 elements |
    | an activation gradient | 1,048,576 elements | 131,072 elements |
    | a layer | two matrices that can be cut | one matrix |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MzUiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDggbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjM2M1MDg5Ii8+PHJlY3QgeD0iMjMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzJlNmU4ZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyNzhiOGEiLz48cmVjdCB4PSIzMTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjJhNjg0Ii8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzUyYmU2OCIvPjxyZWN0IHg9IjM5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM4YWQ0NGMiLz48cmVjdCB4PSI0MzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjQzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDA8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMzYzUwODkiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmU2ZThkIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI3OGI4YSIvPjxyZWN0IHg9IjMxMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzEwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyMmE2ODQiLz48cmVjdCB4PSIzNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM1MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNTJiZTY4Ii8+PHJlY3QgeD0iMzkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzOTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzhhZDQ0YyIvPjxyZWN0IHg9IjQzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iNDMwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzNjNTA4OSIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzJlNmU4ZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI3OGI4YSIvPjxyZWN0IHg9IjMxMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzIyYTY4NCIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzUyYmU2OCIvPjxyZWN0IHg9IjM5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzhhZDQ0YyIvPjxyZWN0IHg9IjQzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjQzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDA8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjM2M1MDg5Ii8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmU2ZThkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjc4YjhhIi8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzEwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjJhNjg0Ii8+PHJlY3QgeD0iMzUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNTJiZTY4Ii8+PHJlY3QgeD0iMzkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjOGFkNDRjIi8+PHJlY3QgeD0iNDMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iNDMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTQ3OCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSI0OTYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPnRva2VucyBhcmUgc2NhdHRlcmVkIGFuZCBnYXRoZXJlZDwvdGV4dD48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 1 batch, 4 ranks | < 14 steps | < 4.8M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.15 steps after the last rank has joined. Between layers that are a block it also joins shares of the tokens.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch. Of a block, shards of the weight yield parts of a sum, in as much less time.
    - `await model.scatterreduce(v, layer)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.15 steps after the last rank has joined. Of parts that a block made it gets its share of the tokens.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch. Of a block, shards take as much less time, and the gradient for backward(layer - 1) is a part of a sum.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def sequence_parallel(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        async def whole_input(layer):
            if layer == 0:
                return model.get_activation(range(model.BATCHES))
            return await model.allgather(activations[layer], layer)

        for layer in range(model.LAYERS):
            activations["part"] = model.forward(layer, await whole_input(layer), weights[layer])
            activations[layer + 1] = await model.scatterreduce(activations.pop("part"), layer + 1)

        grad_activations[model.LAYERS - 1] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp = await whole_input(layer)
            activations.pop(layer, None)
            grad = await model.allgather(grad_activations.pop(layer), layer)
            grad_weights[layer], grad_activations["part"] = model.backward(layer, inp, grad, weights[layer])
            del inp, grad
            if layer:
                grad_activations[layer - 1] = await model.scatterreduce(grad_activations["part"], layer - 1)
            del grad_activations["part"]
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])
        return model

    return (sequence_parallel,)


@app.cell
async def _(play, sequence_parallel):
    await play("sequence_parallel", sequence_parallel)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Start from your `tensor_parallel`. Replace each all-reduce by a `scatterreduce`, and gather right before the next forward or backward that needs the whole value.

    </details>

    <details><summary>Hint 2 of 4</summary>

    The output of the last layer need not be gathered: the loss of a token needs that token only, so `loss` works on a share of the tokens, and yields the gradient for that share.

    </details>

    <details><summary>Hint 3 of 4</summary>

    `backward` needs two whole values: the layer's input and the gradient of its output. Gather both right before it, and keep neither after it.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Write `async def whole_input(layer)`: for layer 0 it returns `model.get_activation(range(model.BATCHES))`, for the others `await model.allgather(activations[layer], layer)`. Forward: `part = model.forward(layer, await whole_input(layer), weights[layer])`, then `activations[layer + 1] = await model.scatterreduce(part, layer + 1)`. Backward: gather input and gradient, delete their shares, `backward`, and, unless `layer` is 0, `scatterreduce` the part for `layer - 1`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    What a tensor-parallel rank keeps falls to a share of the tokens, and bytes stay nearly the same, since an
    all-reduce moves as much as a reduce-scatter and an all-gather together. Only the inputs that are gathered again in
    backward are extra: 1.05 steps here. The activations, which decide the memory of long sequences, are cut by the
    number of ranks.

    Korthikanti et al. (2022) introduced this for the layer norms and dropouts between the blocks, which tensor
    parallelism computes on every rank again, and keep only a share of each block's input, as here. In Megatron Core it
    is the option `sequence_parallel`. Ring attention goes on to cut the sequence inside of attention as well.

    <details><summary>Sources</summary>

    - Vijay Korthikanti, Jared Casper, Sangkug Lym et al. (2022). Reducing Activation Recomputation in Large Transformer Models. MLSys 2023, [arXiv 2205.05198](https://arxiv.org/abs/2205.05198)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 23: Expert parallelism

    In a mixture of experts, a layer is many experts, and each token goes to one of them. Each rank has one expert of
    every layer (shard `model.rank`), and two of the eight batches. `dispatch` sends the tokens of a rank's batches to
    the experts that they are for: it takes whole batches and returns a quarter of everybody's. `collect` brings them
    back. There is one of each around every layer, forward and backward.

    If nothing else happens meanwhile, a step takes 15.5, and ranks wait a third of it. But here a call is under way as
    soon as you make it: it returns a handle, and `await` on the handle waits for the result. So compute one batch
    while the other one travels. A handle may also be given to another call, in place of its value: the second call
    then starts when the first has ended, even if the rank is in the middle of a computation.

    | costs `experts` | here | in the classics |
    |---|---|---|
    | `dispatch` | 0.5 steps | not there |
    | `collect` | 0.5 steps | not there |
    | communication | beside computation | in turn |
    | a layer | one expert for each shard | one matrix |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI0NzAiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDIgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAsIDQ8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2hlcyAxLCA1PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2hlcyAyLCA2PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMywgNzwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjE3NS41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjE3NS41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48cGF0aCBkPSJNMjM4IDMwaDhWMTg0aC04IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjx0ZXh0IHg9IjI1NiIgeT0iMTEwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM0NDU0NmEiIHRleHQtYW5jaG9yPSJzdGFydCI+dG9rZW5zIGdvIHRvIGV4cGVydHMgYW5kIGJhY2s8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 2 layers, 8 batches, 4 ranks | < 11 steps | < 1.4M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `await model.dispatch(v, layer)`: Every rank's whole batches for this rank's share of the tokens of all of them (all-to-all): those that go to its expert. Arguments as in `allreduce`.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch. Each of the experts takes its own tokens.
    - `await model.collect(v, layer, batches)`: The way back from `dispatch`: some of the batches with all of their tokens. Every batch goes to one rank.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def expert_parallel(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        my_batches = range(model.rank, model.BATCHES, model.RANKS)
        last = model.LAYERS - 1
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        back, there = {}, {}  # by batch: the call that brings it back, and the one that takes it to the next experts

        def travel(value, layer, batch):
            back[batch] = model.collect(value, layer, [batch])
            there[batch] = model.dispatch(back[batch], layer)

        async def arrive(batch):
            if batch in back:
                await back.pop(batch)
            return await there.pop(batch)

        for batch in my_batches:
            there[batch] = model.dispatch(model.get_activation([batch]), 0)
        for layer in range(model.LAYERS):
            for batch in my_batches:
                activations[layer, batch] = await arrive(batch)
                out = model.forward(layer, activations[layer, batch], weights[layer])
                if layer < last:
                    travel(out, layer + 1, batch)
                else:
                    back[batch] = model.collect(out, layer + 1, [batch])

        for batch in my_batches:
            there[batch] = model.dispatch(model.loss(await back.pop(batch)), last)
        for layer in reversed(range(model.LAYERS)):
            for batch in my_batches:
                grad_activations[batch] = await arrive(batch)
                grad, out = model.backward(
                    layer, activations.pop((layer, batch)), grad_activations.pop(batch), weights[layer]
                )
                grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
                if layer > 0:
                    travel(out, layer - 1, batch)
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])
        return model

    return (expert_parallel,)


@app.cell
async def _(expert_parallel, play):
    await play("expert_parallel", expert_parallel)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    First write it without overlap: `await` every call at once, with all of `my_batches` together. Then take the two batches one at a time.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Make a call as soon as you have what it needs, keep its handle in a dictionary by batch, and await it only right before the value is used. Dispatch both batches at the start; then go through the layers, and in each layer through the batches.

    </details>

    <details><summary>Hint 3 of 4</summary>

    After a forward, its tokens have to come back and go out again to the next layer's experts. If you await the `collect` before you make the `dispatch`, the dispatch starts a whole computation late. Chain them instead: `model.dispatch(handle, layer)`.

    </details>

    <details><summary>Hint 4 of 4</summary>

    After each forward but the last: `back[batch] = model.collect(out, layer + 1, [batch])` and `there[batch] = model.dispatch(back[batch], layer + 1)`. Before each computation `await back.pop(batch)`, if there is one, and then `await there.pop(batch)`. Only at the loss does the value itself have to be there. Backward is the same with `layer - 1`; after layer 0 nothing has to travel.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Tokens travel twice for each layer, forward and backward, and nothing can be computed with them meanwhile. With two
    batches in turn, one's computation hides the other's travel. Let all ranks work in the same order. If each call had to
    wait for the value that it brings, 11.5 steps would be the least; chained, each trip begins when the last one has
    ended, and 10 is the least. What is left is the wait at the loss, until the last outputs are back. The best schedule
    known avoids it.

    GShard introduced layers of experts on many devices, with an all-to-all to the experts and another one back
    (Lepikhin et al. 2020). DeepSeek-V3 hides them as here: its DualPipe schedule pairs a forward with a backward of
    another microbatch, and computes one while the tokens of the other travel (DeepSeek-AI 2024).

    <details><summary>Sources</summary>

    - Dmitry Lepikhin, HyoukJoong Lee, Yuanzhong Xu et al. (2020). GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding. ICLR 2021, [arXiv 2006.16668](https://arxiv.org/abs/2006.16668)
    - DeepSeek-AI (2024). DeepSeek-V3 Technical Report. [arXiv 2412.19437](https://arxiv.org/abs/2412.19437)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


if __name__ == "__main__":
    app.run()
