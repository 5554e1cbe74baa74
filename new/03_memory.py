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
    # Memory

    What does a rank keep that others keep too, that it could compute again, or that it could put elsewhere? Each of these
    puzzles removes one kind of it, and each has a price. Play **01_puzzles** first: `ddp` and `fsdp` are where we start.

    A puzzle says what is new in its setting, such as a price or a size, in a table below its task. The rest is as in the
    classics.
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
    ## Puzzle 8: Shard the optimizer states

    In `ddp`, every rank keeps all weights, all optimizer states and all gradients. The weights are read in every
    forward and backward. The states are read once, by the update, and every rank makes the same update.

    Let each rank keep the whole weights, but only shard `model.rank` of `model.RANKS` of each state, and update only
    that shard of each weight. For that it needs the same shard of the summed gradient, and afterwards everybody needs
    the whole new weight. Both halves of an all-reduce do exactly this: `scatterreduce` before the update, `allgather`
    after it. So the states shrink to a quarter, and no more is sent than in `ddp`.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2MjQiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDA8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIxOTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iMjcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjE5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjMwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIyNzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjx0ZXh0IHg9IjQ0IiB5PSIxMzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMjwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTMwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDI8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIxOTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIxOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxwYXRoIGQ9Ik0zMTggMzBoOFYxODRoLTgiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIyIi8+PHRleHQgeD0iMzM2IiB5PSIxMTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzQ0NTQ2YSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5ncmFkaWVudHMgYXJlIHNjYXR0ZXJlZCwgd2VpZ2h0cyBnYXRoZXJlZDwvdGV4dD48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 4 batches, 4 ranks | < 13 steps | < 2.4M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.scatterreduce(v, layer)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.3 steps after the last rank has joined.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.
    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.3 steps after the last rank has joined.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def zero1(model: Model) -> Model:
        """ZeRO stage 1: data parallelism with the optimizer states in shards."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
            opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)

        # ----- your code -----
        # As in ddp, with the update between the two halves of the all-reduce.

        # ----- end of your code -----

        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
        return model

    return (zero1,)


@app.cell
async def _(play, zero1):
    await play("zero1", zero1)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Forward and backward are those of `ddp`. Only what happens to a gradient after its backward is new.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Right after each backward, `scatterreduce` the gradient. You keep a quarter of the sum, and the whole gradient is gone before the next one is made.

    </details>

    <details><summary>Hint 3 of 4</summary>

    `update` wants a gradient, a weight and a state of the same shard. You have the first and the third. For the second cut the weight: `weights[layer].shard(model.rank, model.RANKS)`.

    </details>

    <details><summary>Hint 4 of 4</summary>

    After the backward loop, for each layer: `weights[layer] = weights[layer].shard(model.rank, model.RANKS)`, then the update of `weights[layer]` and `opt_states[layer]`, then `weights[layer] = await model.allgather(weights[layer], layer)`. As in `ddp`, delete activations and their gradients as soon as backward has used them.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    An all-reduce is a reduce-scatter followed by an all-gather. The update fits between the two, and works on each
    number separately. So a rank that makes a share of the update needs only that share of the state. Together the ranks
    keep one copy of the states. The bytes are those of the all-reduce. Two collectives for each layer take a little longer
    than one: 12.1 steps, where `ddp` would take 10.7, and 3,407,872 elements.

    This is stage 1 of ZeRO (Rajbhandari et al. 2020). With Adam in mixed precision, the state is 12 of the 16 bytes of a
    parameter, so it is the first thing to shard. Compilers can do it to any data parallel program (Xu et al. 2020).

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
    ## Puzzle 9: Shard the gradients

    Now every rank has four microbatches, and takes them one after the other: rank `r` has batches `4 r` to `4 r + 3`.
    Between the first and the last of them, the gradients of all layers have to be kept somewhere.

    In `zero1` you could add up whole gradients and scatter each sum once. That is four times fewer calls, but every
    rank then keeps a whole gradient of every layer. Here memory is short: `scatterreduce` the gradient of every
    microbatch right after its backward, and add up the shards. Time and memory trade places, and the target is on
    the side of memory.

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2MjQiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMC0zPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgNC03PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjI3MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2hlcyA4LTExPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIyNzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI0NCIgeT0iMTcwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDM8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjE3MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDEyLTE1PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjIzMCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cGF0aCBkPSJNMzE4IDMwaDhWMTg0aC04IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjx0ZXh0IHg9IjMzNiIgeT0iMTEwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM0NDU0NmEiIHRleHQtYW5jaG9yPSJzdGFydCI+Z3JhZGllbnRzIGFyZSBzY2F0dGVyZWQsIHdlaWdodHMgZ2F0aGVyZWQ8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 16 batches, 4 ranks | < 40 steps | < 2.4M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.scatterreduce(v, layer)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.3 steps after the last rank has joined.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.
    - `await model.allgather(v, layer)`: Every rank's shards joined, for everyone; 0.3 steps after the last rank has joined.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def zero2(model: Model) -> Model:
        """ZeRO stage 2: optimizer states and gradients in shards, four microbatches on each rank."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        per_rank = model.BATCHES // model.RANKS
        batches = range(model.rank * per_rank, (model.rank + 1) * per_rank)
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
            opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)

        # ----- your code -----
        # Each batch forward and backward, scattering each gradient at once; then update and gather as in zero1.

        # ----- end of your code -----

        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
        return model

    return (zero2,)


