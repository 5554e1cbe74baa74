"""The engine: classes on devices, streams, late puts, and what is refused."""

import gc
import sys
import threading
import weakref
from contextlib import suppress
from copy import copy, deepcopy
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import DeadlockError, RuleError
from lib.engine import Reader, ShardedEngine, Writer, devices
from lib.engine.flops import MAX_SCALES
from lib.engine.inprocess import InProcessPort
from lib.engine.launcher import launch
from tests.oracles.collective_arrays import N
from tests.support.engine_bodies import BODIES, EXHAUSTIVE
from tests.support.engine_bodies.script import Script, on_each
from tests.support.engine_bodies.streams import Assembly, ReadingAssembly
from tests.support.examples import examples
from tests.support.refusals import Refused


@pytest.mark.sampled(12)
@pytest.mark.parametrize("body", [pytest.param(b, marks=pytest.mark.slow if b in EXHAUSTIVE else []) for b in BODIES])
def test_in_process(body: str) -> None:
    BODIES[body]("inprocess")


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


class SingleDevice(ShardedEngine):
    """The two-layer model on one device, as the chapter writes it."""

    def __init__(self, model_dim: int, hidden_dim: int) -> None:
        self.w0 = np.zeros((model_dim, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim, model_dim), dtype=np.float32)
        self.activations: list[Any] = []

    def load_checkpoint(self, params: Any) -> None:
        self.w0[...] = params["layer_0/weights"][...]
        self.w1[...] = params["layer_1/weights"][...]

    def forward(self, x: Any) -> Any:
        self.activations.append(x)
        z = np.einsum("bd,df->bf", x, self.w0)
        self.activations.append(z)
        return np.einsum("bf,fd->bd", relu(z), self.w1)

    def backward(self, grads: Any) -> Any:
        z = self.activations.pop()
        w1_grad = np.einsum("bf,bd->fd", relu(z), grads)
        grads = np.einsum("bd,fd->bf", grads, self.w1) * (z > 0)
        w0_grad = np.einsum("bd,bf->df", self.activations.pop(), grads)
        return {"layer_0/weights": w0_grad, "layer_1/weights": w1_grad}


class DataParallel(SingleDevice):
    def backward(self, grads: Any) -> Any:
        return {name: self.all_reduce(grad) for name, grad in super().backward(grads).items()}


def whole(*shape: int, seed: int = 3) -> Any:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


PARAMS = {"layer_0/weights": whole(16, 64), "layer_1/weights": whole(64, 16)}


def test_a_single_device_needs_no_launch_and_data_parallel_is_three_more_lines() -> None:
    x, g = whole(8, 16, seed=5), whole(8, 16, seed=6)
    alone = SingleDevice(16, 64)
    alone.load_checkpoint(PARAMS)
    out, grads = alone.forward(x), alone.backward(g)
    with launch(SingleDevice, num_devices=1, model_dim=16, hidden_dim=64) as run:
        run.load_checkpoint(PARAMS)
        assert np.array_equal(run.forward(x)[0], out)
        assert all(np.array_equal(grads[name], grad) for name, grad in run.backward(g)[0].items())
    with launch(DataParallel, num_devices=4, model_dim=16, hidden_dim=64) as run:
        run.load_checkpoint(PARAMS)
        outs = run.forward(np.split(x, 4))
        every = run.backward(np.split(g, 4))
    assert np.array_equal(np.concatenate(outs), out)
    assert all(np.array_equal(grads[name], device[name]) for device in every for name in grads)
    assert [(m.sent, m.flops, m.collectives) for m in run.meters] == [(12_288, 20_480, 2)] * 4


@pytest.mark.slow
def test_two_runs_have_the_same_meters_and_freed_arrays_are_not_live() -> None:
    def readings() -> Any:
        with launch(DataParallel, num_devices=4, model_dim=16, hidden_dim=64) as run:
            run.load_checkpoint(PARAMS)
            run.forward(whole(2, 16))
            run.backward(whole(2, 16))
            return run.meters

    first = readings()
    gc.collect()
    assert first == readings()
    assert first[0].live == 2 * 4096 + 2 * 4096  # weights, and the gradients that the last call returned


