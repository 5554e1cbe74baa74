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
    # Pipelines

    In **01_puzzles**, `gpipe` filled most of the bubble and kept the activations of all batches. These six puzzles tell
    how it went on: first without that memory, then with a shorter bubble, then with weights in shards, and at last
    without a bubble. Each starts from what the one before leaves to be wished for, so play them in order.

    Here a forward takes 1 step and a whole backward 2, and messages are free. A puzzle says what is new in its setting,
    such as a price or a size, in a table below its task.
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
    ## Puzzle 12: One forward, one backward

    In `gpipe`, more batches made the bubble smaller, but every rank kept the activations of all of them. With 1,000
    batches it would keep 1,000 activations. Yet a batch is finished long before the last one begins: its backward
    could run, and free its activation, while other batches still go forward.

    Here each rank has one layer, and there are 8 batches. A forward takes 1 step, a backward 2, and messages take no
    time. GPipe's order takes 33 steps. Find an order that takes no longer, in which no rank ever keeps the activations
    of more than 4 batches.

    | costs `stages` | here | in the classics |
    |---|---|---|
    | `backward` | 2 steps | 1 step |
    | `pass_to` | 0 steps | 0.2 steps |
    | `receive` | 0 steps | 0.2 steps |
    | `update` | 0 steps | 0.5 steps |
    | an activation gradient | 8,192 elements | 131,072 elements |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1NTYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMC03LCBpbiB0dXJuPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTMxNiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNMzI1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxwYXRoIGQ9Ik0zMTYgOTAuNFYxMjMuNm0tMyAtNGwzIDRsMyAtNE0zMjUgMTIzLjZWOTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNMzE2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTMyNSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSIzNDQiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmFjdGl2YXRpb25zIGRvd24sIGdyYWRpZW50cyB1cDwvdGV4dD48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 8 batches, 4 ranks | < 34 steps | < 1.5M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 2 steps for each batch.
    - `await model.pass_to(rank, v)`: Sends any object; 0 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def one_f_one_b(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        me, last = model.rank, model.RANKS - 1
        weights[me], opt_states[me] = model.load_weights(me)

        async def forward(batch):
            activations[batch] = await model.receive(me - 1) if me else model.get_activation([batch])
            out = model.forward(me, activations[batch], weights[me])
            if me == last:
                grad_activations[batch] = model.loss(out)
            else:
                await model.pass_to(me + 1, out)

        async def backward(batch):
            if me < last:
                grad_activations[batch] = await model.receive(me + 1)
            grad, grad_in = model.backward(me, activations.pop(batch), grad_activations.pop(batch), weights[me])
            grad_weights[me] = grad_weights[me] + grad if me in grad_weights else grad
            if me:
                await model.pass_to(me - 1, grad_in)

        # A batch that leaves this rank needs the ranks after it once forward and once back.
        ahead = min(last - me, model.BATCHES)
        for batch in range(ahead):
            await forward(batch)
        for batch in range(model.BATCHES):
            if batch + ahead < model.BATCHES:
                await forward(batch + ahead)
            await backward(batch)

        weights[me], opt_states[me] = model.update(me, grad_weights[me], weights[me], opt_states[me])
        model.set_final_weight(me, weights[me])
        return model

    return (one_f_one_b,)


@app.cell
async def _(one_f_one_b, play):
    await play("one_f_one_b", one_f_one_b)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Begin with the last rank. It has nothing to wait for: a batch that has come forward can go back at once.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Rank 2 sends a batch to rank 3 and gets its gradient 3 steps later. In that time it can take one more batch forward. How many can rank 1 take forward until its first gradient comes, and rank 0?

    </details>

    <details><summary>Hint 3 of 4</summary>

    So a rank first takes as many batches forward as there are ranks after it. From then on it alternates: one forward, one backward. At the end only backwards are left.

    </details>

    <details><summary>Hint 4 of 4</summary>

    With `ahead = min(last - me, model.BATCHES)`, call `forward` for the batches below `ahead`. Then, for each `batch`, call `forward(batch + ahead)` if there is such a batch, and `backward(batch)`. In `backward`, `pop` what it uses, and add each gradient to the sum right away. Update once, at the end.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    GPipe and 1F1B have the same bubble: with M batches and K ranks both take (M + K - 1) times a forward and a
    backward. What differs is the number of batches in flight. In 1F1B, rank r has at most K - r of them, however many
    batches there are. So with more batches the bubble shrinks, and the memory stays the same.

    PipeDream introduced the order, without waiting for all batches before an update (Narayanan et al. 2019).
    Megatron-LM uses it with one update at the end, as here, and calls it the default schedule (Narayanan et al. 2021).
    PyTorch has it as `Schedule1F1B`. Now the bubble is what is left to shrink.

    <details><summary>Sources</summary>

    - Deepak Narayanan et al. (2019). PipeDream: Generalized Pipeline Parallelism for DNN Training. SOSP 2019
    - Deepak Narayanan, Mohammad Shoeybi, Jared Casper et al. (2021). Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM. SC21, [arXiv 2104.04473](https://arxiv.org/abs/2104.04473)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 13: Interleaved pipeline

    The bubble of 1F1B is the time that the first batch needs to reach the last rank, and the last gradient to come
    back. With 8 layers on 4 ranks a stage has two layers, and every hop costs a whole stage: 1F1B takes 66 steps, of
    which a rank works 48.

    Make the hops shorter. Rank r gets the layers r and r + 4, which are two *chunks* of the model. A batch goes
    through the ranks twice: after layer 3, rank 3 passes it to rank 0 for layer 4. Now a hop costs one layer, and the
    bubble is half as long: 57 steps are possible. But with two chunks to choose from, a rank must decide what to do
    next.

    | costs `stages` | here | in the classics |
    |---|---|---|
    | `backward` | 2 steps | 1 step |
    | `pass_to` | 0 steps | 0.2 steps |
    | `receive` | 0 steps | 0.2 steps |
    | `update` | 0 steps | 0.5 steps |
    | an activation gradient | 8,192 elements | 131,072 elements |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI3NzIiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDggbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtNywgaW4gdHVybjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjMxMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzIyYTY4NCIvPjxyZWN0IHg9IjMxMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNNDg1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjM2M1MDg5Ii8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjMxMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzNTAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM1MmJlNjgiLz48cmVjdCB4PSIzNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA5MC40VjEyMy42bS0zIC00bDMgNGwzIC00TTQ4NSAxMjMuNlY5MC40bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyZTZlOGQiLz48cmVjdCB4PSIyMzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjMxMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzOTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjOGFkNDRjIi8+PHJlY3QgeD0iMzkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iNDMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNNDc2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTQ4NSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyNzhiOGEiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjM1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSI0MzAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iNDMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNTA0IiB5PSIxMTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzQ0NTQ2YSIgdGV4dC1hbmNob3I9InN0YXJ0Ij50d2ljZSBkb3duIHRoZSByYW5rcywgYW5kIHR3aWNlIGJhY2sgdXA8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 8 batches, 4 ranks | < 58 steps | < 3.2M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 2 steps for each batch.
    - `await model.pass_to(rank, v, tag=0)`: Sends any object; 0 steps for each value in it. Waits while its last message to `rank` is unread. Messages of different tags do not wait for each other.
    - `await model.receive(source=None, tag=0)`: A message from rank `source`, or the one sent first of all; 0 steps for each value in it, from when it has been sent. The k-th that was sent with a `tag` is the k-th received with it.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def interleaved(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        me, ranks = model.rank, model.RANKS
        before, after = (me - 1) % ranks, (me + 1) % ranks
        my_layers = range(me, model.LAYERS, ranks)
        for layer in my_layers:
            weights[layer], opt_states[layer] = model.load_weights(layer)

        def tag(layer, batch):
            return layer * model.BATCHES + batch

        async def forward(layer, batch):
            if layer == 0:
                activations[layer, batch] = model.get_activation([batch])
            else:
                activations[layer, batch] = await model.receive(before, tag(layer, batch))
            out = model.forward(layer, activations[layer, batch], weights[layer])
            if layer == model.LAYERS - 1:
                grad_activations[layer, batch] = model.loss(out)
            else:
                await model.pass_to(after, out, tag(layer + 1, batch))

        async def backward(layer, batch):
            if layer < model.LAYERS - 1:
                grad_activations[layer, batch] = await model.receive(after, tag(layer, batch))
            inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
            grad, grad_in = model.backward(layer, inp, grad_out, weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            if layer > 0:
                await model.pass_to(before, grad_in, tag(layer - 1, batch))

        # As many batches as there are ranks go through one chunk, then through the next one.
        groups = [range(start, start + ranks) for start in range(0, model.BATCHES, ranks)]
        forwards = [(layer, batch) for group in groups for layer in my_layers for batch in group]
        backwards = [(layer, batch) for group in groups for layer in reversed(my_layers) for batch in group]

        ahead = min(2 * (ranks - 1 - me) + model.LAYERS - ranks, len(forwards))
        for layer, batch in forwards[:ahead]:
            await forward(layer, batch)
        for i, (layer, batch) in enumerate(backwards):
            if i + ahead < len(forwards):
                await forward(*forwards[i + ahead])
            await backward(layer, batch)

        for layer in my_layers:
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (interleaved,)


@app.cell
async def _(interleaved, play):
    await play("interleaved", interleaved)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    `forward(layer, batch)` and `backward(layer, batch)` are those of `one_f_one_b`. Activations now come from rank `before` and go to rank `after`, for every layer but the first and the last.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Rank 0 can start layer 4 when batch 0 comes back from rank 3, after 4 steps. Until then it takes batches 0 to 3 through layer 0. So let groups of 4 batches go through the first chunk, then the same 4 through the second one.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Write two lists of `(layer, batch)`. Forwards: for each group, for each layer of `my_layers`, for each batch of the group. Backwards: the same with the layers reversed. As in 1F1B, a rank runs some forwards first, then one forward and one backward in turn, then the backwards that are left.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Before its first backward a rank runs the forwards of its first chunk for one group, which are `model.LAYERS - ranks` here, and some more for the ranks after it. Megatron-LM takes two for each: `ahead = 2 * (ranks - 1 - me) + model.LAYERS - ranks`. That meets the targets. What if you take fewer?

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    With v chunks on each rank, a hop costs 1/v as much, and so does the bubble. The price is more messages, v times as
    many, and more chunks in flight. How many depends on the order. Megatron-LM's warm-up counts two forwards for each
    rank that follows, and rank 0 keeps 11 chunks here. Where messages take no time one forward is enough: 8 chunks on
    rank 0 and 7 on rank 1, and not a step is lost.

    Megatron-LM introduced the interleaved schedule and measured at least 10 % more throughput (Narayanan et al. 2021). Its
    setting is `virtual_pipeline_model_parallel_size`, the number of chunks on a rank. It wants the number of batches to
    be a multiple of the number of ranks, as this order does. PyTorch has it as `ScheduleInterleaved1F1B`.

    <details><summary>Sources</summary>

    - Deepak Narayanan, Mohammad Shoeybi, Jared Casper et al. (2021). Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM. SC21, [arXiv 2104.04473](https://arxiv.org/abs/2104.04473)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 14: Breadth-first pipeline

    `pipeline_fsdp` was slow because weights were gathered again and again. Here are two pipelines of two stages, on a
    mesh with the axes `dp` and `pp`. Stage s has the layers s and s + 2. The two ranks of a stage (`group="dp"`) hold
    half of each of its weights, and each of them takes every second batch: four of the eight.

    A gather takes a whole step, and so does a reduce-scatter. Keep one whole weight at a time. In the
    order of `interleaved` it switches between its layers all the time, and gathers 11 times. In which order are 3
    gathers enough?

    | costs `gathers` | here | in the classics |
    |---|---|---|
    | `allgather` | 1 step | 0.3 steps |
    | `backward` | 2 steps | 1 step |
    | `scatterreduce` | 1 step | 0.3 steps |
    | `pass_to` | 0 steps | 0.2 steps |
    | `receive` | 0 steps | 0.2 steps |
    | `update` | 0 steps | 0.5 steps |
    | an activation gradient | 8,192 elements | 131,072 elements |
    | mesh | dp 2, pp 2 | none |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1NjgiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMCwgMiAuLi4gNjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxMzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMjwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTMwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMSwgMyAuLi4gNzwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjEyNy4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjEyNy4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48dGV4dCB4PSI0NCIgeT0iMTcwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDM8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjE3MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjE2Ny4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjE2Ny4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxOCAzMGg4VjE4NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSIzMzYiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPm1lc3NhZ2VzIG92ZXIgcHAsIHNoYXJkcyBvdmVyIGRwPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 8 batches, 4 ranks | < 33 steps | < 2M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `await model.allgather(v, layer, group=None)`: Every rank's shards joined, for everyone; 1 step after the last rank has joined.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 2 steps for each batch.
    - `await model.scatterreduce(v, layer, group=None)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 1 step after the last rank has joined. In a group it gets the shard of its place there.
    - `await model.pass_to(rank, v, tag=0)`: Sends any object; 0 steps for each value in it. Waits while its last message to `rank` is unread. Messages of different tags do not wait for each other.
    - `await model.receive(source=None, tag=0)`: A message from rank `source`, or the one sent first of all; 0 steps for each value in it, from when it has been sent. The k-th that was sent with a `tag` is the k-th received with it.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def breadth_first(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        stage, replica = model.index("pp"), model.index("dp")
        pipeline, replicas = model.axis("pp"), len(model.axis("dp"))
        before, after = pipeline[stage - 1], pipeline[(stage + 1) % len(pipeline)]
        my_layers = range(stage, model.LAYERS, len(pipeline))
        my_batches = range(replica, model.BATCHES, replicas)
        for layer in my_layers:
            weights[layer], opt_states[layer] = model.load_weights(layer, replica, replicas)

        def tag(layer, batch):
            return layer * model.BATCHES + batch

        async def forward(layer, batch):
            if layer == 0:
                activations[layer, batch] = model.get_activation([batch])
            else:
                activations[layer, batch] = await model.receive(before, tag(layer, batch))
            out = model.forward(layer, activations[layer, batch], weights["whole"])
            if layer == model.LAYERS - 1:
                grad_activations[layer, batch] = model.loss(out)
            else:
                await model.pass_to(after, out, tag(layer + 1, batch))

        async def backward(layer, batch):
            if layer < model.LAYERS - 1:
                grad_activations[layer, batch] = await model.receive(after, tag(layer, batch))
            inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
            grad, grad_in = model.backward(layer, inp, grad_out, weights["whole"])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            if layer > 0:
                await model.pass_to(before, grad_in, tag(layer - 1, batch))

        for layer in my_layers:
            weights["whole"] = await model.allgather(weights[layer], layer, group="dp")
            for batch in my_batches:
                await forward(layer, batch)
            if layer != my_layers[-1]:
                del weights["whole"]

        for layer in reversed(my_layers):
            if "whole" not in weights:
                weights["whole"] = await model.allgather(weights[layer], layer, group="dp")
            for batch in my_batches:
                await backward(layer, batch)
            del weights["whole"]
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="dp")

        for layer in my_layers:
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (breadth_first,)


@app.cell
async def _(breadth_first, play):
    await play("breadth_first", breadth_first)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    A gathered weight should serve all four batches of the rank before it is deleted.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Take all batches through the first layer of `my_layers`, then all through the second one. Go back the same way: all batches through the second layer, then all through the first one.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Between the forward and the backward of the second layer the weight can stay. Gather before you receive, so that the gather runs while the batch is still on its way.

    </details>

    <details><summary>Hint 4 of 4</summary>

    `weights['whole'] = await model.allgather(weights[layer], layer, group='dp')` before each loop over `my_batches`, and `del weights['whole']` after it. In the backward loop add up the gradients of all batches, delete the weight, and only then `await model.scatterreduce(grad_weights[layer], layer, group='dp')`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Depth-first sends a batch on as early as possible; breadth-first takes all batches through what a rank has at hand.
    With whole weights on each rank, the first needs less memory and both are equally fast. With sharded weights each
    switch costs a gather: with v chunks breadth-first needs 2v - 1 gathers, for any number of batches. The price is
    GPipe's: activations of all batches are kept. The best schedule known mixes the two.

    Lamy-Poirier (2022) introduced breadth-first pipelines for exactly this combination with fully sharded data
    parallelism, where the gathers can also overlap computation. PyTorch has the order as `ScheduleLoopedBFS`.

    <details><summary>Sources</summary>

    - Joel Lamy-Poirier (2022). Breadth-First Pipeline Parallelism. [arXiv 2211.05953](https://arxiv.org/abs/2211.05953)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 15: Weight gradients in the bubble

    Smaller chunks shrink the bubble, at the price of more messages. Is there anything useful to do while a rank waits?

    Backward computes two gradients. That of the input is urgent: the previous rank waits for it. That of the weight
    concerns nobody but this rank, and only the update needs it. So here backward comes in halves. `backward_input` and
    `backward_weight` take 1 step each, as a forward does. 1F1B takes 33 steps, of which each rank works 24.

    Put the weight gradients where ranks used to wait, and finish in 27 steps. But a batch's activation is needed until
    its `backward_weight`, and you may keep no more than four on each rank: as many as rank 0 keeps in 1F1B.

    | costs `parts` | here | in the classics |
    |---|---|---|
    | `backward_input` | 1 step | not there |
    | `backward_weight` | 1 step | not there |
    | `pass_to` | 0 steps | 0.2 steps |
    | `receive` | 0 steps | 0.2 steps |
    | `update` | 0 steps | 0.5 steps |
    | an activation gradient | 8,192 elements | 131,072 elements |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1NTYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMC03LCBpbiB0dXJuPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTMxNiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNMzI1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxwYXRoIGQ9Ik0zMTYgOTAuNFYxMjMuNm0tMyAtNGwzIDRsMyAtNE0zMjUgMTIzLjZWOTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNMzE2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTMyNSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSIzNDQiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmFjdGl2YXRpb25zIGRvd24sIGdyYWRpZW50cyB1cDwvdGV4dD48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 8 batches, 4 ranks | < 28 steps | < 1.5M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward_input(layer, inp, grad, weight)`: The half of backward that the layer before waits for: the gradient for backward_input(layer - 1).
    - `model.backward_weight(layer, inp, grad, weight=None)`: The other half: the weight gradient, any time later.
    - `await model.pass_to(rank, v)`: Sends any object; 0 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def zb_h1(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        me, last = model.rank, model.RANKS - 1
        weights[me], opt_states[me] = model.load_weights(me)

        async def forward(batch):
            activations[batch] = await model.receive(me - 1) if me else model.get_activation([batch])
            out = model.forward(me, activations[batch], weights[me])
            if me == last:
                grad_activations[batch] = model.loss(out)
            else:
                await model.pass_to(me + 1, out)

        async def backward_input(batch):
            if me < last:
                grad_activations[batch] = await model.receive(me + 1)
            grad_in = model.backward_input(me, activations[batch], grad_activations[batch], weights[me])
            if me:
                await model.pass_to(me - 1, grad_in)

        def backward_weight(batch):
            grad = model.backward_weight(me, activations.pop(batch), grad_activations.pop(batch))
            grad_weights[me] = grad_weights[me] + grad if me in grad_weights else grad

        ahead = min(last - me, model.BATCHES)
        late = me  # with the forwards that it has not begun, a rank holds as many activations as rank 0
        for batch in range(ahead):
            await forward(batch)
        for batch in range(model.BATCHES):
            if batch + ahead < model.BATCHES:
                await forward(batch + ahead)
            await backward_input(batch)
            if batch >= late:
                backward_weight(batch - late)
        for batch in range(max(0, model.BATCHES - late), model.BATCHES):
            backward_weight(batch)

        weights[me], opt_states[me] = model.update(me, grad_weights[me], weights[me], opt_states[me])
        model.set_final_weight(me, weights[me])
        return model

    return (zb_h1,)


@app.cell
async def _(play, zb_h1):
    await play("zb_h1", zb_h1)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Start from your `one_f_one_b` with backward in two halves, one right after the other, and pass the gradient on between the two. How many steps is that, and where do ranks still wait?

    </details>

    <details><summary>Hint 2 of 4</summary>

    The bubble at the end is longest on rank 0, which waits for the last gradient. It comes sooner if ranks 1 to 3 do not stop for weight gradients on the way. They can make up for it when rank 0 is the one who has work.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Rank 0 keeps four activations because it is four forwards ahead. Rank 3 is only one ahead, so it has room for three that wait for their `backward_weight`. How many may wait on rank r?

    </details>

    <details><summary>Hint 4 of 4</summary>

    Let the weight gradients of rank `me` be `me` batches late: in the loop of 1F1B, after `backward_input(batch)`, call `backward_weight(batch - me)` if there is such a batch. After the loop come the last `me` of them. Pop the activation and its gradient in `backward_weight`, not before.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    With times F, I and W for a forward and the two halves, 1F1B's bubble is (K - 1)(F + I + W), and this one's is (K -
    1)(F + I - W): a third of it here. Every rank keeps the same number of activations: those that are ahead of their
    backward, and those that wait for their weight gradient. For these sizes a solver has shown that no schedule of 27
    steps needs less, if each rank has one layer, keeps the activations of that layer itself, and computes nothing twice.

    Zero-bubble pipelines split backward this way (Qi et al. 2024). In a matrix product the two halves cost the same,
    so the split is free; an automatic differentiation library has to be told to compute them separately. The paper
    also searches for schedules automatically, since real forwards and halves do not all take the same time.

    <details><summary>Sources</summary>

    - Penghui Qi, Xinyi Wan, Guangxing Huang, Min Lin (2024). Zero Bubble Pipeline Parallelism. ICLR 2024, [arXiv 2401.10241](https://arxiv.org/abs/2401.10241)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 16: No bubble between steps

    A single training step of this pipeline cannot take less than 27 steps of time: the last rank has to wait 3 for its
    first batch, and then has 24 to work. So ZB-H1 is as fast as possible. And yet each rank is idle for 3 of 27 steps,
    because it either begins late or ends early.

    But training has more than one step. Here are two, and no rank has to wait for the others between them: it updates
    its own layer and goes on. If all ranks worked for 24 steps without a pause, each beginning a step later than the
    one before it, the second training step would fit behind the first without a gap, and both would end at 51. You may
    keep seven activations on a rank.

    | costs `parts` | here | in the classics |
    |---|---|---|
    | `backward_input` | 1 step | not there |
    | `backward_weight` | 1 step | not there |
    | `pass_to` | 0 steps | 0.2 steps |
    | `receive` | 0 steps | 0.2 steps |
    | `update` | 0 steps | 0.5 steps |
    | an activation gradient | 8,192 elements | 131,072 elements |
    | training steps | 2 | 1 |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI1NTYiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMC03LCBpbiB0dXJuPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTMxNiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNMzI1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxwYXRoIGQ9Ik0zMTYgOTAuNFYxMjMuNm0tMyAtNGwzIDRsMyAtNE0zMjUgMTIzLjZWOTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNMzE2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTMyNSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSIzNDQiIHk9IjExMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmFjdGl2YXRpb25zIGRvd24sIGdyYWRpZW50cyB1cDwvdGV4dD48L3N2Zz4=)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 8 batches, 4 ranks | < 52 steps | < 1.9M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches, step=0)`: The model's input for some microbatches, such as [0] or range(4). Takes no time. Each `step` has batches of its own.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward_input(layer, inp, grad, weight)`: The half of backward that the layer before waits for: the gradient for backward_input(layer - 1).
    - `model.backward_weight(layer, inp, grad, weight=None)`: The other half: the weight gradient, any time later.
    - `await model.pass_to(rank, v)`: Sends any object; 0 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def zb_h2(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        me, last = model.rank, model.RANKS - 1
        weights[me], opt_states[me] = model.load_weights(me)

        async def forward(step, batch):
            activations[batch] = await model.receive(me - 1) if me else model.get_activation([batch], step)
            out = model.forward(me, activations[batch], weights[me])
            if me == last:
                grad_activations[batch] = model.loss(out)
            else:
                await model.pass_to(me + 1, out)

        async def backward_input(batch):
            if me < last:
                grad_activations[batch] = await model.receive(me + 1)
            grad_in = model.backward_input(me, activations[batch], grad_activations[batch], weights[me])
            if me:
                await model.pass_to(me - 1, grad_in)

        def backward_weight(batch):
            grad = model.backward_weight(me, activations.pop(batch), grad_activations.pop(batch))
            grad_weights[me] = grad_weights[me] + grad if me in grad_weights else grad

        ahead = min(2 * (last - me), model.BATCHES)
        late = 2 * me
        for step in range(model.dist.setting.steps):
            for batch in range(ahead):
                await forward(step, batch)
            for batch in range(model.BATCHES):
                if batch + ahead < model.BATCHES:
                    await forward(step, batch + ahead)
                await backward_input(batch)
                if batch >= late:
                    backward_weight(batch - late)
            for batch in range(max(0, model.BATCHES - late), model.BATCHES):
                backward_weight(batch)
            # No rank waits for another here: the next step begins where this one ends.
            weights[me], opt_states[me] = model.update(me, grad_weights.pop(me), weights[me], opt_states[me])

        model.set_final_weight(me, weights[me])
        return model

    return (zb_h2,)


@app.cell
async def _(play, zb_h2):
    await play("zb_h2", zb_h2)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Put your `zb_h1` into a loop over the steps. It takes 54 steps. Draw it: where does rank 0 wait, and for whom?

    </details>

    <details><summary>Hint 2 of 4</summary>

    A batch that leaves rank 0 goes forward through three other ranks and back through them: 6 steps. Rank 0 waits for it, unless it has enough other batches to take forward.

    </details>

    <details><summary>Hint 3 of 4</summary>

    From its own forward of batch 0 to its `backward_input`, rank 0 has time for 6 more forwards, rank 1 for 4. The ranks at the end have room for as many weight gradients that wait instead.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Both numbers of `zb_h1` double: `ahead = min(2 * (last - me), model.BATCHES)`, and `backward_weight` is `2 * me` batches late. After the batches of a step, update with `grad_weights.pop(me)`, and begin the next step.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    The bubble of this schedule is (K - 1)(F + I - 2W): nothing, if the three take the same time. The work of a
    training step is a parallelogram, each rank a step behind the one before, and those of several steps fit together
    without a gap. The price is memory: 2K - 1 activations on each rank instead of K. A single step gains nothing from
    it, which is why the puzzle has two.

    Qi et al. (2024) call this ZB-H2. Its parallelogram has a catch: optimizers often begin with something that all
    ranks must agree on, such as the norm of all gradients, by which they are clipped. That would stop every rank
    between two steps. The paper updates at once and checks afterwards, and takes the update back in the rare case that
    it was wrong.

    <details><summary>Sources</summary>

    - Penghui Qi, Xinyi Wan, Guangxing Huang, Min Lin (2024). Zero Bubble Pipeline Parallelism. ICLR 2024, [arXiv 2401.10241](https://arxiv.org/abs/2401.10241)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 17: A V of layers

    ZB-H2 pays for its missing bubble with twice the activations. The reason is the long way of a batch: it leaves
    rank 0, and comes back after every other rank has had it twice.

    Lay the layers in a V. Rank r has layer r on the way down and layer 7 - r on the way up. Rank 3 has layers 3 and 4,
    at the turn; rank 0 has the first layer and the last, so it computes the loss and begins the backward itself.
    Forward, input half and weight half take 1 step each. Each rank works 48 steps; rank 3 cannot begin before step 3,
    so 51 is the least that is possible. Reach it with eight activations on each rank, as many as 1F1B keeps on rank 0
    if a stage has two layers.

    | costs `parts` | here | in the classics |
    |---|---|---|
    | `backward_input` | 1 step | not there |
    | `backward_weight` | 1 step | not there |
    | `pass_to` | 0 steps | 0.2 steps |
    | `receive` | 0 steps | 0.2 steps |
    | `update` | 0 steps | 0.5 steps |
    | an activation gradient | 8,192 elements | 131,072 elements |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2OTciIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDggbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA4IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iMzI3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj40PC90ZXh0Pjx0ZXh0IHg9IjM2NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+NTwvdGV4dD48dGV4dCB4PSI0MDciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjY8L3RleHQ+PHRleHQgeD0iNDQ3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj43PC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtNywgaW4gdHVybjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjMxMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzNTAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjQzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjQzMCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHBhdGggZD0iTTQ3NiA1MC40VjgzLjZtLTMgLTRsMyA0bDMgLTRNNDg1IDgzLjZWNTAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDE8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjM2M1MDg5Ii8+PHJlY3QgeD0iMTkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjMxMCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzkwIiB5PSI3MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjOGFkNDRjIi8+PHJlY3QgeD0iMzkwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSI0MzAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHBhdGggZD0iTTQ3NiA5MC40VjEyMy42bS0zIC00bDMgNGwzIC00TTQ4NSAxMjMuNlY5MC40bS0zIDRsMyAtNGwzIDQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iIzQ0NTQ2YSIgc3Ryb2tlLXdpZHRoPSIxLjUiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyZTZlOGQiLz48cmVjdCB4PSIyMzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjMxMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMzUwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzUyYmU2OCIvPjxyZWN0IHg9IjM1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjM5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iNDMwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cGF0aCBkPSJNNDc2IDEzMC40VjE2My42bS0zIC00bDMgNGwzIC00TTQ4NSAxNjMuNlYxMzAuNG0tMyA0bDMgLTRsMyA0IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMS41Ii8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiMyNzhiOGEiLz48cmVjdCB4PSIyNzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIzMTAiIHk9IjE1MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjMjJhNjg0Ii8+PHJlY3QgeD0iMzEwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMzUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIzOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjQzMCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHRleHQgeD0iNTA0IiB5PSIxMTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzQ0NTQ2YSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5kb3duIGFuZCB1cCB0aGUgViwgYW5kIGJhY2s8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 8 layers, 8 batches, 4 ranks | < 52 steps | < 2.8M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward_input(layer, inp, grad, weight)`: The half of backward that the layer before waits for: the gradient for backward_input(layer - 1).
    - `model.backward_weight(layer, inp, grad, weight=None)`: The other half: the weight gradient, any time later.
    - `await model.pass_to(rank, v, tag=0)`: Sends any object; 0 steps for each value in it. Waits while its last message to `rank` is unread. Messages of different tags do not wait for each other.
    - `await model.receive(source=None, tag=0)`: A message from rank `source`, or the one sent first of all; 0 steps for each value in it, from when it has been sent. The k-th that was sent with a `tag` is the k-th received with it.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def zb_v(model: Model) -> Model:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        me, ranks = model.rank, model.RANKS
        down, up = my_layers = me, model.LAYERS - 1 - me
        for layer in my_layers:
            weights[layer], opt_states[layer] = model.load_weights(layer)
        done = {(action, layer): 0 for action in "FIW" for layer in my_layers}  # how many batches

        def tag(layer, batch):
            return layer * model.BATCHES + batch

        def owner(layer):
            return min(layer, model.LAYERS - 1 - layer)

        async def hand_on(storage, layer, batch, value):
            """To the rank of a layer, which at the turn of the V is this one."""
            if owner(layer) == me:
                storage[layer, batch] = value
            else:
                await model.pass_to(owner(layer), value, tag(layer, batch))

        async def take(storage, layer, batch, source):
            if owner(source) != me:
                storage[layer, batch] = await model.receive(owner(source), tag(layer, batch))

        def next_batch(action, layer):
            done[action, layer] += 1
            return done[action, layer] - 1

        async def forward(layer):
            batch = next_batch("F", layer)
            if layer == 0:
                activations[layer, batch] = model.get_activation([batch])
            else:
                await take(activations, layer, batch, layer - 1)
            out = model.forward(layer, activations[layer, batch], weights[layer])
            if layer == model.LAYERS - 1:
                grad_activations[layer, batch] = model.loss(out)
            else:
                await hand_on(activations, layer + 1, batch, out)

        async def backward_input(layer):
            batch = next_batch("I", layer)
            if layer < model.LAYERS - 1:
                await take(grad_activations, layer, batch, layer + 1)
            grad_in = model.backward_input(layer, activations[layer, batch], grad_activations[layer, batch], weights[layer])
            if layer > 0:
                await hand_on(grad_activations, layer - 1, batch, grad_in)

        def backward_weight(layer):
            batch = next_batch("W", layer)
            inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
            grad = model.backward_weight(layer, inp, grad_out)
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad

        # Fill the V: just as many batches that the first of them comes back when the last one has left.
        for _ in range(min(2 * (ranks - me) - 1, model.BATCHES)):
            await forward(down)
        for _ in range(me):
            await forward(up)
            if done["F", down] < model.BATCHES:
                await forward(down)
        for _ in range(ranks - me):
            await forward(up)
            await backward_input(up)
            backward_weight(up)
        # From here on, each of the two layers has one of everything in turn.
        while done["F", up] < model.BATCHES:
            if done["F", down] < model.BATCHES:
                await forward(down)
            await backward_input(down)
            backward_weight(down)
            await forward(up)
            await backward_input(up)
            backward_weight(up)
        # The ranks at the turn of the V are waited for: they send first, and compute weight gradients at the end.
        for _ in range(me):
            await backward_input(down)
            await backward_input(up)
        for _ in range(ranks - me):
            await backward_input(down)
            backward_weight(down)
        for layer in (up, down):
            while done["W", layer] < model.BATCHES:
                backward_weight(layer)

        for layer in my_layers:
            weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])
        return model

    return (zb_v,)


@app.cell
async def _(play, zb_v):
    await play("zb_v", zb_v)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Write `forward(layer, batch)`, `backward_input(layer, batch)` and `backward_weight(layer, batch)` first. A value for the layer after or before goes to `owner(...)` of that layer; if that is this rank, store it, and do not receive it.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Batch 0 needs 8 steps down and up the V. Meanwhile rank 0 can begin 7 batches, rank 1 has time for 5 before the first one comes back up, and rank 3 passes each batch to itself.

    </details>

    <details><summary>Hint 3 of 4</summary>

    After that, the pattern of every rank repeats with 6 steps: F, I and W of the layer `down`, then F, I and W of the layer `up`. Between the start and the pattern, the layer `up` catches up; at the end, the layer `down` does.

    </details>

    <details><summary>Hint 4 of 4</summary>

    Rank `me` of `ranks`, always with the next batch of each action: F `down` 2 (ranks - me) - 1 times; (F `up`, F `down`) `me` times; (F `up`, I `up`, W `up`) ranks - me times; then the pattern until no F `up` is left, without F `down` once there is none; (I `down`, I `up`) `me` times; (I `down`, W `down`) ranks - me times; and all W that are left.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Where layers lie decides what waits for what. In a V, activations of the early layers live long and those of the
    late layers live briefly, and each rank has one of both: so all ranks keep the same, 2K chunks of half the size,
    which is the memory of 1F1B. Backward begins on rank 0, just where 1F1B's bubble was largest. A single step takes K
    - 1 steps more than its work, and several steps follow each other without a gap, as in ZB-H2.

    ZB-V is the last schedule of the zero-bubble paper (Qi et al. 2024). In the same year, most of its authors built a
    family of such V's, "Pipeline Parallelism with Controllable Memory", which trade memory for time, down to a third of
    1F1B's activations. PyTorch has this order as `ScheduleZBVZeroBubble`, and remarks that the bubble is zero only if F, I
    and W take the same time.

    <details><summary>Sources</summary>

    - Penghui Qi, Xinyi Wan, Guangxing Huang, Min Lin (2024). Zero Bubble Pipeline Parallelism. ICLR 2024, [arXiv 2401.10241](https://arxiv.org/abs/2401.10241)
    - Penghui Qi, Xinyi Wan, Nyamdavaa Amar, Min Lin (2024). Pipeline Parallelism with Controllable Memory. NeurIPS 2024, [arXiv 2405.15362](https://arxiv.org/abs/2405.15362)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


if __name__ == "__main__":
    app.run()
