"""A timetable as the code of a coroutine that plays it, with the same operations as `pipeline`.

A graded schedule cannot use `lib.pipelines`, so the code imports only `Model`, and its templates repeat what `player`
does. They hold what the game needs: no other axes of a mesh, and no tags where messages keep their places.

This module decides how a timetable is written, not whether it can be played. Cells that start together are not
written, nor recomputation, older weights and token shares: these need `pipeline`.
"""

from collections.abc import Mapping

from lib import CLASSIC_SETTING, RuleError, Setting, Size
from lib.ledger.algebra import counted

from .player import Axes, axes_of
from .timetable import Timetable, by_stream, untagged

CODE = '''\
import re

from lib import Model

# For each rank what it computes, in order: 2F5 is the forward of microbatch 5 through stage 2.
ROWS = """\\
{rows}"""


async def {name}(model: Model) -> Model:
    """Plays the timetable above."""
    if (model.LAYERS, model.BATCHES, model.RANKS) != ({layers}, {batches}, {ranks}):
        raise ValueError("this timetable is for {layers} layers, {batches} batches and {ranks} ranks")
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    rows = [re.findall(r"(\\d+)([FBIW])(\\d+)", row) for row in ROWS.splitlines()]
    rank_of = {{int(stage): {rank} for rank, row in enumerate(rows) for stage, _, _ in row}}
    my_layers = [layer for layer in range(model.LAYERS) if rank_of[layer // {depth}] == model.rank]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer{shard})

    def layers_of(stage):
        return range(stage * {depth}, (stage + 1) * {depth})

    async def take(values, layer, batch, source{tag_given}):
        """What the stage `source` made, unless it is on this rank and stored it."""
        if source in rank_of and rank_of[source] != model.rank:
            values[layer, batch] = await model.receive(rank_of[source]{tag_used})

    async def hand_on(values, layer, batch, value, target{tag_given}):
        if rank_of[target] == model.rank:
            values[layer, batch] = value
        else:
            await model.pass_to(rank_of[target], value{tag_used})

    def add(key, new):
        grad_weights[key] = grad_weights[key] + new if key in grad_weights else new

    async def forward(stage, batch):
        layers = layers_of(stage)
        if stage == 0:
            activations[0, batch] = model.get_activation([{first}batch]{step})
        await take(activations, layers.start, batch, stage - 1{tag_forward_in})
        for layer in layers:
            out = model.forward(layer, activations[layer, batch], weights[{whole}])
{sum_forward}            if layer + 1 < layers.stop:
                activations[layer + 1, batch] = out
        if layers.stop == model.LAYERS:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await hand_on(activations, layers.stop, batch, out, stage + 1{tag_forward_out})

{use}{backward}
    for step in range({steps}):
        for stage, action, batch in rows[{place}]:
{before}            await {actions}[action](int(stage), int(batch))
{after}        for layer in my_layers:
            grad = grad_weights.pop(layer)
{sum_replicas}\
            weights[layer], opt_states[layer] = model.update(layer, grad, weights[layer], opt_states[layer])
    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
'''

WHOLE = """\
    async def backward(stage, batch):
        layers = layers_of(stage)
        await take(grad_activations, layers.stop - 1, batch, stage + 1{tag_backward_in})
        grad = grad_activations.pop((layers.stop - 1, batch))
        for layer in reversed(layers):
            new, grad = model.backward(layer, activations.pop((layer, batch)), grad, weights[{whole}])
            add({key}, new)
{sum_backward}        if stage:
            await hand_on(grad_activations, layers.start - 1, batch, grad, stage - 1{tag_backward_out})
"""

HALVES = """\
    async def backward_input(stage, batch):
        layers = layers_of(stage)
        await take(grad_activations, layers.stop - 1, batch, stage + 1{tag_backward_in})
        for layer in reversed(layers):
            grad = model.backward_input(
                layer, activations[layer, batch], grad_activations[layer, batch], weights[{whole}]
            )
            if layer > layers.start:
                grad_activations[layer - 1, batch] = grad
        if stage:
            await hand_on(grad_activations, layers.start - 1, batch, grad, stage - 1{tag_backward_out})

    async def backward_weight(stage, batch):
        for layer in reversed(layers_of(stage)):
            grad = grad_activations.pop((layer, batch))
            add({key}, model.backward_weight(layer, activations.pop((layer, batch)), grad))
"""