def test_what_was_brought_to_a_collective_is_gone_before_the_others_go_on() -> None:
    def body(me: Any, x: Any) -> int:
        brought = (np.zeros(8) + 1).reshape(2, 4)  # a view, which no plain array stands for
        total = me.all_reduce(brought)
        del brought
        live: int = me._port.meter.live
        assert total.nbytes == 64
        return live

    with launch(Script, 3, body) as run:
        assert run.forward(0) == [64] * 3


@pytest.mark.slow
def test_large_results_are_charged_once() -> None:
    def body(me: Any, x: Any) -> list[int]:
        before = me._port.meter.live
        kept = [me.all_gather(x), me.all_to_all(x)]
        during = me._port.meter.live
        kept.clear()
        gc.collect()
        return [during - before, me._port.meter.live - before]

    with launch(Script, 2, body) as run:
        assert run.forward(np.ones((512, 1024), np.float32)) == [[3 * 2 << 20, 0]] * 2


def test_what_is_kept_of_lent_parameters_is_charged() -> None:
    class Keeps(Script):
        def load_checkpoint(self, params: Any) -> None:
            self.part = params["w"][:1]  # a view keeps the whole block alive

    with launch(Keeps, 1, lambda me, x: None) as run:
        run.load_checkpoint({"w": np.zeros((8, 4), np.float32), "v": np.zeros(100)})
        assert run.meters[0].live == 128


def test_lent_parameters_cannot_be_changed() -> None:
    class Changes(Script):
        def load_checkpoint(self, params: Any) -> None:
            params["w"][0] = 1

    with pytest.raises(ValueError, match="read-only"), launch(Changes, 2, None) as run:
        run.load_checkpoint({"w": np.zeros(3)})


