"""Schedules of recent years in a few lines each: what the ledger expresses, and what it refuses.

`expresses.py` plays them for docs/expresses.md, and the tests compare the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from lib import COSTS, Model, Setting, Size
from lib import pipelines as schedules
from lib.ledger.costs import Tier


class Short(NamedTuple):
    """A schedule, the game that it plays, and whose idea it is."""

    name: str
    source: str
    schedule: Callable[[Model], Any]
    size: Size
    setting: Setting
    playable: bool


SHORT: list[Short] = []


def short(
    name: str, source: str, size: tuple[int, int, int], setting: Setting, playable: bool = True
) -> Callable[[Callable[[Model], Any]], Callable[[Model], Any]]:
    """Adds a schedule to the list."""

    def added(schedule: Callable[[Model], Any]) -> Callable[[Model], Any]:
        SHORT.append(Short(name, source, schedule, Size(*size), setting, playable))
        return schedule

    return added


def with_prices(name: str, **ticks: int) -> Any:
    """Named costs with other or further prices."""
    return replace(COSTS[name], name=f"{name}, changed", ticks={**COSTS[name].ticks, **ticks})


HOST: dict[str, Any] = {"overlap": True, "tiers": {"host": Tier(5, 5)}}

# --- Weights ---


@short("WeiPipe", "Lin et al. 2025", (4, 4, 4), Setting("overlap"))
async def weipipe(model: Model) -> None:
    """Weights and their gradients go round a ring, and activations stay."""
    me, n, layers = model.rank, model.RANKS, range(model.LAYERS)
    after, before = (me + 1) % n, (me - 1) % n
    own, state = model.load_weights(me)
    inputs = [model.get_activation([me])]

    async def weight_of(layer: int, tag: int) -> Any:
        weight = own if me == layer else await model.receive(before, tag=tag)
        if after != layer:
            await model.pass_to(after, weight, tag=tag)
        return weight

    for layer in layers:
        inputs.append(model.forward(layer, inputs[layer], await weight_of(layer, layer)))
    grad, mine = model.loss(inputs.pop()), None
    for layer in reversed(layers):
        new, grad = model.backward(layer, inputs.pop(), grad, await weight_of(layer, n + layer))
        if me != (layer + 1) % n:
            new = new + await model.receive(before, tag=2 * n + layer)
        if me == layer:
            mine = new
        else:
            await model.pass_to(after, new, tag=2 * n + layer)
    model.set_final_weight(me, model.update(me, mine, own, state)[0])  # type: ignore[arg-type]  # its own is there


@short("hpZ", "ZeRO++, Wang et al. 2023", (2, 8, 8), Setting("islands", mesh={"machine": 2, "gpu": 4}))
async def hpz(model: Model) -> None:
    """Forward gathers from all ranks, backward from a second shard in the machine."""
    layers = range(model.LAYERS)
    own = [model.load_weights(layer, model.rank, model.RANKS) for layer in layers]
    inputs, second = [model.get_activation([model.rank])], []
    for layer in layers:
        weight = await model.allgather(own[layer][0], layer)
        inputs.append(model.forward(layer, inputs[layer], weight))
        second.append(weight.shard(model.index("gpu"), 4))
    grad = model.loss(inputs.pop())
    for layer in reversed(layers):
        weight = await model.allgather(second.pop(), layer, group="gpu")
        new, grad = model.backward(layer, inputs.pop(), grad, weight)
        new = await model.scatterreduce(new, layer)
        model.set_final_weight(layer, model.update(layer, new, *own[layer])[0])


ROOTED = {"broadcast": 2, "reduce": 2, "update": 40}


def training(updated: Callable[[Model, int, Any, Any], Any]) -> Callable[[Model], Any]:
    """Data parallelism; `updated` makes a layer's final weight of the gradient of one microbatch."""

    async def schedule(model: Model) -> None:
        layers = range(model.LAYERS)
        own = [model.load_weights(layer) for layer in layers]
        inputs = [model.get_activation([model.rank])]
        for layer in layers:
            inputs.append(model.forward(layer, inputs[layer], own[layer][0]))
        grad, grads = model.loss(inputs.pop()), {}
        for layer in reversed(layers):
            grads[layer], grad = model.backward(layer, inputs.pop(), grad, own[layer][0])
        for layer in layers:
            await updated(model, layer, grads[layer], own[layer])

    return schedule


