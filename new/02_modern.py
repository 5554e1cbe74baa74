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
    # Tour: from GPipe to zero bubble

    How did pipelines get from GPipe to schedules that hardly wait? This tour plays the steps in between, each one on the
    same runtime as your own solutions. Run the cells from top to bottom, then change a number and run a cell again. Each
    section asks a question; think about it before you read on.
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
    from drawing import draw
    from lib import Setting, inflight, referee, run_async
    from lib.bounds import pipeline_time_bound
    from lib.recognition import recognize
    from lib.schedules import (
        Timetable,
        ddp,
        fsdp_prefetch,
        gpipe,
        interleaved,
        one_f_one_b,
        pipeline,
        zb_h1,
        zb_h2,
        zb_v,
        zero3,
    )
    from puzzles import play
    from puzzles.catalog.schedule_papers import with_papers

    return (
        Setting,
        Timetable,
        ddp,
        draw,
        fsdp_prefetch,
        gpipe,
        inflight,
        interleaved,
        one_f_one_b,
        pipeline,
        pipeline_time_bound,
        play,
        recognize,
        referee,
        run_async,
        with_papers,
        zb_h1,
        zb_h2,
        zb_v,
        zero3,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    `lib.schedules` has the textbook schedules for any size. An *order* such as `one_f_one_b` says what each rank
    computes, one operation after the other; `pipeline` plays it. In the next cell, `measure` runs an order and prints
    what it took, and `show` also draws it in the style of the papers: a colour for each microbatch, pale in forward and
    full in backward.
    """)
    return


@app.cell
def _(
    Setting,
    draw,
    inflight,
    pipeline,
    pipeline_time_bound,
    recognize,
    referee,
    run_async,
    with_papers,
):
    async def measure(order, layers=4, batches=8, ranks=4, costs="stages", steps=1, **sizes):
        setting = Setting(costs=costs, steps=steps)
        trace = (await run_async(pipeline(order, **sizes), layers, batches, ranks, setting=setting)).trace
        report, found = referee(trace), recognize(trace)
        best = pipeline_time_bound(trace.size, setting, found.stages).least
        print(f"This is {with_papers(found)}.")
        print(f"{report.timesteps:g} steps; no pipeline with these stages needs less than {best:g}.")
        print(f"{report.bubble:.1%} of the time is idle. In flight on each rank: {inflight(trace, chunk=1)}")
        return trace


    async def show(order, colour="microbatch", **game):
        return draw(await measure(order, **game), colour=colour)

    return measure, show


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## GPipe: fill the pipeline

    Four ranks hold one layer each. A forward takes 1 step, a backward 2, and messages are free. The number in a box is
    its microbatch. *Which part of the time is idle, and what makes it smaller?*
    """)
    return


@app.cell
async def _(gpipe, show):
    await show(gpipe, batches=8)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    The last rank starts late and the first one has to wait for it: a *ramp* up and down, as long as the work of p - 1
    microbatches on p ranks. With m microbatches the idle share is (p - 1) / (m + p - 1). Try 32 microbatches.

    *What does that cost?* The last line shows it: all 8 microbatches are *in flight* at once. Their forward is done,
    their backward is still to come, and their activations have to be kept.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## 1F1B: one forward, one backward

    *Does a rank have to finish all forwards before its first backward?* No. As soon as a gradient can arrive, a rank
    alternates between forward and backward.
    """)
    return


@app.cell
async def _(one_f_one_b, show):
    await show(one_f_one_b, batches=8)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    The time is the same, because the ramp is the same. But rank 0 holds 4 microbatches, as many as there are ranks, and
    no longer all of them. Try 32 microbatches again: the memory stays, so the bubble can shrink as far as your batch
    allows.

    For GPipe and for 1F1B the second line says that no order of whole backwards is faster. *What would have to change?*
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Interleaved: shorter stages

    The ramp is as long as a stage is deep. Take a model of 8 layers. First every rank has two neighbouring layers:
    """)
    return


@app.cell
async def _(measure, one_f_one_b):
    _trace = await measure(one_f_one_b, layers=8)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Now a rank has two *chunks* of one layer each, and every microbatch passes each rank twice. A bar at the bottom of a
    box marks the second chunk, and the small letters name the layer.
    """)
    return


@app.cell
async def _(interleaved, show):
    await show(interleaved, layers=8, v=2)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    The run takes 57 steps and not 66, because a ramp of shallower stages is half as long. *What is the price?* There are
    more messages, and more is in flight: the last line counts activations of a layer, and rank 0 keeps 11 of them, where
    it kept 8. Try `layers=16, v=4`.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## ZB-H1: cut backward in two

    A backward computes two things: the gradient of the input, which the previous rank waits for, and the gradient of the
    weights, which only the update needs. In the costs `parts` they are two operations of 1 step each, I and W. Colours
    now show the operation: forward blue, I green, W orange. *Where would you put the W?*
    """)
    return