PRODUCTS = {
    "operator": (lambda a, b: a @ b, 2 * 2 * 3 * 4),
    "matmul": (lambda a, b: np.matmul(a, b), 2 * 2 * 3 * 4),
    "batched": (lambda a, b: np.stack([a] * 5) @ b, 5 * 2 * 2 * 3 * 4),
    "dot": (lambda a, b: np.dot(a, b), 2 * 2 * 3 * 4),
    "method": (lambda a, b: a.dot(b), 2 * 2 * 3 * 4),
    "inner": (lambda a, b: np.inner(a, b.T), 2 * 2 * 3 * 4),
    "vdot": (lambda a, b: np.vdot(a, a), 2 * 6),
    "vectors": (lambda a, b: a[0] @ b[:, 0], 2 * 3),
    "tensordot": (lambda a, b: np.tensordot(a, b, 1), 2 * 2 * 3 * 4),
    "outer tensordot": (lambda a, b: np.tensordot(a, b, 0), 2 * 6 * 12),
    "einsum": (lambda a, b: np.einsum("ij,jk", a, b), 2 * 2 * 3 * 4),
    "einsum optimized": (lambda a, b: np.einsum("ij,jk->ik", a, b, optimize=True), 2 * 2 * 3 * 4),
    "einsum in steps": (lambda a, b: np.einsum("ij,jk,kl->il", a, b, b.T, optimize=True), 2 * (3 * 4 * 3 + 2 * 3 * 3)),
    "einsum at once": (lambda a, b: np.einsum("ij,jk,kl->il", a, b, b.T), 2 * 2 * 3 * 4 * 3),
    "einsum of lists in steps": (
        lambda a, b: np.einsum(a, [0, 1], b, [1, 2], b.T, [2, 3], optimize="greedy"),
        2 * (3 * 4 * 3 + 2 * 3 * 3),
    ),
    "einsum on a given path": (
        lambda a, b: np.einsum("...ij,jk,kl", a, b, b.T, optimize=["einsum_path", (0, 1), (0, 1)]),
        2 * (2 * 3 * 4 + 2 * 4 * 3),
    ),
    "matmul of other axes": (lambda a, b: np.matmul(a.T, b, axes=[(1, 0), (0, 1), (0, 1)]), 2 * 2 * 3 * 4),
    "einsum of lists": (lambda a, b: np.einsum(a, [0, 1], b, [1, 2]), 2 * 2 * 3 * 4),
    "einsum with dots": (lambda a, b: np.einsum("...ij,jk->...ik", np.stack([a] * 5), b), 5 * 2 * 2 * 3 * 4),
    "einsum of one": (lambda a, b: np.einsum("ij->ji", a), 0),
    "into": (lambda a, b: np.dot(a, b, np.empty((2, 4))), 2 * 2 * 3 * 4),
    "plain": (lambda a, b: np.ones((2, 3)) @ np.ones((3, 4)), 2 * 2 * 3 * 4),
    "asarray": (lambda a, b: np.asarray(a) @ np.asarray(b), 2 * 2 * 3 * 4),
    "sum": (lambda a, b: a.sum(), 0),
    "elementwise": (lambda a, b: a * a, 2 * 6),
    "in place": (lambda a, b: a.__imul__(a), 2 * 6),
    "row by row": (lambda a, b: sum(a[:, [j]] * b[j] for j in range(3)), 2 * 2 * 3 * 4),
    "by broadcasting": (lambda a, b: (a[:, :, None] * b).sum(1), 2 * 2 * 3 * 4),
    "by its elements": (lambda a, b: sum(b[j] * a[1, j] for j in range(3)), 2 * 3 * 4),
    "quotients": (lambda a, b: b / b.max(), 2 * 12),
    "squares": (lambda a, b: a**2, 2 * 6),
    "a mask": (lambda a, b: a * (a > 1), 0),
    "a rate": (lambda a, b: 0.5 * a / 3, 0),
    "a mean": (lambda a, b: a.mean(axis=0), 0),
    "numbers of Python": (lambda a, b: sum(a * float(number) for number in range(20)), 2 * 6 * (20 - MAX_SCALES)),
    "outer": (lambda a, b: np.outer(a, b), 2 * 6 * 12),
    "kron": (lambda a, b: np.kron(a, b), 2 * 6 * 12),
    "outer of a ufunc": (lambda a, b: np.multiply.outer(a, b), 2 * 6 * 12),
    "at": (lambda a, b: np.multiply.at(b, [0, 0], b[1:]), 2 * 2 * 4),
    "reduce": (lambda a, b: np.multiply.reduce(a), 2 * 6),
    "convolve": (lambda a, b: np.convolve(a[0], b[0]), 2 * 3 * 4),
    "cross": (lambda a, b: np.cross(a, a), 4 * 6),
    "covariance": (lambda a, b: np.cov(a), 2 * 6 * 2),
    "multi_dot": (lambda a, b: np.linalg.multi_dot([a, b, b.T]), 2 * (2 * 3 * 4 + 2 * 4 * 3)),
    "matrix_power": (lambda a, b: np.linalg.matrix_power(b[:, :3], 2), 2 * 3 * 3 * 3),
    "complex": (lambda a, b: a @ (b[:, :2] + 1j * b[:, 2:]), 4 * 2 * 2 * 3 * 2),
    "complex elements": (lambda a, b: np.multiply(1j + a, 1j + a), 4 * 2 * 6),
    "a norm": (lambda a, b: np.linalg.norm(a), 2 * 6),
    "a remainder": (lambda a, b: np.divmod(a, a + 1)[0], 2 * 2 * 6),
    "a remainder of a number": (lambda a, b: a % 3, 0),
    "a common multiple": (lambda a, b: np.lcm(a.astype(int), a.astype(int)), 2 * 6),
    "a condition": (lambda a, b: np.linalg.cond(b[:, :3] + np.eye(3)), 2 * 9 * 3),
    "a tensor inverse": (lambda a, b: np.linalg.tensorsolve(np.eye(3), b[0, :3]), 2 * 9 * 3 + 2 * 3 * 3),
    "a system with four right-hand sides": (lambda a, b: np.linalg.solve(np.eye(3), b), 2 * 9 * 3 + 2 * 3 * 3 * 4),
    "systems of one number": (lambda a, b: np.linalg.solve(np.full((1, 1), 2.0), b[:1]), 2 + 2 * 4),
    "a covariance with a second operand": (lambda a, b: np.cov(a[:1], y=a), 2 * 9 * 3),
    "an operand by its name": (lambda a, b: np.dot(a, b=b), 2 * 2 * 3 * 4),
    "reciprocals": (lambda a, b: np.reciprocal(1 / (1 + b)), 2 * 12 * 2),
    "powers of 2": (lambda a, b: np.ldexp(b, 3), 2 * 12),
    "powers": (lambda a, b: np.vander(a[0], 4), 2 * 3 * 4),
    "inverse": (lambda a, b: np.linalg.inv(b[:, :3] + np.eye(3)), 2 * 3 * 3 * 3),
    "fourier": (lambda a, b: np.fft.fft(b[0]), 5 * 4 * 2),
    "a view as a plain array": (lambda a, b: a.view(np.ndarray) @ b.view(np.ndarray), 2 * 2 * 3 * 4),
    "what a view is of": (lambda a, b: a.copy()[:].base @ b, 2 * 2 * 3 * 4),
    "copies": (lambda a, b: copy(a) @ deepcopy(b), 2 * 2 * 3 * 4),
}