@app.cell
async def _(play, zero2):
    await play("zero2", zero2)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Put the forward and backward of `zero1` into a loop over `batches`, and leave the update after the loop.

    </details>

    <details><summary>Hint 2 of 4</summary>

    What does a rank keep from one microbatch to the next? Only its shards of the gradients, one for each layer. The whole gradient of one layer exists for a moment.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Shards add up like gradients: `grad_weights[layer] = grad_weights[layer] + shard`, if there is one already.

    </details>

    <details><summary>Hint 4 of 4</summary>

    In the backward loop: store the new gradient as `grad_weights["whole"]`, then `shard = await model.scatterreduce(grad_weights["whole"], layer)`, then `del grad_weights["whole"]` and add the shard. The update of each layer is that of `zero1`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Stage 2 keeps a share of the gradients, as stage 1 keeps a share of the states. If a step has one microbatch, that
    costs nothing: the gradient is scattered once anyway. If it has several, each of them is scattered, so the calls and
    the bytes grow with the number of microbatches. Stage 1 sends once a step, and keeps whole sums until then.

    In ZeRO (Rajbhandari et al. 2020), stage 2 scatters gradients in buckets during backward and frees them at once.
    PyTorch FSDP lets you choose when you accumulate: reduce every microbatch's gradients, or keep whole gradients on
    each rank and reduce once, which takes more memory (Zhao et al. 2023).

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
    ## Puzzle 10: Activation checkpointing

    One rank, one long sequence. An activation is now as large as four weights, and nine layers leave nine of them. They
    are what fills the memory.

    You don't have to keep them. Delete an activation right after the forward that used it, and call `forward` again when
    backward needs it: each such call costs a step. But to compute an activation again you need an earlier one to start
    from. So which ones do you keep? The input of the model is special: `get_activation` gives it back at any time, and
    it costs nothing.

    The target leaves room for four steps of recomputation, and for four activations and one gradient at a time.

    | costs `long` | here | in the classics |
    |---|---|---|
    | an activation | 1,048,576 elements | 131,072 elements |
    | an activation gradient | 1,048,576 elements | 131,072 elements |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1MjYiIGhlaWdodD0iNzYiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIiByb2xlPSJpbWciIGFyaWEtbGFiZWw9IjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA5IGxheWVycyI+PHRpdGxlPjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA5IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ4NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+ODwvdGV4dD48dGV4dCB4PSI0NCIgeT0iNTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iNTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzNkNGM4OCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMzI2NjhjIi8+PHJlY3QgeD0iMjMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyOTgwOGMiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjMxMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzI1OTg4NyIvPjxyZWN0IHg9IjMxMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMzJhZjdiIi8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM1ZWM0NjEiLz48cmVjdCB4PSIzOTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjQzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzkzZDU0OCIvPjxyZWN0IHg9IjQzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iNDcwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iNDcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 9 layers, 1 batch, 1 rank | < 27 steps | < 10M elements on any rank |

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
    def checkpoint(model: Model) -> Model:
        """Training on one rank that keeps few activations and computes the others again."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)

        # ----- your code -----
        # Forward, and forget most activations; loss; backward, computing again what is missing; update.

        # ----- end of your code -----

        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
        return model

    return (checkpoint,)


@app.cell
async def _(checkpoint, play):
    await play("checkpoint", checkpoint)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Keep every third activation, and compute the two between them again.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Backward begins at the end, right after forward. Is there a reason to forget the last three activations?

    </details>

    <details><summary>Hint 3 of 4</summary>

    When backward comes to a layer whose input is missing, compute a whole segment again: from the last input that you kept up to this layer. Those inputs stay until their backward, so each is computed only once more.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Delete `activations[0]` after the first forward, and all others whose layer is below 6 and not a multiple of 3. In the backward loop, if `layer not in activations`: `start = layer // 3 * 3`, get the input again if `start == 0`, and for each layer from `start` to `layer - 1` run forward. Update right after each backward, and delete the weight's gradient.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Checkpointing trades time for memory. With L layers and a checkpoint every k layers, memory holds L/k checkpoints and
    one segment of k activations. That is least if k is about the square root of L, and it costs one more forward. Keeping
    the last segment saves a part of that forward. If you recompute more than once, you can keep even fewer. For every
    number of slots there is a best plan, whose checkpoints follow binomial coefficients.

    The square root is due to Chen et al. (2016). The best plans were known before, for adjoint computations in physics
    (Griewank and Walther 2000); they are the records here. Deep learning systems mostly recompute each transformer layer
    from its input: one more forward, and memory for one layer's activations. They keep
    what is small and takes long to compute.

    <details><summary>Sources</summary>

    - Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin (2016). Training Deep Nets with Sublinear Memory Cost. [arXiv 1604.06174](https://arxiv.org/abs/1604.06174)
    - Andreas Griewank, Andrea Walther (2000). Algorithm 799: Revolve: An Implementation of Checkpointing for the Reverse or Adjoint Mode of Computational Differentiation. ACM Transactions on Mathematical Software 26(1), 19-45
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 11: Offload activations

    The same long sequence, but this device has a host with memory of its own. `offload` copies an activation there,
    `fetch` copies it back. Each copy takes a step, and nothing waits for it: a copy runs beside computation, one at a
    time in each direction.

    So a call does not give you its result. It starts the copy and returns a handle; `await handle` waits until the copy
    has ended, and gives you what it made. The activation stays on the device until then. What is parked there, keep in
    `model.parked`, and delete it when it has come back.

    Without offloading, all this takes 19.5 steps and 12,582,912 elements. Take no more time, and 42% less memory. Room on
    the host is limited too: five activations.

    | costs `copies` | here | in the classics |
    |---|---|---|
    | `offload` | 1 step | not there |
    | `fetch` | 1 step | not there |
    | an activation | 1,048,576 elements | 131,072 elements |
    | an activation gradient | 1,048,576 elements | 131,072 elements |
    | communication | beside computation | in turn |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3MjgiIGhlaWdodD0iNzYiIGZvbnQtZmFtaWx5PSInSGVsdmV0aWNhIE5ldWUnLEhlbHZldGljYSxBcmlhbCxzYW5zLXNlcmlmIiByb2xlPSJpbWciIGFyaWEtbGFiZWw9IjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVycyI+PHRpdGxlPjEgcmFuaywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjM2M1MDg5Ii8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyZTZlOGQiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzI3OGI4YSIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzEwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjJhNjg0Ii8+PHJlY3QgeD0iMzEwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM1MmJlNjgiLz48cmVjdCB4PSIzNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM5MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzhhZDQ0YyIvPjxyZWN0IHg9IjM5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iNDMwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iNDMwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI1MDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM0NDU0NmEiIHRleHQtYW5jaG9yPSJzdGFydCI+YWN0aXZhdGlvbnMgdG8gdGhlIGhvc3QgYW5kIGJhY2s8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 1 batch, 1 rank | < 20 steps | < 7.4M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.
    - `await model.offload(v)`: A copy of a value on a memory tier, to be kept in `parked`; the device is free of the value once nothing else holds it.
    - `await model.fetch(parked)`: A copy of a parked value on the device. The parked one stays until it is dropped.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def offload(model: Model) -> Model:
        """Training on one rank whose activations wait on the host for their backward."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)

        # ----- your code -----
        # Forward, while inputs leave for the host; loss; backward, while the next input comes back; update.

        # ----- end of your code -----

        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
        return model

    return (offload,)


