"""Random programs, with the arrays that every device must then hold, and what its meter must read.

Each program is made together with a simulation of the devices, which uses numpy's own functions on native arrays, the
formulas of a ring for bytes, and none of the engine's code.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import numpy as np

from lib import RuleError
from lib.engine import launch, metering
from lib.engine.collectives import COLLECTIVES
from tests.oracles.collective_arrays import UFUNCS, N, difference, results

from .script import PATIENCE, Script

KINDS = ("?", "i1", "i2", "u4", "i8", "f2", "f4", "u8", "f8", "c8", "c16", "u2")
SHAPES = ((), (0,), (4, 0), (2, 0, 3), (12,), (4, 6), (12, 2, 2), (24, 36))
MOST_BYTES = 1 << 14
"""Longer arrays are not gathered again."""
VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda a: a,
    "transposed": lambda a: a.T,
    "every other": lambda a: a[..., ::2] if a.ndim else a,
}
SAME_SHAPE: tuple[Callable[[Any], Any], ...] = (lambda a: a, lambda a: a[::-1] if a.ndim else a)


class Device:
    """What one device holds and has counted. `small` names arrays of small numbers, whose sums and products are
    exact."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.small: set[str] = set()
        self.live = self.peak = self.sent = self.flops = self.clock = self.stored = 0
        self.calls: Counter[str] = Counter()

    def hold(self, name: str, array: Any, small: bool) -> None:
        self.held[name] = array
        self.small |= {name} if small else set()
        self.touch(array.nbytes)
        self.live += array.nbytes

    def touch(self, nbytes: int) -> None:
        self.peak = max(self.peak, self.live + nbytes)

    def drop(self, name: str) -> None:
        self.live -= self.held.pop(name).nbytes


Act = Callable[[Any, dict[str, Any]], Any]