if hasattr(np, "vecdot"):
    PRODUCTS["vectors along an axis"] = (lambda a, b: np.vecdot(a, a, axis=0), 2 * 2 * 3)


@pytest.mark.parametrize("name", PRODUCTS)
def test_flops_are_two_times_the_product_of_the_index_sizes(name: str) -> None:
    product, flops = PRODUCTS[name]
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    with launch(Script, 1, lambda me, x: product(x["a"], x["b"])) as run:
        (result,) = run.forward({"a": a, "b": b})
        assert np.array_equal(result, product(a, b))
        assert run.meters[0].flops == flops


def test_the_bases_of_an_array_end() -> None:
    def bases(me: Any, x: Any) -> int:
        view, found = x["a"].copy()[1:][1:], 0
        while view.base is not None:
            view, found = view.base, found + 1
            assert found < 5
        return found

    with launch(Script, 1, bases) as run:
        assert run.forward({"a": np.arange(6.0)}) == [1]


MEMORY = {
    "a new array": (lambda x: [np.zeros(10, np.int8)], 10, 10),
    "views": (lambda x: [x[1:], x.T, x.reshape(-1), x.real], 32, 0),
    "copies": (lambda x: [x.copy(), x[[0, 1]], x.astype(np.float32), x + 0, x.flatten(), x.T.reshape(-1)], 192, 192),
    "in place": (lambda x: x.__iadd__(x), 32, 0),
    "temporaries": (lambda x: np.sum(x * x + x), 0, 64),
    "asarray": (lambda x: [np.asarray(x), np.asanyarray(x)], 32, 0),
    "asarray of what was made": (lambda x: [np.asarray(x + x), np.asarray(a=x + x), np.require((x + x)[:1])], 96, 96),
    "joined": (lambda x: [np.concatenate([x, x]), np.stack([x, x])], 128, 128),
    "split": (lambda x: np.split(x, 2), 32, 0),
    "into": (lambda x: np.add(x, x, out=x), 32, 0),
    "chance": (lambda x: [np.random.default_rng(1).random(3), np.random.random(2)], 40, 40),
    "a mask": (lambda x: x * (x > 0), 32, 8 + 32),
    "two results": (lambda x: list(np.modf(x)), 64, 64),
}
"""An operation on an input of 32 bytes, the bytes that are live afterwards, and what the peak adds to 32."""