USE = '''\
    async def use(stage):
        """Of the stage before, scatters the gradients and drops the weights; gathers the weights of this one."""
        nonlocal gathered
        if stage == gathered:
            return
        for layer in layers_of(gathered) if gathered is not None else ():
            if (new := grad_weights.pop(("whole", layer), None)) is not None:
                add(layer, await model.scatterreduce(new, layer, group="dp"))
            del weights["whole", layer]
        for layer in layers_of(stage) if stage is not None else ():
            weights["whole", layer] = await model.allgather(weights[layer], layer, group="dp")
        gathered = stage

    gathered = None

'''


def code_of(table: Timetable, name: str, size: Size, setting: Setting = CLASSIC_SETTING, sharded: bool = False) -> str:
    """The source of a coroutine `name` for a game of this size and setting. It runs like `pipeline(table)`, with the
    same meaning of `sharded`.

    Raises:
        RuleError: it cannot be played in this game; slots of several cells need `pipeline`.
    """
    axes = axes_of(setting, size.ranks)
    batches = size.batches / axes.dp
    if (table.ranks, table.batches) != (axes.pp, batches) or size.layers % table.stages:
        raise RuleError(
            f"this timetable has {counted(table.ranks, 'rank')}, {counted(table.batches, 'microbatch')} and "
            f"{counted(table.stages, 'stage')}; the game has {axes.pp}, {batches:g} and {counted(size.layers, 'layer')}"
        )
    if any(len(slot) > 1 for row in table.rows for slot in row):
        raise RuleError("cells that start together cannot be written as code; put one after the other")
    if table.tag is not untagged and setting == CLASSIC_SETTING:
        raise RuleError(
            "this order needs messages with tags, which this game lacks; let each rank receive what was sent first"
        )
    ops = {cell.op for cell in table.cells}
    actions = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
    values = {
        "depth": size.layers // table.stages,
        "step": ", step" if setting.steps > 1 else "",
        "steps": setting.steps,
        **_tags(table),
        **_mesh(axes, dict(setting.mesh), table.batches, sharded and axes.dp > 1),
    }
    backward = "\n".join(part.format(**values) for op, part in (("B", WHOLE), ("I", HALVES)) if op in ops)
    return CODE.format(
        rows=f"{table}\n",
        name=name,
        layers=size.layers,
        batches=size.batches,
        ranks=size.ranks,
        actions="{" + ", ".join(f'"{op}": {actions[op]}' for op in "FBIW" if op in ops) + "}",
        backward=backward,
        **values,
    )


def _mesh(axes: Axes, mesh: Mapping[str, int], batches: int, sharded: bool) -> dict[str, str]:
    """The code for the axes of the mesh; empty for missing ones."""
    cut, length = ("dp", axes.dp) if sharded else ("tp", axes.tp)
    summed = '{0}{1} = await model.allreduce({1}, layer{2}, group="{3}")\n'.format
    deep = " " * 12
    return {
        "rank": 'model.axis("pp")[rank]' if "pp" in mesh else "model.rank" if mesh else "rank",
        "place": 'model.index("pp")' if "pp" in mesh else "0" if mesh else "model.rank",
        "shard": f', model.index("{cut}"), {length}' if length > 1 else "",
        "first": f'{batches} * model.index("dp") + ' if axes.dp > 1 else "",
        "whole": '"whole", layer' if sharded else "layer",
        "key": '("whole", layer)' if sharded else "layer",
        "use": USE if sharded else "",
        "before": f"{deep}await use(int(stage))\n" if sharded else "",
        "after": f"{deep[4:]}await use(None)\n" if sharded else "",
        "sum_forward": summed(deep, "out", " + 1", "tp") if axes.tp > 1 else "",
        "sum_backward": f"{deep}if layer:\n" + summed(f"{deep}    ", "grad", " - 1", "tp") if axes.tp > 1 else "",
        "sum_replicas": summed(deep, "grad", "", "dp") if axes.dp > 1 and not sharded else "",
    }


def _tags(table: Timetable) -> dict[str, str]:
    """The code for tags: none, or the timetable's numbering of messages. Either each stage has one tag for forward and
    one for backward, or each message has its own."""
    if table.tag is untagged:
        return dict.fromkeys(
            "tag_given tag_used tag_forward_in tag_forward_out tag_backward_in tag_backward_out".split(), ""
        )
    by_batch = "" if table.tag is by_stream else f" + {2 * table.stages} * batch"
    return {
        "tag_given": ", tag",
        "tag_used": ", tag",
        "tag_forward_in": f", 2 * (stage - 1){by_batch}",
        "tag_forward_out": f", 2 * stage{by_batch}",
        "tag_backward_in": f", 2 * (stage + 1) + 1{by_batch}",
        "tag_backward_out": f", 2 * stage + 1{by_batch}",
    }