@app.cell
async def _(show, zb_h1):
    await show(zb_h1, costs="parts", colour="operation")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Where a rank would wait. The run takes 27 steps and not 33, with as much in flight on rank 0 as 1F1B. (Others hold as
    much as rank 0 now, because what W needs has to be kept for longer.)
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## ZB-H2: no bubble between steps

    *Can the rest of the bubble go too?* If the first ranks run more forwards before their first backward, a rank is busy
    from its first operation to its last:
    """)
    return


@app.cell
async def _(show, zb_h2):
    await show(zb_h2, costs="parts", colour="operation")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    It still takes 27 steps! A rank does not wait any more, but it begins late or ends early. That pays only where the
    next training step can begin in that time. Play two steps, first with ZB-H1 and then with ZB-H2:
    """)
    return


@app.cell
async def _(measure, zb_h1):
    _trace = await measure(zb_h1, costs='parts', steps=2)
    return


@app.cell
async def _(show, zb_h2):
    await show(zb_h2, costs="parts", steps=2, colour="operation")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    51 steps and not 54, for 7 microbatches in flight instead of 4. Every further step saves the same again. Try
    `steps=4`.

    *How can an optimizer step begin before all ranks have ended the last one?* Each rank updates its own layer when its
    own gradient is complete. What needs all ranks, such as clipping by the global norm, has to be checked afterwards.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## ZB-V: no bubble, and no more memory

    ZB-H2 pays with memory, most of it on ranks that wait longest for their first gradient. *Who gets a gradient soonest?*
    The rank with the last layer. So let rank 0 have the first chunk **and** the last one: the model runs down the ranks
    and back up, like a V.
    """)
    return


@app.cell
async def _(show, zb_v):
    await show(zb_v, layers=8, costs="parts")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Compare with 1F1B on the same 8 layers: 51 steps and not 66, and the most in flight on any rank is 8 activations of a
    layer in both. Set `colour="operation"` to see how W fills the gaps.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Write your own

    A timetable is text: a line for each rank, in order. `1F0` is the forward of stage 1 for microbatch 0. This one is
    1F1B for two ranks and four microbatches. Move a cell and run it again. *Which cells can trade places, and which make
    everybody wait forever?*
    """)
    return


@app.cell
async def _(Timetable, show):
    mine = Timetable.read("""
    0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
    1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
    """)
    await show(mine, layers=2, batches=4, ranks=2)
    return (mine,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    With one more forward before the first backward, it is told apart:
    """)
    return


@app.cell
async def _(Timetable, measure):
    late = Timetable.read('\n0F0 0F1 0F2 0B0 0B1 0F3 0B2 0B3\n1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n')
    _trace = await measure(late, layers=2, batches=4, ranks=2)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    `play` takes any schedule at any size, with its errors, its peak and its picture:
    """)
    return


@app.cell
async def _(mine, pipeline, play):
    await play(pipeline(mine), size=(2, 4, 2), costs="stages", colour="microbatch")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## And without a pipeline?

    Data parallel ranks wait for communication. In the costs `overlap` it runs beside computation. Each rank has a quarter
    of the microbatches. DDP keeps all weights on every rank, FSDP (ZeRO-3) keeps a shard and gathers a layer when it
    needs it. *Can FSDP be as fast as DDP?*
    """)
    return


@app.cell
async def _(
    Setting,
    ddp,
    draw,
    fsdp_prefetch,
    recognize,
    referee,
    run_async,
    zero3,
):
    async def compare(*schedules, layers=4, batches=4, ranks=4):
        for schedule in schedules:
            trace = (await run_async(schedule, layers, batches, ranks, setting=Setting(costs="overlap"))).trace
            report = referee(trace)
            print(f"{recognize(trace).text}:")
            print(f"    {report.timesteps:g} steps, {report.bubble:.1%} idle, peak {report.peak.memory:,} elements")
        return draw(trace, colour="operation")


    await compare(ddp, zero3, fsdp_prefetch)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Almost. Gathering a layer only when it is needed leaves a third of the time idle. Gathering the next one while this
    one computes hides that, for the memory of one more layer, and needs about half of DDP's memory. The picture shows it:
    below each rank is what it communicates.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Now you

    The notebooks from **03_memory** to **07_clusters** have these schedules as puzzles. What you write there is
    recognized in the same way. `play(..., colour="microbatch")` draws it as here.
    """)
    return


if __name__ == "__main__":
    app.run()