@app.cell
async def _(offload, play):
    await play("offload", offload)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    The input of layer 0 needs no room on the host: `get_activation` gives it back at any time.

    </details>

    <details><summary>Hint 2 of 4</summary>

    A copy takes as long as a forward. Start the copy of a layer's input just before the layer's forward, and await it just after; then the copy has taken no time, and you can delete the input.

    </details>

    <details><summary>Hint 3 of 4</summary>

    On the way back, start to fetch the input of the layer before, then call `backward`, then await the fetch. Which inputs are not worth a trip? Those that backward needs first.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Park the inputs of layers 1 to 5. Forward: `leaving = model.offload(activations[layer])`, forward, `model.parked[layer] = await leaving`, delete the input. Backward: `coming = model.fetch(model.parked[layer - 1])`, backward and update, `activations[layer - 1] = await coming`, `del model.parked[layer - 1]`. Delete activations and gradients as in `basic`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    An activation is used twice, in forward and in backward, and in the meantime it only takes room. A slower memory can
    hold it, if the copies fit beside the computation. The deeper the layer, the shorter the meantime: the last
    inputs stay. Recomputing costs time and no bandwidth; offloading costs bandwidth and no time, as long as a copy is
    not slower than a layer.

    vDNN (Rhu et al. 2016) offloads the inputs of layers during forward, and prefetches them during backward.
    ZeRO-Offload (Ren et al. 2021) puts the gradients and the optimizer states on the host, and makes the update there.
    Both keep copies and computation in separate streams, as the two lanes do here.

    <details><summary>Sources</summary>

    - Minsoo Rhu, Natalia Gimelshein, Jason Clemons, Arslan Zulfiqar, Stephen W. Keckler (2016). vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design. MICRO-49, [arXiv 1602.08124](https://arxiv.org/abs/1602.08124)
    - Jie Ren, Samyam Rajbhandari, Reza Yazdani Aminabadi et al. (2021). ZeRO-Offload: Democratizing Billion-Scale Model Training. USENIX ATC 2021, [arXiv 2101.06840](https://arxiv.org/abs/2101.06840)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


if __name__ == "__main__":
    app.run()