@pytest.mark.parametrize("name", MEMORY)
def test_a_block_of_memory_is_charged_once_while_anything_refers_to_it(name: str) -> None:
    does, live, more = MEMORY[name]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with launch(Script, 1, lambda me, x: does(x)) as run:
        run.forward(x)
        assert (run.meters[0].live, run.meters[0].peak) == (live, 32 + more)


def test_without_meters_arrays_are_plain_and_numpy_is_untouched() -> None:
    zeros, rng = np.zeros, np.random.default_rng
    with launch(Script, 1, lambda me, x: type(me.all_reduce(x)).__name__, metered=False) as run:
        assert run.forward(np.ones(2)) == ["ndarray"]
        with pytest.raises(RuleError, match="metered=True"):
            _ = run.meters
    with launch(Script, 1, lambda me, x: np.zeros is zeros) as run:
        assert run.forward(np.ones(2)) == [False]
    assert (np.zeros, np.random.default_rng) == (zeros, rng)


def test_an_empty_array_costs_its_shape_because_that_arrives() -> None:
    def sends_a_shape(me: Any, x: Any) -> Any:
        return me.send(1, np.zeros((0, 123))) if me.device_id == 0 else me.receive(0).shape[1]

    with launch(Script, 2, sends_a_shape) as run:
        assert run.forward(0) == [None, 123]
        assert [m.sent for m in run.meters] == [2 * 8, 0]


def test_a_device_alone_cannot_wait() -> None:
    with Refused("no such device", device=1):
        Script(None).receive(1)  # type: ignore[arg-type]
    with Refused("nobody can move", devices={"waits in receive(1)": [0], "has returned": [1]}):
        on_each("inprocess", lambda me, x: me.receive(1) if me.device_id == 0 else None, n=2)


def test_a_player_that_catches_everything_is_ended_all_the_same() -> None:
    def does(me: Any, x: Any) -> Any:
        if me.device_id == 0:
            raise KeyError("mine")
        for _ in range(5):
            with suppress(BaseException):
                me.barrier()
        return None

    with pytest.raises(KeyError):
        on_each("inprocess", does)


def test_inputs_are_not_kept_for_devices_that_read_none(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Any] = []

    class Counted(np.ndarray):  # type: ignore[type-arg]
        """An array that can be counted while it exists."""

    def endless() -> Any:
        while True:
            item = np.zeros(1).view(Counted)
            alive.append(weakref.ref(item))
            yield item
            del item

    monkeypatch.setattr(devices, "MAX_UNREAD", 10)
    with launch(Assembly, 4, metered=False) as run:
        for number, _ in enumerate(run.inference_loop(endless())):
            if number == 100:
                break
        assert sum(ref() is not None for ref in alive) <= 12

    class ReadsLate(Assembly):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            if self.device_id:
                self.receive(0)
            number = sum(1 for _ in input_stream)
            if not self.device_id:
                self.send(1, np.array(number))

    refused = Refused("stream read late", device=1, read=30)
    with refused, launch(ReadsLate, 2, metered=False) as run:
        list(run.inference_loop(np.arange(30)))
    with launch(ReadsLate, 2, metered=False) as run:
        assert list(run.inference_loop(np.arange(9))) == []


def test_waits_that_are_alike_are_named_together() -> None:
    def does(me: Any, x: Any) -> Any:
        device = int(me.device_id)
        return me.receive(7) if device in (0, 2, 5) else None if device == 4 else me.barrier()

    waiting = {"waits in receive(7)": [0, 2, 5], "waits in barrier()": [1, 3, *range(6, 1000)], "has returned": [4]}
    with pytest.raises(DeadlockError, match="devices 0, 2, 5") as caught:
        on_each("inprocess", does, n=1000)
    devices = caught.value.problem.facts["devices"]  # type: ignore[attr-defined]
    assert {state.partition(",")[0]: alike for state, alike in devices.items()} == waiting
    assert "1, 3, 6 to" in str(caught.value)


