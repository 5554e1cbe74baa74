"""The engine on torch: the same classes on tensors, in processes over torch.distributed with gloo."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib import DeadlockError, MismatchError, RuleError
from lib.engine import ShardedEngine, launch

torch = pytest.importorskip("torch", reason="needs the extra: pip install -e '.[torch]'")
pytest.importorskip("array_api_compat", reason="needs the extra: pip install -e '.[torch]'")

ROOT = Path(__file__).parents[2]
N = 3
WEIGHT = np.arange(36.0).reshape(6, 6).astype("float32")


class Script(ShardedEngine):
    """Calls functions that are given to it, on tensors or arrays."""

    def __init__(self, *does: Callable[[Any, Any], Any]) -> None:
        self.does = does

    def load_checkpoint(self, params: Any) -> None:
        self.kept = params["w"][:2] if params.get("keep") else None

    def forward(self, x: Any) -> Any:
        return [does(self, x) for does in self.does]


def on(transport: str, *does: Callable[[Any, Any], Any], x: Any = WEIGHT, **options: Any) -> tuple[Any, Any]:
    with launch(Script, N, *does, on=transport, patience=0.5, **options) as run:
        return run.forward(x), run.meters


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    assert torch.is_tensor(found)
    return found.dtype is getattr(torch, expected.dtype.name) and np.array_equal(found.numpy(), expected)


OPS = ("sum", "avg", "max", "min", "prod")

COLLECTIVES: list[Callable[[Any, Any], Any]] = [
    *(lambda me, x, op=op: me.all_reduce(x + int(me.device_id), op) for op in OPS),
    *(lambda me, x, op=op: me.reduce_scatter(x - int(me.device_id), op, axis=1) for op in OPS),
    lambda me, x: me.all_gather(x.T * (1 + int(me.device_id)), axis=1),
    lambda me, x: me.all_gather(x[0, 0] + int(me.device_id)),
    lambda me, x: me.all_to_all(x * (1 + int(me.device_id)), axis=1),
    lambda me, x: me.all_to_all(x[:0]),
    lambda me, x: me.all_gather(x, group=[2, 0]) if me.device_id != 1 else x,
    lambda me, x: me.reduce_scatter(x, group=[1, 0]) if me.device_id != 2 else me.all_reduce(x, group=[2]),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_collectives_give_what_they_give_in_process(dtype: str) -> None:
    """Whole numbers, so that sums are exact in any order. What is true or false has no difference."""
    does = COLLECTIVES if dtype != "bool" else [lambda me, x, op=op: me.all_reduce(x, op) for op in OPS]
    x = [(WEIGHT % (device + 3)).astype(dtype) for device in range(N)]
    (expected, arrays), (found, tensors) = (on(where, *does, x=x) for where in ("inprocess", "torch"))
    assert all(map(same, found, expected))
    assert [(meter.sent, meter.calls) for meter in tensors] == [(meter.sent, meter.calls) for meter in arrays]


def messages(me: Any, x: Any) -> Any:
    """Each device sends several arrays around the ring, of several shapes, before it receives any."""
    there, back = (int(me.device_id) + 1) % N, (int(me.device_id) - 1) % N
    for part in (x, x[:1], x[:0], x[0, 0]):
        me.send(there, part * int(me.device_id))
    return [me.receive(back) for _ in range(4)]


def puts(me: Any, x: Any) -> Any:
    """Each device puts a strided part into the next one's buffer."""
    buffer = me.symmetric((4, 6))
    me.send_async(x[:2, 1::2] + int(me.device_id), buffer[1:3, ::2], (int(me.device_id) + 1) % N)
    me.barrier()
    return buffer


def tiers(me: Any, x: Any) -> Any:
    me.host.put("a", x)
    me.disk.put("a", x + 1)
    return me.host.fetch("a") + me.disk.fetch_async("a").wait()


def products(me: Any, x: Any) -> Any:
    return [x @ x, x @ x[0], me.xp.einsum("ij,kj->ik", x, x)]


def test_messages_puts_memories_and_meters_are_the_same() -> None:
    does = (messages, puts, tiers, products)
    (expected, arrays), (found, tensors) = (on(where, *does) for where in ("inprocess", "torch"))
    assert all(map(same, found, expected))
    names = ("sent", "calls", "flops", "live", "clock", "host", "disk")
    for mine, theirs in zip(tensors, arrays):
        assert {name: getattr(mine, name) for name in names} == {name: getattr(theirs, name) for name in names}