async def by_owner(model: Model, layer: int, grad: Any, own: Any) -> None:
    total = await model.reduce(grad, layer, to=layer)
    new = model.update(layer, total, *own)[0] if model.rank == layer else None
    model.set_final_weight(layer, await model.broadcast(new, layer, source=layer))


async def by_shard(model: Model, layer: int, grad: Any, own: Any) -> None:
    shards = [value.shard(model.rank, model.RANKS) for value in own]
    model.set_final_weight(layer, model.update(layer, await model.scatterreduce(grad, layer), *shards)[0])


MUON = Setting(with_prices("classic", **ROOTED), whole=True)
short("Muon by owners", "Liu et al. 2025", (4, 4, 4), MUON)(training(by_owner))
short("Muon on shards", "Liu et al. 2025", (4, 4, 4), MUON, False)(training(by_shard))

# --- Tokens ---


@short(
    "Ulysses inside a ring (USP)",
    "Fang and Zhao 2024",
    (1, 1, 4),
    Setting("context", layer="attention", shares=8, mesh={"ring": 2, "ulysses": 2}),
)
async def usp(model: Model) -> None:
    """Heads are exchanged within a group, blocks of keys between groups."""
    ring, place = model.index("ring"), model.index("ulysses")
    (peer,) = {*model.axis("ring")} - {model.rank}
    weight, state = model.load_weights(0)
    first = 2 * (ring, 3 - ring)[place]
    inp = model.get_activation([0], shares=[first, first + 1])
    queries = await model.heads(inp, 0, group="ulysses")
    keys = await model.heads(model.keys(0, inp, weight), 0, group="ulysses")
    sending = model.pass_to(peer, keys)
    there = await model.receive(peer)
    await sending
    out = await model.tokens(model.attend(0, queries, [keys, there]), 1, group="ulysses")
    grad = await model.heads(model.loss(out), 0, group="ulysses")
    through, (of_keys, of_there) = model.attend_backward(0, queries, [keys, there], grad)
    sending = model.pass_to(peer, of_there)
    of_keys = await model.tokens(of_keys + await model.receive(peer), 0, group="ulysses")
    await sending
    new, _ = model.keys_backward(0, inp, of_keys, weight, await model.tokens(through, -1, group="ulysses"))
    model.set_final_weight(0, model.update(0, await model.allreduce(new, 0), weight, state)[0])


@short(
    "FPDT, Ulysses-Offload",
    "Yao et al. 2024",
    (1, 1, 1),
    Setting(replace(COSTS["sequences"], name="sequences with a host", **HOST), layer="attention", shares=4),
)
async def fpdt(model: Model) -> None:
    """Key-value blocks of earlier tokens are parked on the host."""
    weight, state = model.load_weights(0)
    parked, grads, of_keys = [], [], dict[int, Any]()
    for share in range(model.SHARES):
        inp = model.get_activation([0], shares=[share])
        keys = model.keys(0, inp, weight)
        out = model.attend(0, inp, [keys])
        for block in parked:
            out = model.attend(0, inp, [await model.fetch(block)], out)
        parked.append(await model.offload(keys))
        grads.append(await model.offload(model.loss(out)))
    total = model.fake_grad(0, [])
    for share in reversed(range(model.SHARES)):
        inp, grad = model.get_activation([0], shares=[share]), await model.fetch(grads.pop())
        blocks = [await model.fetch(block) for block in parked[: share + 1]]
        through, parts = model.attend_backward(0, inp, blocks, grad)
        for other, part in enumerate(parts):
            of_keys[other] = of_keys[other] + part if other in of_keys else part
        total = total + model.keys_backward(0, inp, of_keys.pop(share), weight, through)[0]
    model.set_final_weight(0, model.update(0, total, weight, state)[0])


