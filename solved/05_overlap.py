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
    # Overlap

    In **01_puzzles** a rank waits while it communicates. Here communication runs beside computation: a call starts it and
    returns a handle, and `await` waits for the end. What counts is when you call, in which order, and how long you can do
    without the result.

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
    ## Puzzle 18: DDP with overlap

    Data parallelism again, but the network now works beside the ranks. A collective starts when it is called, and the
    rank computes on. The call returns a handle; `await handle` waits for the end and gives you the sum. Each rank has one
    lane to the network: its calls run there one after the other, in the order in which they were made.

    The gradient of the last layer is there first, when most of backward is still to come. Send it then, and await it
    when everything else is done.

    Each call costs 0.5 steps, and 0.5 more for each gradient in it: `allreduce` also takes a list of gradients with a
    list of their layers, and returns a list. Many small buckets pay for many calls, and one large bucket waits for the
    end of backward. What is best?

    | costs `buckets` | here | in the classics |
    |---|---|---|
    | `allreduce` | 0.5 steps and 0.5 for each value | 0.3 steps |
    | communication | beside computation | in turn |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MTciIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDYgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA2IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0NCIgeT0iNTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjg4NThiIi8+PHJlY3QgeD0iMjMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyOWFiODAiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjMxMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjE5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjg4NThiIi8+PHJlY3QgeD0iMjMwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyOWFiODAiLz48cmVjdCB4PSIyNzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjMxMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iMzUwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAyPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMzY1YzhhIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzI4ODU4YiIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyOWFiODAiLz48cmVjdCB4PSIyNzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNzBjYzU3Ii8+PHJlY3QgeD0iMzEwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMzNjVjOGEiLz48cmVjdCB4PSIxOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjg4NThiIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzI5YWI4MCIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM3MGNjNTciLz48cmVjdCB4PSIzMTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzNTAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iMzUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHBhdGggZD0iTTM5OCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSI0MTYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmdyYWRpZW50cyBhcmUgc3VtbWVkIHdoaWxlIGJhY2t3YXJkIGdvZXMgb248L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 6 layers, 4 batches, 4 ranks | < 15 steps | < 6.1M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.allreduce(v, layer)`: The sum of every rank's `v`, for everyone; 0.5 steps and 0.5 for each value after the last rank has joined. Where communication overlaps computation, calling starts it and returns a handle to await.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def ddp_overlap(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[0] = model.get_activation([model.rank])

        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        sums = {}
        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if layer == 0:
                del grad_activations[0]
            sums[layer] = model.allreduce(grad_weights[layer], layer)
            del grad_weights[layer]

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer] = await sums[layer]
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            del grad_weights[layer]
            model.set_final_weight(layer, weights[layer])
        return model

    return (ddp_overlap,)


@app.cell
async def _(ddp_overlap, play):
    await play("ddp_overlap", ddp_overlap)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Only two things change in `ddp`: the call of `allreduce` moves into the backward loop, and `await` does not.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Keep the handles: `sums[layer] = model.allreduce(grad_weights[layer], layer)`, in a dictionary of your own. The gradient belongs to the call until it is awaited, so delete it from `grad_weights`.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Await and update in the order in which the sums arrive: from the last layer to the first. While the update of one layer runs, the sum of the next can arrive.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Backward, for each layer from the last: backward; delete its input and the gradient that it used, and after layer 0 also `grad_activations[0]`; `sums[layer] = model.allreduce(...)`; delete the gradient. Then, from the last layer again: `grad_weights[layer] = await sums[layer]`, update, delete the gradient.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Backward makes the gradients one by one, and nothing needs them before the update. So all sums but the last can hide
    behind the rest of backward. What is left to wait for is the last bucket. It should be small, and not late because the
    lane is still busy with those before it. An update does not have to wait for the end of backward either: made as soon
    as the sum is there, it frees the gradient.

    PyTorch's DistributedDataParallel does this (Li et al. 2020). It fills buckets of 25 MB by default in the reverse order
    of the layers, and starts a bucket's all-reduce as soon as its last gradient is there. The best size depends on the
    model and on the network, and the paper measures it.

    <details><summary>Sources</summary>

    - Shen Li, Yanli Zhao, Rohan Varma et al. (2020). PyTorch Distributed: Experiences on Accelerating Data Parallel Training. VLDB 2020, [arXiv 2006.15704](https://arxiv.org/abs/2006.15704)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 19: FSDP with prefetching

    In `fsdp`, every layer waits for its weight. Here collectives run beside computation, as in `ddp_overlap`: a call
    returns a handle, to be awaited later, and each rank's calls run one after the other in its one lane.

    So gather the weight of the next layer while this one computes, and let the scatter of a gradient run while backward
    goes on. At most two whole weights fit: the one in use, and the one that is coming.

    In backward the lane has two things to do for each layer, a gather and a scatter, each of 0.5 steps. Together they
    just fit beside one backward. But one of them is needed at once, and the other only at the end. In the wrong
    order, the schedule takes a third longer.

    | costs `overlap` | here | in the classics |
    |---|---|---|
    | `allgather` | 0.5 steps | 0.3 steps |
    | `scatterreduce` | 0.5 steps | 0.3 steps |
    | communication | beside computation | in turn |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3NDEiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDYgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA2IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0NCIgeT0iNTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyODg1OGIiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyODg1OGIiLz48cmVjdCB4PSIyNzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAyPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzM2NWM4YSIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI4ODU4YiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzI5YWI4MCIvPjxyZWN0IHg9IjMxMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzcwY2M1NyIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMzY1YzhhIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjg4NThiIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMjlhYjgwIi8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzEwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNzBjYzU3Ii8+PHJlY3QgeD0iMzUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTM5OCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSI0MTYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPndlaWdodHMgYXJlIGdhdGhlcmVkIGFoZWFkLCBncmFkaWVudHMgc2NhdHRlcmVkPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 6 layers, 4 batches, 4 ranks | < 16 steps | < 2.5M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.5 steps after the last rank has joined.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.scatterreduce(v, layer)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.5 steps after the last rank has joined.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def fsdp_prefetch(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        top = model.LAYERS - 1

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        activations[0] = model.get_activation([model.rank])

        gather = model.allgather(weights[0], 0)
        for layer in range(model.LAYERS):
            weights["whole"] = await gather
            if layer < top:
                gather = model.allgather(weights[layer + 1], layer + 1)
            activations[layer + 1] = model.forward(layer, activations[layer], weights["whole"])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        # The last layer's weight is still here. In the lane, each gather goes before the scatter of the layer above it.
        scatter = None
        for layer in reversed(range(model.LAYERS)):
            if layer:
                gather = model.allgather(weights[layer - 1], layer - 1)
            grad_weights["whole"], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights["whole"]
            )
            del activations[layer], grad_activations[layer + 1], weights["whole"]
            if scatter is not None:
                grad_weights[layer + 1] = await scatter
            scatter = model.scatterreduce(grad_weights["whole"], layer)
            del grad_weights["whole"]
            if layer:
                weights["whole"] = await gather
        del grad_activations[0]

        for layer in reversed(range(model.LAYERS)):
            if layer == 0:
                grad_weights[0] = await scatter
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (fsdp_prefetch,)


@app.cell
async def _(fsdp_prefetch, play):
    await play("fsdp_prefetch", fsdp_prefetch)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Begin with forward: await the weight of this layer, call the gather of the next, then compute.

    </details>

    <details><summary>Hint 2 of 4</summary>

    After forward, the weight of the last layer is still there. Backward can begin with it, without a gather.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Before each backward, call the gather of the layer below; after it, call the scatter. So each gather is in the lane ahead of the scatter of the layer above, and has ended when backward needs it.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Backward, for each layer from the last: `gather = model.allgather(weights[layer - 1], layer - 1)` unless it is layer 0; backward with `weights["whole"]`; delete the weight, the input and the gradient that was used; await the scatter of the layer above, if there is one; `scatter = model.scatterreduce(...)` and delete the whole gradient; `weights["whole"] = await gather`. Then update, from the last layer to the first.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Sharding pays for its memory with communication, and prefetching hides it: the weights of the next layer travel
    while this layer computes. It takes room for one more whole weight. In forward a gather is on its way. In backward
    gathers and scatters share the lane, and the gather goes first, because computation waits for it.

    PyTorch FSDP issues the all-gather of the next layer before the current layer's reduce-scatter, which it calls backward
    prefetching, and limits how many gathered weights exist at a time (Zhao et al. 2023). Both collectives go through one
    stream there too, so the order in which they are issued decides.

    <details><summary>Sources</summary>

    - Yanli Zhao, Andrew Gu, Rohan Varma et al. (2023). PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel. VLDB 2023, [arXiv 2304.11277](https://arxiv.org/abs/2304.11277)
    - Samyam Rajbhandari, Jeff Rasley, Olatunji Ruwase, Yuxiong He (2020). ZeRO: Memory Optimizations Toward Training Trillion Parameter Models. SC20, [arXiv 1910.02054](https://arxiv.org/abs/1910.02054)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 20: Streamed inference

    Inference this time: no loss, no backward, no update. The result is the last activation of all batches, which you
    declare with `set_output`.

    The model has eight layers, and there is room for two. All weights are on the host: `load_weights` with `tier="host"`
    parks them there. `fetch` brings a copy of one to the device in one step. It runs beside computation: the call
    returns a handle, and `await handle` gives you the weight. The parked weight stays where it is.

    A layer computes both batches at once, which takes two steps. So the device need never wait, except for the first
    weight.

    | costs `streams` | here | in the classics |
    |---|---|---|
    | `fetch` | 1 step | not there |
    | communication | beside computation | in turn |
    | the task | outputs, without training | to train on every batch |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MzUiIGhlaWdodD0iNzYiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIiByb2xlPSJpbWciIGFyaWEtbGFiZWw9IjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVycyI+PHRpdGxlPjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtMSwgYXQgb25jZTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzNjNTA4OSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmU2ZThkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyNzhiOGEiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzIyYTY4NCIvPjxyZWN0IHg9IjMxMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNTJiZTY4Ii8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM4YWQ0NGMiLz48cmVjdCB4PSIzOTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjQzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjQzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNTA0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPndlaWdodHMgZnJvbSB0aGUgaG9zdCwgb25lIGJ5IG9uZTwvdGV4dD48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 2 batches, 1 rank | < 16 steps | < 0.8M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `await model.fetch(parked)`: A copy of a parked value on the device. The parked one stays until it is dropped.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.

    </details>
    """)
    return


@app.cell
def _(Model):
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

    return (stream_inference,)


@app.cell
async def _(play, stream_inference):
    await play("stream_inference", stream_inference)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    First write it with one weight at a time: fetch it, await it, forward, delete it. It takes 22 steps.

    </details>

    <details><summary>Hint 2 of 4</summary>

    A weight takes one step to arrive, and a layer two to compute. If the next weight is on its way while a layer computes, it is there in time.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Two weights on the device are enough: the one in use and the one that is coming. Delete a weight right after its forward, and an activation as soon as the next one exists.

    </details>

    <details><summary>Hint 4 of 4</summary>

    `coming = model.fetch(model.parked[0])` before the loop. In it: `weights[layer] = await coming`; unless it is the last layer, `coming = model.fetch(model.parked[layer + 1])`; forward; delete the weight and the input.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    In inference a weight is used once for each pass, so it does not have to stay. Streaming needs room for two layers,
    whatever the depth of the model. It is as fast as if everything fit, if computing a layer takes at least as long
    as fetching the next: large batches make it so, since they compute longer with the same weights.

    ZeRO-Inference, a part of DeepSpeed Inference (Aminabadi et al. 2022), keeps the weights in the memory of the host or
    on a drive and fetches layer by layer, ahead of time. FlexGen (Sheng et al. 2023) also decides what is kept where, and
    lets many batches use a layer before it goes on to the next.

    <details><summary>Sources</summary>

    - Reza Yazdani Aminabadi, Samyam Rajbhandari, Minjia Zhang et al. (2022). DeepSpeed Inference: Enabling Efficient Inference of Transformer Models at Unprecedented Scale. SC22, [arXiv 2207.00032](https://arxiv.org/abs/2207.00032)
    - Ying Sheng, Lianmin Zheng, Binhang Yuan et al. (2023). FlexGen: High-Throughput Generative Inference of Large Language Models with a Single GPU. ICML 2023, [arXiv 2303.06865](https://arxiv.org/abs/2303.06865)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


if __name__ == "__main__":
    app.run()