def test_parameters_are_charged_only_if_they_are_kept() -> None:
    def live(keep: bool) -> int:
        with launch(Script, 1, on="torch") as run:
            run.load_checkpoint({"w": WEIGHT, "keep": keep})
            return run.meters[0].live

    assert (live(False), live(True)) == (0, WEIGHT.nbytes)


def test_meters_agree_with_those_of_torch() -> None:
    """FlopCounterMode counts matrix products alike, also those of autograd; CommDebugMode the collectives."""

    def trains(me: Any, x: Any) -> Any:
        from torch.distributed.tensor.debug import CommDebugMode
        from torch.utils.flop_counter import FlopCounterMode

        before = me._port.meter.flops
        with FlopCounterMode(display=False) as flops, CommDebugMode() as calls:
            weight = x.clone().requires_grad_()
            (x @ weight).relu().sum().backward()
            me.all_reduce(weight.grad)
            me.all_gather(weight.grad)
            me.all_to_all(weight.grad)
        ours = me._port.meter.flops - before
        return [flops.get_total_flops(), ours, sum(calls.get_comm_counts().values())]

    found, meters = on("torch", trains)
    for [(theirs, ours, calls)], meter in zip(found, meters):
        assert theirs == ours == 2 * 2 * 6**3
        assert calls == meter.collectives == 3


def differs(me: Any, x: Any) -> Any:
    return me.all_reduce(x[:1] if me.device_id == 1 else x)


def absent(me: Any, x: Any) -> Any:
    return me.all_reduce(x) if me.device_id else x


def raises(me: Any, x: Any) -> Any:
    if me.device_id == 1:
        raise ValueError("wrong")
    return me.all_reduce(x)