@short(
    "Ring attention inside pipeline stages",
    "Megatron-LM, torchtitan",
    (2, 1, 4),
    Setting("context", layer="attention", shares=4, mesh={"pp": 2, "cp": 2}),
)
async def ring_in_stages(model: Model) -> None:
    layer, place = model.index("pp"), model.index("cp")
    weight, state = model.load_weights(layer)
    peer, other = model.rank ^ 1, model.rank ^ 2
    inp = await model.receive(other) if layer else model.get_activation([0], shares=[place, 3 - place])
    keys = model.keys(layer, inp, weight)
    sending = model.pass_to(peer, keys)
    there = await model.receive(peer)
    await sending
    out = model.attend(layer, inp, [keys, there])
    if not layer:
        await model.pass_to(other, out)
    grad = model.loss(out) if layer else await model.receive(other)
    through, (of_keys, of_there) = model.attend_backward(layer, inp, [keys, there], grad)
    sending = model.pass_to(peer, of_there)
    of_keys = of_keys + await model.receive(peer)
    await sending
    new, grad = model.keys_backward(layer, inp, of_keys, weight, through)
    if layer:
        await model.pass_to(other, grad)
    new = await model.allreduce(new, layer, group="cp")
    model.set_final_weight(layer, model.update(layer, new, weight, state)[0])


LENGTHS = (1, Fraction(1, 2), Fraction(1, 2), Fraction(1, 4), Fraction(1, 4), Fraction(1, 4))


@short(
    "Packed sequences", "FlashAttention's cu_seqlens", (1, 6, 2), Setting("context", layer="attention", lengths=LENGTHS)
)
async def packed(model: Model) -> None:
    """A rank computes its sequences in one call; tokens attend to their own sequence only."""
    weight, state = model.load_weights(0)
    inp = model.get_activation([0] if model.rank == 0 else range(1, model.BATCHES))
    keys = model.keys(0, inp, weight)
    through, (of_keys,) = model.attend_backward(0, inp, [keys], model.loss(model.attend(0, inp, [keys])))
    new, _ = model.keys_backward(0, inp, of_keys, weight, through)
    model.set_final_weight(0, model.update(0, await model.allreduce(new, 0), weight, state)[0])


@short(
    "SlimPipe's exchange", "Li et al. 2025", (1, 1, 2), Setting("sequences", layer="attention", shares=4, task="infer")
)
async def slimpipe(model: Model) -> None:
    """A rank attends for queries of another rank, which has too many pairs."""
    if model.rank == 0:
        weight, _ = model.load_weights(0)
        inp = model.get_activation([0], shares=range(4))
        await model.pass_to(1, [inp, model.keys(0, inp, weight)])
        model.set_output(await model.receive(1))
    else:
        inp, keys = await model.receive(0)
        await model.pass_to(0, model.attend(0, inp, [keys]))


# --- Layers ---


@short("A frozen encoder", "LLaVA, Liu et al. 2023", (3, 1, 1), Setting("parts", frozen=(0, 1)))
async def frozen_encoder(model: Model) -> None:
    weights = [model.load_weights(layer) for layer in range(model.LAYERS)]
    out = model.get_activation([0])
    for layer, (weight, _) in enumerate(weights):
        inp, out = out, model.forward(layer, out, weight)
    grad = model.backward_weight(layer, inp, model.loss(out))
    model.set_final_weight(layer, model.update(layer, grad, *weights[layer])[0])


@short(
    "PipeOffload",
    "Wan et al. 2025",
    (4, 4, 4),
    Setting(replace(with_prices("stages", pass_to=1), **HOST)),
)
async def pipeoffload(model: Model) -> None:
    """Activations of a pipeline are parked on the host between forward and backward."""
    me, last, parked, grads = model.rank, model.RANKS - 1, [], []
    weight, state = model.load_weights(me)
    for batch in range(model.BATCHES):
        inp = await model.receive(me - 1, tag=batch) if me else model.get_activation([batch])
        out = model.forward(me, inp, weight)
        leaving = model.offload(inp)
        if me == last:
            grads.append(model.loss(out))
        else:
            await model.pass_to(me + 1, out, tag=batch)
        parked.append(await leaving)
        del inp, out
    total = model.fake_grad(me, [])
    for batch in range(model.BATCHES):
        grad = grads[batch] if me == last else await model.receive(me + 1, tag=batch)
        new, grad = model.backward(me, await model.fetch(parked[batch]), grad, weight)
        total = total + new
        if me:
            await model.pass_to(me - 1, grad, tag=batch)
    model.set_final_weight(me, model.update(me, total, weight, state)[0])


