"""The engine, in process: collectives, messages, meters, and how runs end."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest

from lib import DeadlockError, RuleError
from lib.engine import Reader, ShardedEngine, Writer, devices
from lib.engine.flops import MAX_SCALES
from lib.engine.inprocess import InProcessPort
from lib.engine.launcher import launch  # not the worker's, which refuses a device's own, where it has been imported
from tests.support.engine_bodies import BODIES
from tests.support.engine_bodies.script import Script, on_each
from tests.support.engine_bodies.streams import Assembly
from tests.support.refusals import Refused

EXHAUSTIVE = ("all_memory_orders", "many_launches", "many_random_programs")


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
