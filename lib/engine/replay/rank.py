"""One rank of a replay: its part of a trace, operation by operation, with real tensors on an engine.

The contents of all tensors come from the referee, which has executed the trace before: a replay derives no labels of
its own. Each operation has a function from the tensors it uses to those it creates.

What an operation computes is left to `workload`, and whether results are right to `comparison`. The engine's messages
have no tags, and need none: the order of sending is known, so messages that come early wait here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate
from math import prod
from operator import add
from time import perf_counter
from typing import Any, cast

import numpy as np

from lib.engine.collectives import Array
from lib.engine.devices import copy_in
from lib.engine.engine import MemoryTier, ShardedEngine
from lib.engine.metering import current, unmetered
from lib.engine.replay.workload import (
    Attention,
    Content,
    Layer,
    Result,
    Shapes,
    TensorExchange,
    Workload,
    content_of,
    index_of,
    joined,
    layer_with,
    settled,
    taken,
)
from lib.engine.transport import NUMPY, getcurrent, greenlet
from lib.errors import TraceError
from lib.ledger.collectives import ROOT_OF, is_last, next_member
from lib.ledger.lifetimes import lifetimes
from lib.ledger.meetings import Call
from lib.ledger.recomputation import RankState, Recomputation
from lib.ledger.trace import TIMED, Op, Trace, group_of, halves, root_of
from lib.ledger.values import Delta, KeyValue, Value, Weight

# --- What the referee's re-execution says of each rank: the contents of all tensors, and the order of its calls ---

CHAIN = -1
"""The tag of what a broadcast or a reduce sends from one rank to the next; messages have tags from 0 on."""


@dataclass(frozen=True, slots=True)
class RankScript:
    """One rank: its operations, their order, and the content of each value by its number."""

    ops: Sequence[Op]
    script: Sequence[int]
    """The index i of each operation in turn. A call that runs on a lane appears twice: as i where it is made, and as ~i
    where it runs. All ranks can follow their scripts with blocking calls, because one order of all operations agrees
    with each script."""
    contents: Mapping[int, Content]
    exchanges: Mapping[int, TensorExchange]
    """By the number of a value that a collective makes."""
    tags: Mapping[int, Sequence[int]]
    """By sender: the tags of its messages to this rank, in the order of sending."""

    def freed_after(self) -> dict[int, list[int]]:
        """By entry of the script: the numbers of the values that are not needed after it. Values that a later-running
        call uses are needed until the call is awaited."""
        freed: dict[int, list[int]] = {}
        later = {~entry for entry in self.script if entry < 0}
        for number, _, until in lifetimes(self.ops).held:
            runs_later = until in later and number in self.ops[until].inputs
            freed.setdefault(~until if runs_later else until, []).append(number)
        return freed


class OrderedRecomputation(Recomputation):
    """The re-execution of a trace, which also notes the order in which calls are made and run."""

    def __init__(self, trace: Trace, strict: bool = False) -> None:
        self.calls: list[list[int]] = [[] for _ in trace.ranks]
        """By rank: the operations that involve other ranks, as in a script."""
        self.met: list[dict[int, Op]] = []
        """By rank: the operations of each collective."""
        super().__init__(trace, strict)

    def visit(self, cursor: RankState, op: Op) -> bool:
        at, visited = cursor.at, super().visit(cursor, op)
        if visited and op.name not in self.on_lanes:
            self.calls[cursor.rank].append(at)
        return visited

    def on_call(self, cursor: RankState, op: Op) -> Call:
        call = super().on_call(cursor, op)
        if self.on_lanes:
            self.calls[cursor.rank].append(cursor.at)
        return call

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Value, ...]]:
        if calls[0].name in TENSOR_COLLECTIVES:
            self.met.append({call.rank: call.op for call in calls})
        return super().perform(calls)

    def on_end(self, cursor: RankState, call: Call) -> None:
        super().on_end(cursor, call)
        if self.on_lanes:
            self.calls[cursor.rank].append(~call.at)

    def scripts(self, shapes: Shapes) -> list[RankScript]:
        """Every rank's part of a legal trace, with tensors of some shapes."""
        contents = [{number: content_of(value, shapes) for number, value in rank.values.items()} for rank in self.ranks]
        exchanges = _exchanges(self.met, contents)
        orders = [_script(len(rank.ops), calls) for rank, calls in zip(self.ranks, self.calls)]
        tags = _tags(self.trace, orders)
        return [RankScript(*columns) for columns in zip(self.trace.ranks, orders, contents, exchanges, tags)]