@short("Requests through a pipeline", "vLLM, TensorRT-LLM", (4, 4, 4), Setting("stages", task="infer"))
async def requests(model: Model) -> None:
    weight, _ = model.load_weights(model.rank)
    for batch in range(model.BATCHES):
        inp = await model.receive(model.rank - 1) if model.rank else model.get_activation([batch])
        out = model.forward(model.rank, inp, weight)
        if model.rank < model.RANKS - 1:
            await model.pass_to(model.rank + 1, out)
        else:
            model.set_output(out)


@short(
    "Experts in data-parallel groups",
    "MoE Parallel Folding, Liu et al. 2025",
    (1, 8, 4),
    Setting("experts", layer="experts", mesh={"dp": 2, "ep": 2}),
)
async def folded(model: Model) -> None:
    """Tokens go to the experts of a group; gradients of experts are summed over the groups."""
    own = [*range(model.rank, model.BATCHES, model.RANKS)]
    weight, state = model.load_weights(0, model.index("ep"), 2)
    inp = await model.dispatch(model.get_activation(own), 0, group="ep")
    out = await model.collect(model.forward(0, inp, weight), 1, own, group="ep")
    grad = await model.dispatch(model.loss(out), 0, group="ep")
    new, _ = model.backward(0, inp, grad, weight)
    model.set_final_weight(0, model.update(0, await model.allreduce(new, 0, group="dp"), weight, state)[0])


for order, of, size, costs in (
    ("dualpipev", "DeepSeek-AI 2025", (8, 8, 4), "pairs"),
    ("hanayo", "Liu et al. 2023", (8, 4, 4), "stages"),
    ("interleaved_zb", "PyTorch", (8, 8, 4), "parts"),
    ("chimera", "Li and Hoefler 2021", (4, 4, 4), "stages"),
):
    short(f"The order {order}", of, size, Setting(costs))(schedules.pipeline(getattr(schedules, order)))


# --- What is refused ---


@short(
    "NoLoCo, gossip", "Kolehmainen et al. 2025", (1, 4, 4), Setting("slow", task="local", mesh={"a": 2, "b": 2}), False
)
async def noloco(model: Model) -> None:
    """Replicas average in pairs only."""
    weight, state = model.load_weights(0)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    weight = model.update(0, grad, weight, state)[0]
    model.set_final_weight(0, await model.allreduce(weight, 0, group="a"))


@short("Async tensor parallelism", "PyTorch", (1, 1, 4), Setting("long_quarters", layer="block"), False)
async def chunks(model: Model) -> None:
    """A product of some tokens, while the next ones are gathered."""
    weight, _ = model.load_weights(0, model.rank, model.RANKS)
    model.forward(0, model.get_activation([0]).shard(model.rank, model.RANKS), weight)


@short("Heads split by weight", "Megatron-LM", (1, 1, 2), Setting("context", layer="attention", shares=4), False)
async def split_attention(model: Model) -> None:
    """Tensor parallelism of attention."""
    weight, _ = model.load_weights(0, model.rank, model.RANKS)
    model.keys(0, model.get_activation([0]), weight)


@short(
    "Zero bubble with attention", "Qi et al. 2024", (1, 1, 1), Setting("sequences", layer="attention", shares=2), False
)
async def halves_of_attention(model: Model) -> None:
    """The weight half of a layer of attention, later."""
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0])
    out = model.attend(0, inp, [model.keys(0, inp, weight)])
    model.backward_weight(0, inp, model.loss(out), weight)


@short("A skip connection", "U-Net, Ronneberger et al. 2015", (3, 1, 1), Setting("parts"), False)
async def skip(model: Model) -> None:
    """A later layer reads the sum of two layers' outputs."""
    weights = [model.load_weights(layer)[0] for layer in range(3)]
    first = model.forward(0, model.get_activation([0]), weights[0])
    model.forward(2, model.forward(1, first, weights[1]) + first, weights[2])


@short(
    "Prefill and decode apart",
    "DistServe, Zhong et al. 2024",
    (1, 1, 2),
    Setting("sequences", layer="attention", shares=8, task="infer"),
    False,
)
async def prefill_decode(model: Model) -> None:
    """Outputs of some tokens on one rank, of the others on another."""
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0], shares=range(6))
    model.set_output(model.attend(0, inp, [model.keys(0, inp, weight)]))