@pytest.mark.parametrize(
    ("does", "kind", "words"),
    [
        (differs, MismatchError, "all_reduce(float32 (1, 6), op='sum')"),
        (absent, DeadlockError, "devices 1, 2 wait in all_reduce(float32 (6, 6), op='sum'), line"),
        (lambda me, x: me.receive((int(me.device_id) + 1) % N), DeadlockError, "device 0 waits in receive(1)"),
        (raises, ValueError, "wrong"),
        (lambda me, x: me.send(0, x), RuleError, "cannot send to or receive from itself"),
        (lambda me, x: me.all_reduce(np.ones(3)), RuleError, "this is an array of numpy"),
        (lambda me, x: np.dot(x, x), RuleError, "a function of numpy got a tensor of torch"),
        (lambda me, x: np.maximum(x, 0), RuleError, ", of self.xp, or a method, line "),
        (lambda me, x: me.all_reduce(x.to("meta")), RuleError, "is on meta, and the device computes on cpu"),
        (lambda me, x: me.send(1, x.to(torch.int16)), RuleError, "gloo cannot send a tensor of dtype int16"),
        (lambda me, x: me.all_gather(x.to(torch.float8_e5m2)), RuleError, "tensor of dtype float8_e5m2; convert"),
        (lambda me, x: me.all_gather(x.to_sparse()), RuleError, "gloo cannot send a tensor of layout torch.sparse"),
        (lambda me, x: me.all_reduce(x + 1j, "max"), RuleError, "torch has no max of complex numbers"),
        (lambda me, x: me.host.put("a", x.to(torch.bfloat16)), RuleError, "slower memory cannot store torch.bfloat16"),
        (lambda me, x: me.send_async(x, x, 1), RuleError, "dst is not a view of a symmetric buffer"),
    ],
)
def test_what_goes_wrong_is_named(does: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        on("torch", does)
    assert words in str(caught.value)


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(RuleError, match=r"all_reduce\(\): .*, line \d+ of test_torch.py$"):
        on("torch", lambda me, x: me.all_reduce(np.ones(3)))


def test_a_device_that_dies_is_named() -> None:
    def dies(me: Any, x: Any) -> Any:
        if me.device_id == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return me.all_reduce(x)

    with pytest.raises(RuleError, match=r"device 1 of 3 .*SIGKILL"):
        on("torch", dies)


def test_the_traceback_of_a_device_comes_with_its_error() -> None:
    with pytest.raises(ValueError, match="wrong") as caught:
        on("torch", raises)
    raised, lines = caught.value.__notes__
    assert "device 1 of 3," in raised
    assert 'raise ValueError("wrong")' in lines


def test_bfloat16_is_sent_and_reduced() -> None:
    found, meters = on("torch", lambda me, x: me.all_reduce(x.to(torch.bfloat16)))
    assert found[0][0].dtype is torch.bfloat16
    assert found[0][0].float().numpy().tolist() == (3 * WEIGHT).tolist()
    assert meters[0].sent == 2 * (N - 1) * WEIGHT.size * 2 // N


class Pipeline(ShardedEngine):
    def load_checkpoint(self, params: Any) -> None:
        """Has none."""

    def forward(self, x: Any) -> Any:
        if self.device_id:
            x = self.receive(int(self.device_id) - 1)
        if self.device_id < self.num_devices - 1:
            return self.send(int(self.device_id) + 1, x + 1)
        return x + 1


def test_a_stream_is_one_call() -> None:
    def numbers() -> Any:
        yield from np.arange(5.0)[:, None]

    with launch(Pipeline, N, on="torch") as run:
        assert [float(output) for output in run.inference_loop(numbers())] == [3, 4, 5, 6, 7]
        assert [float(output) for output in run.inference_loop(np.ones((4, 1)))] == [4] * 4


def test_devices_are_no_forks_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA cannot be used in a fork of a process that has used it."""

    def refused() -> int:
        raise AssertionError("the program was forked")

    monkeypatch.setattr(os, "fork", refused)
    found, _ = on("torch", lambda me, x: me.all_reduce(x[0, :2]))
    assert same(found[0], [N * WEIGHT[0, :2]])


class OwnError(Exception):
    """An error of the class's own, which its processes know by value only."""


def test_a_class_of_a_function_has_its_variables_and_its_errors() -> None:
    factor = 3

    class Local(ShardedEngine):
        def load_checkpoint(self, params: Any) -> None:
            raise OwnError(params["w"].shape)

        def forward(self, x: Any) -> Any:
            return factor * x

    with launch(Local, 2, on="torch") as run:
        assert same(run.forward(WEIGHT)[1], 3 * WEIGHT)
        with pytest.raises(OwnError, match="6, 6"):
            run.load_checkpoint({"w": WEIGHT})


def test_what_cannot_be_sent_to_a_device_is_refused() -> None:
    with pytest.raises(RuleError, match="Script cannot be sent"):
        on("torch", threading.Lock().acquire)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU on this machine")
def test_a_program_that_has_used_the_gpu_launches_on_it() -> None:
    assert torch.ones(2, device="cuda").sum() == 2
    found, _ = on("torch", lambda me, x: me.all_reduce(x), device="cuda")
    assert same([one.cpu() for one in found[0]], [N * WEIGHT])


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuleError, match="device='cuda' is for on='torch'"):
        launch(Pipeline, 2, device="cuda")
    with pytest.raises(RuleError, match="no device 'tpu'"):
        launch(Pipeline, 2, on="torch", device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(RuleError, match="torch finds no GPU"):
            launch(Pipeline, 2, on="torch", device="cuda")


def under_torchrun(program: str, n: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), program]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)


PROGRAM = """
import numpy as np
from lib.engine import ShardedEngine, launch


class Sums(ShardedEngine):
    def load_checkpoint(self, params):
        pass

    def forward(self, x):
        return self.all_reduce(x if self.device_id or x.sum() else x[:1])


for right in (1, 0):
    with launch(Sums, 2) as run:
        print(run.forward([np.full(2, right), np.full(2, right)])[0].tolist())
"""


def test_torchrun(tmp_path: Path) -> None:
    """Every process makes the calls of the program, and has all results; an error is printed once."""
    program = tmp_path / "sums.py"
    program.write_text(PROGRAM)
    ended = under_torchrun(str(program), 2)
    assert ended.stdout.count("[2, 2]") == 2, ended.stderr
    assert ended.stderr.count("MismatchError: device 0") == 1
    ended = under_torchrun(str(program), 1)
    assert "'torchrun --nproc-per-node 2" in ended.stderr
