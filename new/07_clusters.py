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
    # Whole clusters

    A cluster has fast links and slow ones, and a large model needs more than one kind of parallelism. These puzzles put
    each kind on the links that can carry it. They build on `fsdp` and `gpipe` from **01_puzzles**.

    A puzzle says what is new in its setting, such as a price or a mesh, in a table below its task.
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
    ## Puzzle 24: 3D parallelism

    Eight ranks on a mesh of 2 x 2 x 2. `model.index("pp")` is a rank's place on an axis, and `model.axis("pp")` are the
    ranks that differ from it only there.

    The axis dp has two replicas. Each takes half of the batches, and in the end the gradients are summed over dp.

    The axis pp has two stages. Each has half of the layers; activations and gradients go to the neighbor with `pass_to`.

    The axis tp has two halves of every layer. A layer is a block of two matrices, and each rank keeps one of two shards
    of it. With a shard, `forward` takes half a step and makes a part of a sum; so does `backward`, for the gradient of the
    layer's input. Before the next layer the parts have to be added up: `allreduce` them over tp.

    A collective takes the axis as its group: `await model.allreduce(v, layer, group="tp")`. The layer's number is a label:
    the output of layer 3 is the activation of layer 4. Send batches one by one, and go back as soon as you can: one
    forward, one backward.

    | costs `twentieths` | here | in the classics |
    |---|---|---|
    | mesh | dp 2, pp 2, tp 2 | none |
    | a layer | two matrices that can be cut | one matrix |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2NDMiIGhlaWdodD0iMzU2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI4IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+OCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMC0xPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMTcuMDAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjx0ZXh0IHg9IjQ0IiB5PSI5MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAxPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI5MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaGVzIDAtMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iODcuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSI4Ny4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjI3MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMTcuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjExMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHRleHQgeD0iNDQiIHk9IjE3MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAzPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxNzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyMzAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjE2Ny4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNjcuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIyMTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgNDwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMjEwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMi0zPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTkwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTkwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMTcuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjE5MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjE5MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxOTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjE5MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjx0ZXh0IHg9IjQ0IiB5PSIyNTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgNTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoZXMgMi0zPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMjQ3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMTcuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjI0Ny4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIyMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIyNzAiIHk9IjIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjx0ZXh0IHg9IjQ0IiB5PSIyOTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgNjwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjE5MCIgeT0iMjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIgc3Ryb2tlLWRhc2hhcnJheT0iMiAzIi8+PHJlY3QgeD0iMjMwIiB5PSIyNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIyNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIxNy4wMCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMTcuMDAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMzMwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDc8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjMzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij48L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIiBzdHJva2UtZGFzaGFycmF5PSIyIDMiLz48cmVjdCB4PSIxOTAiIHk9IjMxMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiIHN0cm9rZS1kYXNoYXJyYXk9IjIgMyIvPjxyZWN0IHg9IjIzMCIgeT0iMzEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMzI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMTcuMDAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjMxMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMyNy4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjE3LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHBhdGggZD0iTTMxOCAzMGg4VjM0NGgtOCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjNDQ1NDZhIiBzdHJva2Utd2lkdGg9IjIiLz48dGV4dCB4PSIzMzYiIHk9IjE5MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjNDQ1NDZhIiB0ZXh0LWFuY2hvcj0ic3RhcnQiPnN1bXMgb3ZlciB0cCwgbWVzc2FnZXMgb3ZlciBwcCwgc3VtcyBvdmVyIGRwPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 4 batches, 8 ranks | < 12 steps | < 1.2M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches)`: The model's input for some microbatches, such as [0] or range(4). Takes no time.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch. Of a block, shards of the weight yield parts of a sum, in as much less time.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch. Of a block, shards take as much less time, and the gradient for backward(layer - 1) is a part of a sum.
    - `await model.allreduce(v, layer, group=None)`: The sum of every rank's `v`, for everyone; 0.3 steps after the last rank has joined. Of a block it also sums parts of activations and of their gradients. Of a `group` only its ranks take part: an axis of the mesh, several axes as a tuple, or ranks such as [0, 2].
    - `await model.pass_to(rank, v)`: Sends any object; 0.2 steps for each value in it. Waits while its last message to `rank` is unread.
    - `await model.receive(source=None)`: A message from rank `source`, or the one sent first of all; 0.2 steps for each value in it, from when it has been sent.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def three_d(model: Model) -> Model:
        """Two replicas of a pipeline of two stages, and every layer on two ranks."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        pipeline, stage, half = model.axis("pp"), model.index("pp"), model.index("tp")
        per_stage, per_replica = model.LAYERS // len(pipeline), model.BATCHES // len(model.axis("dp"))
        my_layers = range(stage * per_stage, (stage + 1) * per_stage)
        my_batches = range(model.index("dp") * per_replica, (model.index("dp") + 1) * per_replica)
        for layer in my_layers:
            weights[layer], opt_states[layer] = model.load_weights(layer, half, len(model.axis("tp")))

        # ----- your code -----
        # Batches through the pipeline, with sums over tp in every layer; sums of the gradients over dp; updates.

        # ----- end of your code -----

        for layer in my_layers:
            model.set_final_weight(layer, weights[layer])
        return model

    return (three_d,)


@app.cell
async def _(play, three_d):
    await play("three_d", three_d)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Take `gpipe`, with `pipeline[stage + 1]` and `pipeline[stage - 1]` in place of `model.rank + 1` and `model.rank - 1`. Both ranks of a tp pair send and receive the same.

    </details>

    <details><summary>Hint 2 of 4</summary>

    After each forward: `activations[layer + 1, batch] = await model.allreduce(part, layer + 1, group="tp")`. After each backward the same for the gradient, with `layer - 1`. The gradient of the weight is complete: it is a shard of two, and needs no sum over tp.

    </details>

    <details><summary>Hint 3 of 4</summary>

    Nobody needs the gradient of the model's input, so leave out its sum. Add up the weight gradients of your batches with `+`, and sum them over dp once, at the end.

    </details>

    <details><summary>Hint 4 of 4</summary>

    The order: stage 0 forwards its first batch, then alternates one forward and one backward; stage 1 does one forward and one backward from the start. Write two functions, `forward(batch)` and `backward(batch)`; the number of forwards ahead is `len(pipeline) - stage - 1`. Delete every part right after its sum, or put it under a key such as `activations["part"]`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Each axis has its own traffic. Tensor parallelism sums activations in every layer, all the time, so it needs the
    fastest links. Data parallelism sums gradients once a step. Pipelines send the least: an activation and its gradient
    at the border of two stages. That is why tp goes inside a machine, and pp and dp go between machines.

    Megatron-LM combines the three for models of up to a trillion parameters, with tensor parallelism inside a server and
    pipelines across servers (Narayanan et al. 2021). Splitting a block so that it takes one sum forward and one sum
    backward is from Shoeybi et al. (2019).

    <details><summary>Sources</summary>

    - Deepak Narayanan, Mohammad Shoeybi, Jared Casper et al. (2021). Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM. SC21, [arXiv 2104.04473](https://arxiv.org/abs/2104.04473)
    - Mohammad Shoeybi, Mostofa Patwary, Raul Puri et al. (2019). Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism. [arXiv 1909.08053](https://arxiv.org/abs/1909.08053)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Puzzle 25: Hybrid sharding

    Eight ranks in two machines of four. Inside a machine a collective takes 0.3 steps, as you know it. If its ranks
    are in both machines, it takes 1.2.

    `fsdp` over all eight ranks would gather every weight twice from both machines. Shard inside each machine instead:
    each has the whole model, in four shards. Ranks 0 to 3 are one machine, 4 to 7 the other. The mesh has two axes:
    `group="shard"` are the four ranks of a machine, and `group="replica"` are the two ranks that keep the same shard,
    one in each machine.

    The gradients of one machine cover only its four batches, so the shards still have to be summed between machines.
    That is one slow call for each layer, instead of three.

    | costs `islands` | here | in the classics |
    |---|---|---|
    | `allgather` | 0.3 steps (1.2 between machines) | 0.3 steps |
    | `scatterreduce` | 0.3 steps (1.2 between machines) | 0.3 steps |
    | `allreduce` | 0.3 steps (1.2 between machines) | 0.3 steps |
    | machines | 4 ranks each | one |
    | mesh | replica 2, shard 4 | none |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2NjgiIGhlaWdodD0iMzU2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI4IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDQgbGF5ZXJzIj48dGl0bGU+OCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiA0IGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjI0NyIgeT0iMjMuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9Im1pZGRsZSI+MjwvdGV4dD48dGV4dCB4PSIyODciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPjM8L3RleHQ+PHRleHQgeD0iNDQiIHk9IjUwLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDA8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjUwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDA8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSI5MC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAxPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI5MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAxPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzguNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSI3MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9Ijc4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSI3OC41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMTMwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDI8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjEzMC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAyPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMTI3LjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIxNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIxNzUuNTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHRleHQgeD0iNDQiIHk9IjIxMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayA0PC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIyMTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggNDwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjE5MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjE5MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjE5MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjE5MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjE5MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjE5MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjE5MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjE5MC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48dGV4dCB4PSI0NCIgeT0iMjUwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiMxZjI5MzMiIHRleHQtYW5jaG9yPSJlbmQiIGZvbnQtd2VpZ2h0PSJib2xkIj5yYW5rIDU8L3RleHQ+PHRleHQgeD0iNTIiIHk9IjI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCA1PC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE1MCIgeT0iMjM4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE5MCIgeT0iMjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMjM4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzJhNzg4ZSIvPjxyZWN0IHg9IjIzMCIgeT0iMjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjIzMCIgeT0iMjM4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iIzQxYjY3MiIvPjxyZWN0IHg9IjI3MCIgeT0iMjMwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9IiNmNWY3ZjkiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjI3MCIgeT0iMjM4LjUwIiB3aWR0aD0iMzQiIGhlaWdodD0iOC41MCIgZmlsbD0iI2Q2ZTAzMiIvPjx0ZXh0IHg9IjQ0IiB5PSIyOTAuOSIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgNjwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMjkwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDY8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIyNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTUwIiB5PSIyODcuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTkwIiB5PSIyNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIyODcuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjMmE3ODhlIi8+PHJlY3QgeD0iMjMwIiB5PSIyNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjMwIiB5PSIyODcuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjNDFiNjcyIi8+PHJlY3QgeD0iMjcwIiB5PSIyNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0iI2Y1ZjdmOSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMjcwIiB5PSIyODcuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSI4LjUwIiBmaWxsPSIjZDZlMDMyIi8+PHRleHQgeD0iNDQiIHk9IjMzMC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayA3PC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIzMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggNzwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjMxMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxNTAiIHk9IjMzNS41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxOTAiIHk9IjMxMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIxOTAiIHk9IjMzNS41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiMyYTc4OGUiLz48cmVjdCB4PSIyMzAiIHk9IjMxMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyMzAiIHk9IjMzNS41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiM0MWI2NzIiLz48cmVjdCB4PSIyNzAiIHk9IjMxMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSIjZjVmN2Y5IiBzdHJva2U9IiNiOWMyY2QiLz48cmVjdCB4PSIyNzAiIHk9IjMzNS41MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjguNTAiIGZpbGw9IiNkNmUwMzIiLz48cGF0aCBkPSJNMzE4IDMwaDhWMzQ0aC04IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjx0ZXh0IHg9IjMzNiIgeT0iMTkwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM0NDU0NmEiIHRleHQtYW5jaG9yPSJzdGFydCI+d2VpZ2h0cyB3aXRoaW4gYSBtYWNoaW5lLCBzdW1zIG9mIHNoYXJkcyBiZXR3ZWVuPC90ZXh0Pjwvc3ZnPg==)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 4 layers, 8 batches, 8 ranks | < 18 steps | < 1.5M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `await model.allgather(v, layer, group=None)`: Every rank's shards joined, for everyone; 0.3 steps (1.2 between machines) after the last rank has joined.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `await model.scatterreduce(v, layer, group=None)`: The sum of every rank's whole `v`, of which this rank gets shard `rank` of RANKS (reduce-scatter); 0.3 steps (1.2 between machines) after the last rank has joined. In a group it gets the shard of its place there.
    - `await model.allreduce(v, layer, group=None)`: The sum of every rank's `v`, for everyone; 0.3 steps (1.2 between machines) after the last rank has joined. Of a `group` only its ranks take part: an axis of the mesh, several axes as a tuple, or ranks such as [0, 2].
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def hybrid_shard(model: Model) -> Model:
        """Fully sharded inside a machine, replicated between machines."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        activations[0] = model.get_activation([model.rank])
        place, places = model.index("shard"), len(model.axis("shard"))
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, place, places)

        # ----- your code -----
        # As in fsdp, with a group for every collective, and one more sum before the update.

        # ----- end of your code -----

        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
        return model

    return (hybrid_shard,)


@app.cell
async def _(hybrid_shard, play):
    await play("hybrid_shard", hybrid_shard)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Start from `fsdp`, and give every collective `group="shard"`. What is then missing before the update?

    </details>

    <details><summary>Hint 2 of 4</summary>

    After the scatter, a rank has its shard of the gradient of four batches. The same shard of the other four batches is on one rank of the other machine: the group "replica".

    </details>

    <details><summary>Hint 3 of 4</summary>

    Make that sum with `allreduce`, and make it of the shards, after the scatter: a quarter of the bytes goes between the machines.

    </details>

    <details><summary>Hint 4 of 4</summary>

    In the update loop: `grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="replica")`, then the update. In the loops above it, delete whole weights, activations and gradients as in `fsdp`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    How far to shard is a choice of its own. Sharding over more ranks saves memory, but every gather crosses the slowest
    link between them. Sharding inside a machine keeps the frequent calls on fast links, and leaves one sum of small
    shards for the slow ones. A reduce-scatter inside and an all-reduce between is an all-reduce over all, in two levels.

    PyTorch FSDP calls this hybrid sharding, HYBRID_SHARD (Zhao et al. 2023): the sharding factor lies between one, which
    is DDP, and the number of ranks, which is full sharding as in ZeRO (Rajbhandari et al. 2020). Usually it is the number
    of devices in a machine.

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
    ## Puzzle 26: Local SGD

    Four ranks far apart: an all-reduce takes 4 steps of the clock, as long as a forward and a backward of the whole
    model. There are four training steps, each with batches of its own: `get_activation([model.rank], step)`. `ddp` would
    sum every gradient in every step, and take 51.5.

    Here a rank may update with the gradient of its own batch alone. Its weights then are a replica of their own, and
    drift away from the others'. `allreduce` of weights makes their average. The final weights have to be an average over
    all ranks that covers every step.

    How often do the ranks have to communicate? The fewer averages, the less time.

    | costs `slow` | here | in the classics |
    |---|---|---|
    | `allreduce` | 4 steps | 0.3 steps |
    | training steps | 4 | 1 |
    | the task | to train replicas, whose weights are averaged | to train on every batch |

    ![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI0MTQiIGhlaWdodD0iMTk2IiBmb250LWZhbWlseT0iJ0hlbHZldGljYSBOZXVlJyxIZWx2ZXRpY2EsQXJpYWwsc2Fucy1zZXJpZiIgcm9sZT0iaW1nIiBhcmlhLWxhYmVsPSI0IHJhbmtzLCBhbmQgd2hhdCBlYWNoIGtlZXBzIG9mIDIgbGF5ZXJzIj48dGl0bGU+NCByYW5rcywgYW5kIHdoYXQgZWFjaCBrZWVwcyBvZiAyIGxheWVyczwvdGl0bGU+PHJlY3Qgd2lkdGg9IjEwMCUiIGhlaWdodD0iMTAwJSIgcng9IjYiIGZpbGw9IiNmZmYiLz48dGV4dCB4PSIxNjciIHk9IjIzLjkiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJtaWRkbGUiPmxheWVyIDA8L3RleHQ+PHRleHQgeD0iMjA3IiB5PSIyMy45IiBmb250LXNpemU9IjExIiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ibWlkZGxlIj4xPC90ZXh0Pjx0ZXh0IHg9IjQ0IiB5PSI1MC45IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAwPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSI1MC4zIiBmb250LXNpemU9IjkuNSIgZmlsbD0iIzVhNjY3NSIgdGV4dC1hbmNob3I9InN0YXJ0Ij5iYXRjaCAwPC90ZXh0PjxyZWN0IHg9IjE1MCIgeT0iMzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIzMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjZDZlMDMyIi8+PHJlY3QgeD0iMTkwIiB5PSIzMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48dGV4dCB4PSI0NCIgeT0iOTAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMTwvdGV4dD48dGV4dCB4PSI1MiIgeT0iOTAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMTwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjcwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiM0MjJkNzUiLz48cmVjdCB4PSIxNTAiIHk9IjcwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iNzAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjE5MCIgeT0iNzAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHRleHQgeD0iNDQiIHk9IjEzMC44IiBmb250LXNpemU9IjExIiBmaWxsPSIjMWYyOTMzIiB0ZXh0LWFuY2hvcj0iZW5kIiBmb250LXdlaWdodD0iYm9sZCI+cmFuayAyPC90ZXh0Pjx0ZXh0IHg9IjUyIiB5PSIxMzAuMyIgZm9udC1zaXplPSI5LjUiIGZpbGw9IiM1YTY2NzUiIHRleHQtYW5jaG9yPSJzdGFydCI+YmF0Y2ggMjwvdGV4dD48cmVjdCB4PSIxNTAiIHk9IjExMC4wMCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0LjAwIiBmaWxsPSIjNDIyZDc1Ii8+PHJlY3QgeD0iMTUwIiB5PSIxMTAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjYjljMmNkIi8+PHJlY3QgeD0iMTkwIiB5PSIxMTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iI2Q2ZTAzMiIvPjxyZWN0IHg9IjE5MCIgeT0iMTEwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjx0ZXh0IHg9IjQ0IiB5PSIxNzAuOCIgZm9udC1zaXplPSIxMSIgZmlsbD0iIzFmMjkzMyIgdGV4dC1hbmNob3I9ImVuZCIgZm9udC13ZWlnaHQ9ImJvbGQiPnJhbmsgMzwvdGV4dD48dGV4dCB4PSI1MiIgeT0iMTcwLjMiIGZvbnQtc2l6ZT0iOS41IiBmaWxsPSIjNWE2Njc1IiB0ZXh0LWFuY2hvcj0ic3RhcnQiPmJhdGNoIDM8L3RleHQ+PHJlY3QgeD0iMTUwIiB5PSIxNTAuMDAiIHdpZHRoPSIzNCIgaGVpZ2h0PSIzNC4wMCIgZmlsbD0iIzQyMmQ3NSIvPjxyZWN0IHg9IjE1MCIgeT0iMTUwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2I5YzJjZCIvPjxyZWN0IHg9IjE5MCIgeT0iMTUwLjAwIiB3aWR0aD0iMzQiIGhlaWdodD0iMzQuMDAiIGZpbGw9IiNkNmUwMzIiLz48cmVjdCB4PSIxOTAiIHk9IjE1MCIgd2lkdGg9IjM0IiBoZWlnaHQ9IjM0IiBmaWxsPSJub25lIiBzdHJva2U9IiNiOWMyY2QiLz48cGF0aCBkPSJNMjM4IDMwaDhWMTg0aC04IiBmaWxsPSJub25lIiBzdHJva2U9IiM0NDU0NmEiIHN0cm9rZS13aWR0aD0iMiIvPjx0ZXh0IHg9IjI1NiIgeT0iMTEwLjgiIGZvbnQtc2l6ZT0iMTEiIGZpbGw9IiM0NDU0NmEiIHRleHQtYW5jaG9yPSJzdGFydCI+d2VpZ2h0cyBhcmUgYXZlcmFnZWQ8L3RleHQ+PC9zdmc+)

    | model and ranks | target time | target memory |
    |---|---|---|
    | 2 layers, 4 batches, 4 ranks | < 25 steps | < 1.5M elements on any rank |

    <details><summary>The calls you may need</summary>

    - `model.get_activation(batches, step=0)`: The model's input for some microbatches, such as [0] or range(4). Takes no time. Each `step` has batches of its own.
    - `model.forward(layer, inp, weight)`: The input of the next layer; 1 step for each batch.
    - `model.loss(inp)`: The gradient of the loss at the last layer's output, labelled LAYERS - 1. Takes no time.
    - `model.backward(layer, inp, grad, weight)`: The layer's weight gradient, and the gradient for backward(layer - 1); 1 step for each batch.
    - `model.update(layer, weight_grad, weight, opt_state)`: The weight and optimizer state after the step, of the shards that `weight` holds; 0.5 steps.
    - `await model.allreduce(v, layer)`: The sum of every rank's `v`, for everyone; 4 steps after the last rank has joined. It averages the weights of local replicas.

    </details>
    """)
    return


@app.cell
def _(Model):
    async def local_sgd(model: Model) -> Model:
        """Four steps of training on each rank alone, and an average of the weights."""
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()

        steps = model.dist.setting.steps
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)

        # ----- your code -----
        # In every step forward, loss, backward and update, on this rank's batch; at the end, average the weights.

        # ----- end of your code -----

        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
        return model

    return (local_sgd,)


@app.cell
async def _(local_sgd, play):
    await play("local_sgd", local_sgd)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    Stuck? Here are hints, from a nudge to the full idea:

    <details><summary>Hint 1 of 4</summary>

    Write the training step of `basic` for one batch, and put it into a loop over the steps.

    </details>

    <details><summary>Hint 2 of 4</summary>

    Update right after each backward. The weight's gradient is gone before the next one is made.

    </details>

    <details><summary>Hint 3 of 4</summary>

    The model's input can be had again at any time. Delete it after the first forward, and call `get_activation([model.rank], step)` again before the backward of layer 0.

    </details>

    <details><summary>Hint 4 of 4</summary>

    In each step: forward through all layers; loss; for each layer from the last: backward, delete its input and the gradient it used (after layer 0 also `grad_activations[0]`), update. After all steps, for each layer: `weights[layer] = await model.allreduce(weights[layer], layer)`.

    </details>
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ### What you have built, and how real systems do it

    Averaging weights every H steps sends H times less than summing gradients in every step. With H = 1 and plain SGD it
    is the same as averaging the gradients. With a larger H it is not: between two averages each replica follows its own
    batches. How large H may be depends on the task and on the step size. The clock only shows what it saves.

    Stich (2019) proves that local SGD converges as fast as mini-batch SGD on convex problems, with far fewer rounds of
    communication. DiLoCo (Douillard et al. 2023) trains language models on islands that are poorly connected: each
    makes many steps with AdamW, and an outer optimizer with momentum applies the averaged change. With eight workers they
    report 500 times less communication.

    <details><summary>Sources</summary>

    - Sebastian U. Stich (2019). Local SGD Converges Fast and Communicates Little. ICLR 2019, [arXiv 1805.09767](https://arxiv.org/abs/1805.09767)
    - Arthur Douillard, Qixuan Feng, Andrei A. Rusu et al. (2023). DiLoCo: Distributed Low-Communication Training of Language Models. [arXiv 2311.08105](https://arxiv.org/abs/2311.08105)
    - After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles

    </details>
    """)
    return


if __name__ == "__main__":
    app.run()
