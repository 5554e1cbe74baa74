"""Executes one rank's part of a trace on the engine, with real tensors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from time import perf_counter
from typing import Any, cast

from lib.engine.collectives import Array
from lib.engine.executors.copies import copy_in
from lib.engine.libraries.numpy_library import NUMPY
from lib.engine.metering.meter import unmetered
from lib.engine.transports.tasks import getcurrent, greenlet
from lib.rules.collectives import ROOT_OF
from lib.trace.ops import TIMED, Op, halves

from .attention_and_outer import ATTENTION_AND_OUTER
from .chains import pass_along
from .contents import joined, taken
from .layers import Layer
from .script import RankScript
from .tensor_device import TENSOR_COLLECTIVES, TensorDevice
from .vocabulary import layer_of, settled
from .workload import Workload


class ReplayEngine(TensorDevice):
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
        self.results = []

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
        return layer_of(self.workload, op, [self.contents[number] for number in op.inputs])

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
    **ATTENTION_AND_OUTER,
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