def test_a_deadlock_names_the_players_line_also_through_a_wrapped_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the sandbox, where a log wraps the calls of a device."""
    names: dict[str, Any] = {"__name__": "puzzles.anywhere", "receive": InProcessPort.receive}
    exec("def wrapped(port, source): return receive(port, source)", names)
    monkeypatch.setattr(InProcessPort, "receive", names["wrapped"])
    with pytest.raises(DeadlockError, match=r"line \d+ of test_engine\.py"):
        on_each("inprocess", lambda me, x: me.receive(1) if me.device_id == 0 else None, n=2)


def test_runs_in_several_threads_have_meters_of_their_own() -> None:
    """Here the threads take turns, so that both runs are open all the time."""
    turn = threading.Barrier(2, timeout=30)

    def does(me: Any, x: Any) -> Any:
        kept = []
        for _ in range(4):
            if me.device_id == 0:
                turn.wait()
            kept.append(x @ np.ones_like(x))
        return kept

    found: dict[int, Any] = {}

    def run(size: int) -> None:
        with launch(Script, 2, does) as running:
            running.forward(np.ones((size, size)))
            found[size] = [(m.flops, m.peak) for m in running.meters]

    threads = [threading.Thread(target=run, args=(size,)) for size in (2, 5)]
    zeros = np.zeros
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [(4 * 2 * n**3, 8 * n * n * 6)] * 2 for n in (2, 5)}
    assert np.zeros is zeros


def test_a_thread_of_the_players_is_charged_to_the_device() -> None:
    def does(me: Any, x: Any) -> Any:
        if me.device_id == 1:
            thread = threading.Thread(target=lambda: np.ones((2, 3)) @ np.ones((3, 4)))
            thread.start()
            thread.join()

    with launch(Script, 2, does) as run:
        run.forward(0)
        assert [m.flops for m in run.meters] == [0, 48]


def test_the_types_of_streams_can_be_subscripted() -> None:
    assert [str(kind[np.ndarray]) for kind in (Reader, Writer)] == [
        f"lib.engine.engine.{name}[numpy.ndarray]" for name in ("Reader", "Writer")
    ]


def test_a_thousand_devices_run_in_one_process() -> None:
    n = 1000

    def does(me: Any, x: Any) -> Any:
        total = me.all_reduce(x)
        me.send((me.device_id + 1) % n, x)
        return [total[0], me.receive((me.device_id - 1) % n)[0]]

    got = on_each("inprocess", does, [np.array([i]) for i in range(n)], n=n)
    assert got == [[n * (n - 1) // 2, (i - 1) % n] for i in range(n)]

    def last_first(me: Any, x: Any) -> int:
        """Each device waits for the next one before it sends anything."""
        behind = int(me.receive(me.device_id + 1)) if me.device_id < n - 1 else 0
        if me.device_id:
            me.send(me.device_id - 1, behind + 1)
        return behind

    assert on_each("inprocess", last_first, n=n) == list(range(n - 1, -1, -1))


def test_a_stream_is_read_no_faster_than_its_outputs_are_taken() -> None:
    pulled: list[int] = []

    def endless() -> Any:
        for i in range(10**6):
            pulled.append(i)
            yield np.array(i)

    with launch(Script, 4, lambda me, x: x * 2, metered=False) as run:
        outputs = run.inference_loop(endless())
        assert [int(next(outputs)[0]) for _ in range(3)] == [0, 2, 4]
    assert len(pulled) < 10


# === Refusals ===


def test_launch_refuses_what_it_cannot_start() -> None:
    with Refused("no engine class", got=4):
        launch(4, Script)  # type: ignore[arg-type]
    with Refused("no whole number", what="num_devices", got="'4'"):
        launch(Script, "4")  # type: ignore[arg-type]
    with Refused("no list of devices", got="2"):
        launch(Script, 4, None, late_puts=2)  # type: ignore[arg-type]
    with Refused("no devices", size=0):
        launch(Script, 0)
    with Refused("no such transport", transport="udp", known="inprocess, mpi, torch"):
        launch(Script, 2, None, on="udp")
    refused = Refused("other number of inputs", inputs="3 inputs", devices="2 devices")
    with launch(Script, 2, lambda me, x: x) as run, refused:
        run.forward([1, 2, 3])


def test_launch_without_mpi4py_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "lib.engine.mpi", raising=False)
    with Refused("no MPI", install="pip install -e '.[mpi]'"):
        launch(Script, 1, None, on="mpi")


def test_a_run_that_failed_or_was_closed_says_so() -> None:
    with launch(Script, 2, lambda me, x: 1 / 0) as run:
        with pytest.raises(ZeroDivisionError):
            run.forward(0)
        with Refused("run has ended", because="of ZeroDivisionError: division by zero"):
            run.forward(0)
    with launch(Script, 2, lambda me, x: x) as run:
        pass
    with pytest.raises(RuleError, match="it was closed"):
        run.forward(0)


# === Bounded streams ===


class Stuck(ShardedEngine):
    """The first device waits for a message that never comes, while the others could go on for ever."""

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

    def forward(self, x: Any) -> Any:
        return x

    def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
        for x in input_stream:
            if self.device_id == 0:
                self.receive(1)
            else:
                self.go_on(x, output_stream)

    def go_on(self, x: Any, output_stream: Any) -> None:
        output_stream.write(x)


class OnlyReads(Stuck):
    def go_on(self, x: Any, output_stream: Any) -> None:
        """Drops the input."""


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (
            Stuck,
            "devices 1, 2 wait in the output stream, 1024 outputs before another device that has not written, line",
        ),
        (OnlyReads, "wait in the input stream, 1024 inputs before another device that reads it, line"),
    ],
)
def test_nobody_goes_on_for_ever_beside_a_device_that_waits(cls: type, words: str) -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        for taken in count():
            yield np.array(taken)

    with pytest.raises(DeadlockError) as why, launch(cls, 3) as run:
        list(run.inference_loop(endless()))
    assert "device 0 waits in" in str(why.value)
    assert words in str(why.value)
    assert taken < 1100


def test_whoever_is_ahead_goes_on_when_the_others_have_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.engine.devices.MAX_UNTAKEN", 3)
    monkeypatch.setattr(devices, "MAX_UNREAD", 3)

    class Late(Stuck):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            for i, x in enumerate(input_stream):
                if self.device_id == 1 and i % 2 == 0:
                    self.send(0, x)
                if self.device_id == 0 and i % 2 == 0:
                    self.receive(1)
                for _ in range(4):
                    output_stream.write(x)

    with launch(Late, 2) as run:
        rows = list(islice(run.inference_loop(np.array(i) for i in count()), 40))
    assert [[int(x) for x in row] for row in rows] == [[i // 4] * 2 for i in range(40)]


@pytest.mark.parametrize("cls", [Assembly, ReadingAssembly])
def test_outputs_come_while_the_stream_goes_on(cls: type) -> None:
    """The stream is read no faster than a full pipeline needs."""
    taken: list[int] = []
    pulled: list[int] = []

    def endless() -> Any:
        while True:
            assert len(pulled) <= len(taken) + N
            pulled.append(len(pulled))
            yield np.full(20, len(pulled))

    with launch(cls, N, metered=False) as run:
        for y in run.inference_loop(endless()):
            taken.append(int(y[0]))
            if len(taken) == 100:
                break
    assert taken == [i * 10**4 + 123 for i in range(1, 101)]


def test_on_processes_a_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_ON_PROCESSES", 10)
    assert devices.every_input(iter(range(10))) == [*range(10)]
    with Refused("stream too long", most=10):
        devices.every_input(count())


def test_an_input_needs_an_item_for_each_device() -> None:
    words = "input 1 of the stream has 2 items for 3 devices; give a list with one per device, or one array for all"
    with pytest.raises(RuleError, match=words), launch(Stuck, 3) as run:
        list(run.inference_loop([[np.ones(1)] * 3, [np.ones(1)] * 2]))


def test_unread_messages_of_many_devices_are_summed_up() -> None:
    class Ring(Stuck):
        def forward(self, x: Any) -> None:
            self.send((self.device_id + 1) % 100, x)

    with Refused("never received", unread=[(i, (i + 1) % 100, 1) for i in range(100)]):  # noqa: SIM117
        with launch(Ring, 100) as run:
            run.forward(np.ones(1))


# === Late puts: programs that wait for the barrier give the same result ===


FOUR = 4
DEVICES = st.integers(0, FOUR - 1)
SCHEDULES = st.none() | st.sets(DEVICES)


def run_with(does: Any, late_puts: Any) -> tuple[list[Any], Any]:
    with launch(Script, FOUR, does, late_puts=late_puts) as run:
        return run.forward(0), run.meters


def hands_around(me: Any, _: Any) -> Any:
    """Every device puts its number into a place of its own on the next one; no device waits for more than a sum."""
    buffer = me.symmetric(FOUR)
    mine = np.array([me.device_id + 1.0], np.float32)
    me.send_async(mine, buffer[me.device_id :][:1], (me.device_id + 1) % FOUR).wait()
    me.all_reduce(mine)
    before = buffer.copy()
    me.barrier()
    return {"before": before, "after": buffer}


def found(results: list[Any], when: str) -> list[float]:
    """The number of each device's left neighbour, or 0, that its buffer holds."""
    return [float(result[when][i - 1]) for i, result in enumerate(results)]