def _script(count: int, calls: Sequence[int]) -> list[int]:
    """All `count` operations of a rank in turn, with the calls that run on lanes where `calls` has them."""
    if not any(entry < 0 for entry in calls):
        return list(range(count))
    script: list[int] = []
    past = 0
    for entry in calls:
        if entry >= 0:
            script += range(past, entry + 1)
            past = entry + 1
        else:
            script.append(entry)
    return [*script, *range(past, count)]


def _members(op: Op, ranks: int) -> tuple[int, ...]:
    return group_of(op) or tuple(range(ranks))


def _exchanges(
    met: Sequence[Mapping[int, Op]], contents: Sequence[Mapping[int, Content]]
) -> list[dict[int, TensorExchange]]:
    """For each rank its exchanges, from the operations of each collective."""
    exchanges: list[dict[int, TensorExchange]] = [{} for _ in contents]
    for calls in met:
        group = _members(next(iter(calls.values())), len(contents))
        for n in range(len(calls[group[0]].inputs)):
            inputs = [contents[rank][calls[rank].inputs[n]] for rank in group]
            results = [contents[rank][calls[rank].outputs[n]] for rank in group]
            for place, rank in enumerate(group):
                exchanges[rank][calls[rank].outputs[n]] = TensorExchange(group, place, inputs, results)
    return exchanges