class Program:
    """`acts` are what each device does, in order; `devices` their simulation."""

    def __init__(self, seed: int, steps: int = 40) -> None:
        self.random = Random(seed)
        self.devices = [Device() for _ in range(N)]
        self.acts: list[list[Act]] = [[] for _ in range(N)]
        self.inputs: list[dict[str, Any]] = [{} for _ in range(N)]
        self.buffers: list[str] = []
        self.puts: list[list[tuple[int, str, slice, Any]]] = [[] for _ in range(N)]
        self.messages: dict[tuple[int, int], deque[tuple[Any, int, bool]]] = defaultdict(deque)
        self.made = 0
        for shape in SHAPES:
            self.give(shape, np.dtype(self.random.choice(KINDS)))
        self.give((4, 6), np.dtype("f4"))
        self.symmetric()
        kinds = (self.collective, self.collective, self.send, self.receive, self.put, self.put, self.barrier)
        for _ in range(steps):
            self.random.choice((*kinds, self.product, self.drop, self.symmetric, self.refused))()
        while any(self.messages.values()):
            self.receive()
        self.barrier([list(range(N))])

    def name(self) -> str:
        self.made += 1
        return f"a{self.made}"

    def give(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """An input of each device, in C or in Fortran order."""
        name = self.name()
        for given, device in zip(self.inputs, self.devices):
            numbers = [self.random.randrange(4) for _ in range(int(np.prod(shape)))]
            array = np.array(numbers, "i8").reshape(shape).astype(dtype, order=self.random.choice("CF"))
            given[name] = array
            device.hold(name, array.copy(), small=True)

    def symmetric(self) -> None:
        name, dtype = self.name(), np.dtype(self.random.choice(KINDS[:10]))
        self.buffers.append(name)
        for i, device in enumerate(self.devices):
            device.hold(name, np.zeros(6, dtype), small=True)
            self.acts[i].append(lambda me, held: held.update({name: me.symmetric(6, dtype)}))
        self.meet(range(N))

    def groups(self) -> list[list[int]]:
        """Disjoint groups, each in any order; some devices are in none."""
        order = self.random.sample(range(N), N)
        at = self.random.choice((1, 2, 3, N, N, N))
        return [order[:at], order[at:]] if at < N and self.random.random() < 0.8 else [order[:at]]

    def meet(self, group: Any) -> None:
        latest = max(self.devices[i].clock for i in group)
        for i in group:
            self.devices[i].clock = latest

    def collective(self) -> None:
        for group in self.groups():
            held = [self.devices[i].held for i in group]
            kinds = [{(name, a.dtype.str, a.shape) for name, a in one.items()} for one in held]
            self.collective_of(group, self.random.choice(sorted(set.intersection(*kinds)))[0])

    def collective_of(self, group: list[int], source: str) -> None:
        view, n = VIEWS[self.random.choice(list(VIEWS))], len(group)
        looks = {i: self.random.choice(SAME_SHAPE) for i in group}
        native = [look(view(self.devices[i].held[source])) for i, look in looks.items()]
        dtype, shape = native[0].dtype, native[0].shape
        small = all(source in self.devices[i].small for i in group)
        cuts = [axis for axis, length in enumerate(shape) if length % n == 0]
        names = ["all_gather"] if native[0].nbytes < MOST_BYTES else []
        names += ["all_to_all"] if cuts else []
        if small and dtype.kind in "biufc":
            names += ["all_reduce", "reduce_scatter"] if cuts else ["all_reduce"]
        if not names:
            return
        call, op = self.random.choice(names), self.random.choice(list(UFUNCS))
        axis = self.random.choice(cuts) if call in ("all_to_all", "reduce_scatter") else 0
        axis = self.random.randrange(len(shape)) if call == "all_gather" and shape else axis
        size = native[0].nbytes
        sent = {"all_gather": (n - 1) * size, "all_reduce": 2 * (n - 1) * size // n}.get(call, (n - 1) * size // n)
        arguments: dict[str, Any] = (
            {} if call == "all_reduce" else {"axis": axis - len(shape) * self.random.randrange(2)}
        )
        if call == "all_gather" and not shape:
            arguments = {}
        arguments |= {"op": op} if call in ("all_reduce", "reduce_scatter") else {}
        arguments |= {} if group == list(range(N)) else {"group": group}
        name = self.name()
        for i, wanted in zip(group, results(call, native, op, axis)):
            self.devices[i].hold(name, wanted, small and call in ("all_gather", "all_to_all"))
            self.devices[i].sent += sent
            self.devices[i].calls[call] += 1
            look = looks[i]

            def act(me: Any, held: dict[str, Any], look: Any = look) -> None:
                held[name] = getattr(me, call)(look(view(held[source])), **arguments)

            self.acts[i].append(act)
        self.meet(group)

    def send(self) -> None:
        source, to = self.random.sample(range(N), 2)
        device = self.devices[source]
        name, view = self.random.choice(list(device.held)), VIEWS[self.random.choice(list(VIEWS))]
        array = view(device.held[name]).copy()
        device.sent += max(array.nbytes, 8) + 8 * max(array.ndim - 1, 0)
        device.calls["send"] += 1
        self.messages[source, to].append((array, device.clock, name in device.small))
        self.acts[source].append(lambda me, held: me.send(to, view(held[name])))

    def receive(self) -> None:
        waiting = [pair for pair, arrays in self.messages.items() if arrays]
        if waiting:
            source, to = self.random.choice(waiting)
            array, clock, small = self.messages[source, to].popleft()
            name, device = self.name(), self.devices[to]
            device.calls["receive"] += 1
            device.stored = max(device.stored, device.live)
            device.clock = max(device.clock, clock)
            device.hold(name, array, small)
            self.acts[to].append(lambda me, held: held.update({name: me.receive(source)}))

    def put(self) -> None:
        source, to = self.random.sample(range(N), 2)
        device, buffer = self.devices[source], self.random.choice(self.buffers)
        place = slice(self.random.randrange(6), self.random.randrange(7), self.random.choice((1, 2, None)))
        seen = device.held[buffer][place]
        array = np.full(seen.shape, self.random.randrange(4), seen.dtype)
        device.touch(array.nbytes)
        skips = array.size > 1 and place.step == 2
        device.sent += max(array.nbytes, 8) + 8 * (1 + skips + max(array.ndim - 1, 0))  # its place, its step, its shape
        device.calls["send_async"] += 1
        self.puts[source].append((to, buffer, place, array))
        number = int(array[0].real) if array.size else 0
        put = lambda me, held: me.send_async(np.full(seen.shape, number, seen.dtype), held[buffer][place], to)  # noqa: E731
        self.acts[source].append(put)

    def barrier(self, groups: list[list[int]] | None = None) -> None:
        for group in groups or self.groups():
            for source in group:
                for to, buffer, place, array in [put for put in self.puts[source] if put[0] in group]:
                    self.devices[to].held[buffer][place] = array
                self.puts[source] = [put for put in self.puts[source] if put[0] not in group]
            for i in group:
                self.devices[i].calls["barrier"] += 1
                self.acts[i].append(lambda me, held, group=group: me.barrier(group))  # type: ignore[misc]
            self.meet(group)

    def product(self) -> None:
        i = self.random.randrange(N)
        device = self.devices[i]
        found = [n for n in device.small if (a := device.held.get(n)) is not None and a.ndim == 2 and a.dtype == "f4"]
        if found:
            source, name = self.random.choice(sorted(found)), self.name()
            a = device.held[source]
            device.flops += 2 * len(a) * len(a) * a.shape[1]
            device.clock += 2 * len(a) * len(a) * a.shape[1]
            device.hold(name, a @ a.T, small=False)
            self.acts[i].append(lambda me, held: held.update({name: held[source] @ held[source].T}))

    def drop(self) -> None:
        i = self.random.randrange(N)
        name = self.random.choice([name for name in self.devices[i].held if name not in self.buffers])
        if len(self.devices[i].held) > len(SHAPES):
            self.devices[i].drop(name)
            self.acts[i].append(lambda me, held: held.pop(name))

    def refused(self) -> None:
        """A call that sends nothing, because its argument is invalid; the class catches the error."""
        i = self.random.randrange(N)
        calls: tuple[Act, ...] = (
            lambda me, held: me.send(i, 1),
            lambda me, held: me.all_reduce(1, "mean"),
            lambda me, held: me.barrier([N]),
            lambda me, held: me.send_async(1, 1, i),
        )
        self.acts[i].append(partial(_caught, self.random.choice(calls)))


def _caught(act: Act, me: Any, held: dict[str, Any]) -> None:
    with suppress(RuleError):
        act(me, held)
        raise AssertionError("this was not refused")


def _run(on: str, program: Program) -> tuple[list[list[str]], Any]:
    """What is wrong with the arrays of each device, and the meters."""

    def does(me: Any, held: dict[str, Any]) -> list[str]:
        for act in program.acts[me.device_id]:
            act(me, held)
        wanted = program.devices[me.device_id].held
        assert list(held) == list(wanted)
        # To compare takes numbers out of arrays. `unmetered` is refused once a test has imported the stage of a worker.
        meter, metering.current.meter = metering.current.meter, None
        differences = [text for name in held if (text := difference(held[name], wanted[name]))]
        metering.current.meter = meter
        return differences

    with launch(Script, N, does, on=on, metered=True, patience=PATIENCE) as run:
        wrong = run.forward(program.inputs)
        return wrong, run.meters


def _random_programs(on: str, seeds: range) -> None:
    made: set[str] = set()
    for seed in seeds:
        program = Program(seed)
        made.update(*(device.calls for device in program.devices))
        wrong, meters = _run(on, program)
        assert wrong == [[]] * N, (seed, wrong)
        for device, reading in zip(program.devices, meters):
            counted = {name: getattr(reading, name) for name in ("sent", "flops", "peak", "stored", "clock")}
            assert counted == {name: getattr(device, name) for name in counted}, seed
            assert reading.calls == dict(device.calls), seed
        if on != "inprocess":
            assert meters == _run("inprocess", program)[1], seed
    assert made == {*COLLECTIVES, "send", "receive", "send_async", "barrier"}


def random_programs(on: str) -> None:
    """All collectives, reductions, dtypes, groups and memory orders; messages, puts, barriers, products."""
    _random_programs(on, range(6))


def many_random_programs(on: str) -> None:
    _random_programs(on, range(100, 250))