@pytest.mark.parametrize(
    ("late_puts", "before"),
    [
        (None, [0, 0, 0, 0]),
        ((), [4, 1, 2, 3]),
        ((2,), [4, 1, 2, 0]),
        ((0, 1, 2, 3), [0, 0, 0, 0]),
    ],
)
def test_a_late_put_lands_at_the_barrier_and_all_others_immediately(late_puts: Any, before: list[float]) -> None:
    results, _ = run_with(hands_around, late_puts)
    assert (found(results, "before"), found(results, "after")) == (before, [4, 1, 2, 3])
    assert run_with(hands_around, late_puts)[0][0]["before"].tolist() == results[0]["before"].tolist()


@examples(40)
@given(st.lists(st.tuples(DEVICES, DEVICES, st.integers(1, 9)), max_size=12), SCHEDULES)
def test_programs_that_wait_for_the_barrier_are_the_same_under_every_schedule(puts: Any, late: Any) -> None:
    """Any puts to distinct places, in rounds with a barrier between."""

    def rounds(me: Any, _: Any) -> Any:
        buffer = me.symmetric((len(puts) + 1, 2))
        seen = []
        for i, (source, target, number) in enumerate(puts):
            if source == me.device_id != target:
                me.send_async(np.full(2, number, np.float32), buffer[i], target)
            if i % 3 == 2:
                me.barrier()
                seen.append(buffer[: i + 1].copy())
        me.barrier()
        return [*seen, buffer]

    as_ever, under = run_with(rounds, None), run_with(rounds, late)
    assert under[1] == as_ever[1]
    for one, other in zip(as_ever[0], under[0]):
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("stranger", [4, -1])
def test_a_device_that_does_not_exist_is_refused(stranger: int) -> None:
    with Refused("no device for late_puts", device=stranger, size=FOUR, last=FOUR - 1):
        launch(Script, FOUR, None, late_puts=(0, stranger))