def _tags(trace: Trace, scripts: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
    """By receiver and sender: the tags of their messages, in the order of sending."""
    tags: list[dict[int, list[int]]] = [{} for _ in trace.ranks]
    for sender, (ops, script) in enumerate(zip(trace.ranks, scripts)):
        later = {~entry for entry in script if entry < 0}
        for op in (ops[max(entry, ~entry)] for entry in script if entry not in later):
            root = root_of(op)
            if op.name == "pass_to":
                to, *tag = op.args
                tags[to].setdefault(sender, []).append(*(tag or (0,)))
            elif root is not None:
                members = _members(op, len(trace.ranks))
                if not is_last(op.name, sender, members, root):
                    tags[next_member(sender, members)].setdefault(sender, []).append(CHAIN)
    return tags


# --- A device of a replay: its tensors of numpy or torch, and the game's collectives on them ---

TIERS = ("host", "disk")


def summed(engine: ReplayEngine, tensor: Array, exchange: TensorExchange) -> Array:
    """The sum of all inputs; for the weights of replicas, their average."""
    total = engine.all_reduce(tensor, group=exchange.group)
    return averaged(engine, total, exchange.inputs[exchange.place].value, len(exchange.group))


def averaged(engine: ReplayEngine, total: Array, value: Value, ranks: int) -> Array:
    """A sum over some ranks; for the weights of replicas, their average."""
    return engine.workload.average(total, ranks) if isinstance(value, Weight) else total


def scattered(engine: ReplayEngine, tensor: Array, exchange: TensorExchange) -> Array:
    content = exchange.inputs[exchange.place]
    tensor = taken(tensor, content, _in_order(exchange.results))
    return engine.reduce_scatter(tensor, axis=content.axis, group=exchange.group)


def gathered(engine: ReplayEngine, tensor: Array, exchange: TensorExchange) -> Array:
    """The rows or tokens of all ranks, in order. Shorter inputs are padded to the longest."""
    inputs, result = exchange.inputs, exchange.results[exchange.place]
    axis, most = result.axis, max(len(content.places) for content in inputs)
    whole = engine.all_gather(padded(engine, tensor, axis, most), axis, group=exchange.group)
    if all(len(content.places) == most for content in inputs) and _in_order(inputs) == result.places:
        return whole
    parts = pieces(whole, len(inputs), axis)
    short = [part[(*[slice(None)] * axis, slice(len(content.places)))] for part, content in zip(parts, inputs)]
    return joined(short, inputs, result, engine.zeros(result.shape))


def dispatched(engine: ReplayEngine, tensor: Array, exchange: TensorExchange) -> Array:
    """This rank's share of the tokens of all batches. Inputs with fewer batches are padded to the most."""
    inputs, result = exchange.inputs, exchange.results[exchange.place]
    n, most = len(inputs), max(len(content.batches) for content in inputs)
    sent = engine.xp.stack(pieces(padded(engine, tensor, 0, most), n, 1))
    came = engine.all_to_all(sent, group=exchange.group)
    place = {batch: (i, k) for i, content in enumerate(inputs) for k, batch in enumerate(content.batches)}
    ranks, within = zip(*[place[batch] for batch in result.batches])
    arrived: Array = came[list(ranks), list(within)]
    return arrived


def collected(engine: ReplayEngine, tensor: Array, exchange: TensorExchange) -> Array:
    """All tokens of the batches that this rank wants. Results with fewer batches are padded to the most."""
    batches, result = exchange.inputs[exchange.place].batches, exchange.results[exchange.place]
    most = max(len(content.batches) for content in exchange.results)
    sent = engine.zeros((len(exchange.results), most, *tensor.shape[1:]))
    for part, content in zip(sent, exchange.results):
        part[: len(content.batches)] = tensor[index_of((*batches,), (*content.batches,))]
    came = engine.all_to_all(sent, group=exchange.group)
    short = [part[: len(result.batches)] for part in came]
    return joined(short, exchange.inputs, result, engine.zeros(result.shape))


TOKENS, COLUMNS = 1, 2
"""Axes of an activation."""


def exchanged(engine: ReplayEngine, tensor: Array, exchange: TensorExchange, whole: int, cut: int) -> Array:
    """All tokens with this rank's columns, or its tokens with all columns: the axis that becomes whole, and the one
    that is cut."""
    inputs, results, own = exchange.inputs, exchange.results, exchange.place
    if cut == TOKENS:
        tensor = taken(tensor, inputs[own], _in_order(results))
    came = engine.all_to_all(engine.xp.stack(pieces(tensor, len(inputs), cut)), group=exchange.group)
    result: Array = engine.xp.concatenate([*came], whole)
    order = index_of(_in_order(inputs), results[own].places) if whole == TOKENS else slice(None)
    return result if order == slice(None) else result[:, order]


TENSOR_COLLECTIVES: Mapping[str, Callable[[ReplayEngine, Array, TensorExchange], Array]] = {
    "allreduce": summed,
    "scatterreduce": scattered,
    "allgather": gathered,
    "dispatch": dispatched,
    "collect": collected,
    "heads": partial(exchanged, whole=TOKENS, cut=COLUMNS),
    "tokens": partial(exchanged, whole=COLUMNS, cut=TOKENS),
}
"""Each collective, from a rank's input tensor to its result."""


def padded(engine: ReplayEngine, tensor: Array, axis: int, length: int) -> Array:
    """A tensor with zeros appended up to a length."""
    missing = length - tensor.shape[axis]
    if not missing:
        return tensor
    shape = (*tensor.shape[:axis], missing, *tensor.shape[axis + 1 :])
    longer: Array = engine.xp.concatenate([tensor, engine.zeros(shape)], axis)
    return longer


def pieces(tensor: Array, n: int, axis: int) -> list[Array]:
    length, before = tensor.shape[axis] // n, [slice(None)] * axis
    return [tensor[(*before, slice(i * length, (i + 1) * length))] for i in range(n)]


def _in_order(contents: Sequence[Content]) -> tuple[int, ...]:
    return tuple([place for content in contents for place in content.places])


# --- Broadcasts and reduces on tensors: each rank of a chain passes on what has come, or adds its own to it ---


def pass_along(engine: Any, op: Op, used: list[Array]) -> Sequence[Array]:
    """One rank's part: the result, if it gets one."""
    members, device, root = group_of(op) or range(engine.num_devices), engine.device_id, op.args[2]
    is_sum, content = op.name == "reduce", engine.contents[(op.inputs or op.outputs)[0]]
    if device != (next_member(root, members) if is_sum else root):
        came = engine.next_message(next_member(device, members, -1), CHAIN)
        came = came.reshape(content.shape)
        used = [came + used[0]] if is_sum else [came]
    if not is_last(op.name, device, members, root):
        engine.send(next_member(device, members), used[0].reshape(-1))
    if not op.outputs:
        return ()
    return [averaged(engine, used[0], content.value, len(members)) if is_sum else copy_in(used[0], engine._port)]


# --- Performs the operations of attention layers and of outer steps in a replay ---


def attend(engine: ReplayEngine, op: Op, used: list[Array]) -> Sequence[Array]:
    """Attends to each block of keys. The result is added to a tensor that is no block."""
    layer, (inp, *more) = _layer(engine, op), used
    queries, *contents = [engine.contents[number] for number in op.inputs]
    parts = [
        layer.attend(inp, queries.places, tensor, content.places) if isinstance(content.value, KeyValue) else tensor
        for tensor, content in zip(more, contents)
    ]
    return [reduce(add, parts)]


def attend_backward(engine: ReplayEngine, op: Op, used: list[Array]) -> Sequence[Array]:
    layer, (inp, *blocks, grad) = _layer(engine, op), used
    queries, *places = [engine.contents[number].places for number in op.inputs[:-1]]
    pairs = [layer.attend_backward(inp, queries, block, keys, grad) for block, keys in zip(blocks, places)]
    return [reduce(add, [through for through, _ in pairs]), *[of_keys for _, of_keys in pairs]]


def _layer(engine: ReplayEngine, op: Op) -> Attention:
    layer = engine.workload.layers[op.layer or 0]
    if isinstance(layer, Attention):
        return layer
    raise TraceError(f"layer {op.layer} is not an attention layer")


def outer_update(engine: ReplayEngine, op: Op, used: list[Array]) -> Sequence[Array]:
    before, change, state = used
    delta = engine.contents[op.inputs[1]].value
    assert isinstance(delta, Delta)
    return engine.workload.outer_update(before, change, len(delta.copies), state)


# --- Executes one rank's part of a trace on the engine, with real tensors ---


class ReplayEngine(ShardedEngine):
    """Holds a tensor from when the trace makes it to its last use, and while it is stored, as the game charges it.

    The result of an overlapped call takes memory from the call on, like the output of an asynchronous collective. Only
    other calls read it before it is awaited.
    """

    def __init__(self, scripts: Sequence[RankScript], workload: Workload) -> None:
        self.workload, self.scripts = workload, scripts
        self.rank = scripts[self.device_id]
        self.contents = self.rank.contents
        self.tensors: dict[int, Array] = {}
        self.arriving: dict[int, Array] = {}
        """Results of calls that have not been awaited."""
        self.freed: set[int] = set()
        """The numbers of values that are not needed any more, such as unused results of calls."""
        self.tags = {source: iter(tags) for source, tags in self.rank.tags.items()}
        self.unread: dict[tuple[int, int], list[Array]] = {}
        """By sender and tag: messages that arrived before the expected one."""
        self.begun: dict[int, list[Any]] = {}
        """By index: overlapped collectives, with a task for each tensor."""
        self.copies: dict[int, Any] = {}
        """By index: overlapped copies to and from a slower memory."""
        self.reserved: set[int] = set()
        """Results of calls that have not begun."""
        self.makers: dict[int, int] = {}
        """By the number of a result: the index of its overlapped call."""
        self.took: dict[int, float] = {}
        """Seconds that each completed overlapped call took, by index of its operation."""
        port: Any = self._port
        self.overlaps = port.library is not NUMPY and workload.setting.costs.overlap
        if port.library is not NUMPY:
            port.rely_on(sorted({exchange.group for rank in scripts for exchange in rank.exchanges.values()}))
        self.results: list[Result] = []

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: `load_weights` in the trace determines which part is loaded, and when."""

    def forward(self, x: Any) -> Any:
        """Plays the whole trace. Returns the measurements: bytes live at each event and at the end, on the device and
        on each tier, and the seconds of each event."""
        ops, script = self.rank.ops, self.rank.script
        live: list[tuple[int, ...]] = []
        seconds = {i: 0.0 for i, op in enumerate(ops) if op.name in TIMED}
        later = {~entry for entry in script if entry < 0}
        freed = self.rank.freed_after()
        for entry in script:
            i = max(entry, ~entry)
            if i in seconds and entry >= 0:
                live.append(self.live_bytes())
            start = perf_counter()
            self.turn(i, entry < 0, i in later)
            if i in seconds:
                self._port.library.synchronize()
                seconds[i] += perf_counter() - start
            self.free(freed.get(entry, ()))
        live.append(self.live_bytes())
        seconds.update(self.took)
        return {"live": live, "seconds": list(seconds.values())}

    def again(self) -> list[float]:
        """Plays the whole trace again with new tensors, and returns the seconds of each event."""
        ReplayEngine.__init__(self, self.scripts, self.workload)
        self.barrier()
        seconds: list[float] = ReplayEngine.forward(self, None)["seconds"]
        return seconds

    def turn(self, at: int, call_runs: bool, runs_later: bool) -> None:
        """Plays one entry of the script: the operation at an index. A call is made first and runs later."""
        op = self.rank.ops[at]
        if call_runs:
            if at not in self.begun and at not in self.copies:
                for number in op.inputs:  # what another call makes that has begun
                    self.finish(self.makers.get(number, at))
                self.arriving.update(self.perform(op))
                self.reserved.difference_update(op.outputs)
                self.free(number for number in op.outputs if number in self.freed)
        elif runs_later:
            self.reserve(op)
            self.begin(at)
        elif op.name == "await":
            outputs = self.rank.ops[op.args[0]].outputs
            self.finish(op.args[0])
            self.tensors.update((number, self.arriving.pop(number)) for number in outputs if number in self.arriving)
        else:
            self.tensors.update(self.perform(op))

    def begin(self, at: int) -> None:
        """Starts an overlapped collective, if the transport can and all inputs are there. Each tensor has a greenlet,
        which waits until `finish`. Otherwise the collective runs where the script says.

        All ranks begin the calls of a lane in one order: after a call that could not begin, no other does.
        """
        op, port = self.rank.ops[at], cast(Any, self._port)
        if op.name in ("offload", "fetch") and self.overlaps:
            return self.begin_copy(at, op)
        if not self.overlaps or op.name not in TENSOR_COLLECTIVES:
            return
        self.overlaps = all(number in self.tensors for number in op.inputs)
        if self.overlaps:
            given = [port.library.copy(self.tensors[n]) for n in op.inputs]  # so that the rank may let go of its own
            tasks = [greenlet(meeting) for meeting in self.meetings(op, given)]
            port.carrier.in_background = getcurrent().switch
            with unmetered():  # what is on its way has its memory reserved
                for task in tasks:
                    task.switch()
            port.carrier.in_background = None
            self.begun[at] = tasks
            self.makers.update(dict.fromkeys(op.outputs, at))

    def begin_copy(self, at: int, op: Op) -> None:
        """Starts a copy in the background, if its source is there. The copy drops its own reference to the tensor, so
        that the rank's reference decides about memory."""
        (number,), (result,) = op.inputs, op.outputs
        library = cast(Any, self._port.library)
        if number in self.reserved or (op.name == "offload" and number not in self.tensors):
            return
        tier = self.tier(number if op.name == "fetch" else result)
        store = vars(tier)["_store"]  # counted when the call was made; players have no such way
        box = [self.tensors[number] if op.name == "offload" else self.arriving[result]]
        if op.name == "offload":
            self.copies[at] = library.in_background(lambda: store.update({str(result): library.on_host(box.pop())}))
        else:
            self.copies[at] = library.in_background(lambda: library.fill(box.pop(), store[str(number)]))
        self.reserved.discard(result)
        self.makers[result] = at

    def finish(self, at: int) -> None:
        """Waits for an overlapped call."""
        op, port = self.rank.ops[at], cast(Any, self._port)
        if at in self.copies:
            self.took[at] = self.copies.pop(at).result()
        for number, task in zip(op.outputs, self.begun.pop(at, ())):
            array = task.switch()
            self.took[at] = max(self.took.get(at, 0.0), port.carrier.took)
            if number not in self.freed:
                self.arriving[number] = array

    def perform(self, op: Op) -> dict[int, Array]:
        """The tensors that an operation makes on the device, by number."""
        perform = PERFORM.get(op.name)
        return (
            {} if perform is None else dict(zip(op.outputs, perform(self, op, [self.read(op, n) for n in op.inputs])))
        )

    def read(self, op: Op, number: int) -> Any:
        """A tensor that an operation uses; None if it is parked."""
        if self.contents[number].tier:
            return None
        if number in self.tensors:
            return settled(self.workload, op, self.contents[number], self.tensors[number])
        return self.arriving[number]

    def reserve(self, op: Op) -> None:
        """Allocates the memory of a call's results."""
        self.reserved.update(op.outputs)
        for number in op.outputs:
            buffer = self.zeros(self.contents[number].shape)
            if self.contents[number].tier:
                self.tier(number).put(str(number), buffer)
            else:
                self.arriving[number] = buffer

    def free(self, numbers: Iterable[int]) -> None:
        """Frees values that are not needed any more."""
        for number in numbers:
            self.freed.add(number)
            if self.contents[number].tier:
                for copy in self.copies.values():  # one of them may read it
                    copy.result()
                self.tier(number).drop(str(number))
            else:
                self.tensors.pop(number, None)
                self.arriving.pop(number, None)

    # --- Tensors of the workload ---

    def zeros(self, shape: tuple[int, ...]) -> Array:
        library = self._port.library
        array = library.zeros(shape, self.workload.dtype)
        return array if current.meter is None else library.charged(array, current.meter)

    def tier(self, number: int) -> MemoryTier:
        """The tier on which a value is parked."""
        memory: MemoryTier = getattr(self, self.contents[number].tier)
        return memory

    def live_bytes(self) -> tuple[int, ...]:
        """Bytes on the device, and on each of TIERS."""
        meter = self._port.meter
        return (0,) * 3 if meter is None else (meter.live, *(getattr(meter, tier)["live"] for tier in TIERS))

    def declared(self) -> list[Result]:
        return self.results

    def declare(self, op: Op, used: list[Array]) -> Sequence[Array]:
        """Keeps a copy of a result, which is not charged to the device."""
        with unmetered():
            number = op.layer if op.name != "set_final_copy" else ~(op.layer or 0)
            self.results.append((number, self.contents[op.inputs[0]], self._port.library.on_host(used[0])))
        return ()

    def of_each_batch(self, draw: Callable[[int, int], Array], content: Content) -> Array:
        step: int = content.value.step  # type: ignore[attr-defined]  # activations have steps
        with unmetered():
            if self.workload.shapes.lengths:
                length = self.workload.shapes.length
                own = [[at % length for at in content.places if at // length == i] for i in range(len(content.batches))]
                drawn = np.concatenate([draw(batch, step)[at] for batch, at in zip(content.batches, own)])[None]
            else:
                drawn = np.array([draw(batch, step)[list(content.places)] for batch in content.batches])
        return copy_in(drawn, self._port)

    def bundle(self, tensors: list[Array]) -> Array:
        """Several tensors as one message; an empty message for no tensors."""
        flat: Array = self.xp.concatenate([t.reshape(-1) for t in tensors]) if tensors else self.zeros((0,))
        return flat

    # --- What a rank does on its own ---

    def load(self, op: Op, used: list[Array]) -> Sequence[Array]:
        layer = op.layer or 0
        draws = self.workload.weight, self.workload.state, self.workload.outer_state
        contents = [self.contents[number] for number in op.outputs]
        parts = [copy_in(draw(layer)[list(content.places)], self._port) for draw, content in zip(draws, contents)]
        return self.parked(op, parts) if contents[0].tier else parts

    def parked(self, op: Op, tensors: Sequence[Array]) -> Sequence[Array]:
        """Copies tensors to the tier where an operation parks them."""
        for number, tensor in zip(op.outputs, tensors):
            self.tier(number).put(str(number), tensor)
        return ()

    def fetched(self, op: Op, used: list[Array]) -> Sequence[Array]:
        (number,) = op.inputs
        return [self.tier(number).fetch(str(number))]

    def layer_forward(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [self.layer(op).forward(*used)]

    def layer(self, op: Op) -> Layer:
        """The layer of an operation; a loss belongs to the last layer."""
        return layer_with(self.workload, op, [self.contents[number] for number in op.inputs])

    def loss(self, op: Op, used: list[Array]) -> Sequence[Array]:
        targets = self.of_each_batch(self.workload.target, self.contents[op.inputs[0]])
        return [self.layer(op).loss(used[0], targets)]

    def layer_backward(self, op: Op, used: list[Array]) -> Sequence[Array]:
        of_weight = self.layer(op).backward_weight(*used)
        return [of_weight, self.layer(op).backward_input(*used)] if len(op.outputs) > 1 else [of_weight]

    def pair(self, op: Op, used: list[Array]) -> Sequence[Array]:
        ahead, behind = halves(op)
        return [*self.layer_forward(ahead, used[:2]), *self.layer_backward(behind, used[2:])]

    def update(self, op: Op, used: list[Array]) -> Sequence[Array]:
        grad, weight, state, *norm = used
        of_grad, rows, of_state = [self.contents[number] for number in op.inputs[:3]]
        parts = taken(grad, of_grad, rows.places), weight, taken(state, of_state, rows.places)
        return self.workload.update(*parts, *norm)

    def without_device(self, op: Op, make: Callable[[Op, list[Array]], Sequence[Array]]) -> Sequence[Array]:
        """Parks what is made of tensors on a tier."""
        there = vars(self.tier(op.inputs[0]))["_store"]  # players have no such way
        with unmetered():
            arrays = make(op, [there[str(number)] for number in op.inputs])
            arrays = [self._port.library.adopted(array) for array in arrays]  # `put` takes a device's
        return self.parked(op, arrays)

    def combine(self, op: Op, used: list[Array]) -> Sequence[Array]:
        wanted = self.contents[op.outputs[0]]
        return [joined(used, [self.contents[number] for number in op.inputs], wanted, self.zeros(wanted.shape))]

    def cut(self, op: Op, used: list[Array]) -> Sequence[Array]:
        whole, wanted = (self.contents[number] for number in (*op.inputs, *op.outputs))
        return [copy_in(taken(used[0], whole, wanted.places), self._port)]

    # --- What ranks do together ---

    def meet(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [meeting() for meeting in self.meetings(op, used)]

    def meetings(self, op: Op, used: list[Array]) -> list[Callable[[], Array]]:
        """The work of a collective, one callable for each tensor."""
        meet, exchanges = TENSOR_COLLECTIVES[op.name], self.rank.exchanges
        return [partial(meet, self, tensor, exchanges[number]) for tensor, number in zip(used, op.outputs)]

    def send_values(self, op: Op, used: list[Array]) -> Sequence[Array]:
        self.send(op.args[0], used[0].reshape(-1) if len(used) == 1 else self.bundle(used))
        return ()

    def receive_values(self, op: Op, used: list[Array]) -> Sequence[Array]:
        array = self.next_message(*op.args)
        shapes = [self.contents[number].shape for number in op.outputs]
        if len(shapes) == 1:
            return [array.reshape(shapes[0])]
        ends = [0, *accumulate(map(prod, shapes))]
        return [
            copy_in(array[start:end].reshape(shape), self._port) for start, end, shape in zip(ends, ends[1:], shapes)
        ]

    def next_message(self, source: int, tag: int = 0) -> Array:
        """The next message with a tag. The engine has no tags: messages arrive in the order of sending. Earlier
        messages with other tags wait like unread ones, and no device is charged for them."""
        box = self.unread.setdefault((source, tag), [])
        while not box:
            of = next(self.tags[source])
            self.unread.setdefault((source, of), []).append(self._port.receive(source))
        array, meter = box.pop(0), self._port.meter
        return array if meter is None else self._port.library.charged(array, meter)


PERFORM: Mapping[str, Callable[[ReplayEngine, Op, list[Array]], Sequence[Array]]] = {
    "load_weights": ReplayEngine.load,
    "get_activation": lambda engine, op, used: [
        engine.of_each_batch(engine.workload.input, engine.contents[op.outputs[0]])
    ],
    "fake_grad": lambda engine, op, used: [engine.zeros(engine.contents[op.outputs[0]].shape)],
    "forward": ReplayEngine.layer_forward,
    "loss": ReplayEngine.loss,
    "backward": ReplayEngine.layer_backward,
    "pair": ReplayEngine.pair,
    "backward_input": lambda engine, op, used: [engine.layer(op).backward_input(*used)],
    "backward_weight": lambda engine, op, used: [engine.layer(op).backward_weight(*used)],
    "keys": lambda engine, op, used: [_layer(engine, op).keys(*used)],
    "attend": attend,
    "attend_backward": attend_backward,
    "keys_backward": lambda engine, op, used: _layer(engine, op).keys_backward(*used),
    "delta": lambda engine, op, used: [used[0] - used[1]],
    "outer_update": outer_update,
    "merge": lambda engine, op, used: [engine.workload.mixed(*used)],
    "norm": lambda engine, op, used: [engine.workload.squares(used[0])],
    "update": ReplayEngine.update,
    "tier_update": lambda engine, op, used: engine.without_device(op, engine.update),
    "add": lambda engine, op, used: [used[0] + used[1]],
    "combine": ReplayEngine.combine,
    "shard": ReplayEngine.cut,
    **dict.fromkeys(TENSOR_COLLECTIVES, ReplayEngine.meet),
    **dict.fromkeys(ROOT_OF, pass_along),
    "pass_to": ReplayEngine.send_values,
    "receive": ReplayEngine.receive_values,
    "offload": ReplayEngine.parked,
    "fetch": ReplayEngine.fetched,
    "move": lambda engine, op, used: engine.without_device(op, lambda op, there: there),
    "set_final_weight": ReplayEngine.declare,
    "set_final_copy": ReplayEngine.declare,
    "set_output": ReplayEngine.declare,
}
"""Each operation that touches tensors, by name: maps the tensors it uses to those it creates."""
