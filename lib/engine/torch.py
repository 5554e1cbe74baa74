"""Torch: tensors as arrays of a device, and torch.distributed as a carrier.

Tensors are metered like numpy's arrays: by storage, and with torch's own formulas for flops. Control messages go over
sockets of our own, because torch.distributed has no message that is received only if it is there.

How processes agree is left to `processes`. Rejected: NCCL for messages between GPUs, whose senders have to wait for
the receiver; messages go through gloo.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import reduce
from inspect import signature
from itertools import count
from pickle import dumps, loads
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from struct import Struct
from time import perf_counter
from typing import Any, NamedTuple

import array_api_compat.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from lib.engine.collectives import TORCH, CollectiveCall
from lib.engine.metering import ChargedBlock, LentBlock, Meter, current, current_player_line, unmetered
from lib.engine.processes import TAGS_OF_A_RUN, PeerFailedError
from lib.engine.transport import ArrayLibrary
from lib.errors import RuleError
from lib.ledger.algebra import counted

# --- Tensors of torch on one device, metered like arrays: by storage, and with torch's own formulas for flops ---

SENDABLE = "bool uint8 int8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
"""Dtypes that gloo can both move and reduce."""

_aten = torch.ops.aten
FLOPS = {
    **flop_registry,
    **dict.fromkeys((_aten.mv, _aten.dot, _aten.vdot), lambda a, *_, **more: 2 * a.numel()),
    _aten.addmv: lambda _, a, *__, **more: 2 * a.numel(),
}
"""Flops of each operation, from its arguments. Torch itself does not count products with a vector."""


class TorchLibrary(ArrayLibrary):
    """The library of a run on torch, whose tensors are on `device`."""

    xp = array_api_compat.torch
    array_types = (np.ndarray, torch.Tensor)
    plain_type = None  # every tensor is checked

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._thread: Any = None
        self._stream: Any = None
        self.plain = self._plain
        self.charged = charged

    def _plain(self, given: Any) -> Any:
        if isinstance(given, np.ndarray):
            raise _refused(
                "this is an array of numpy; on torch a class sends tensors, so make it with torch or self.xp"
            )
        with unmetered():
            array = given.detach() if isinstance(given, torch.Tensor) else torch.from_numpy(np.array(given))
        if not isinstance(given, torch.Tensor):
            return array.to(self.device)
        if array.device != self.device:
            raise _refused(
                f"this tensor is on {array.device}, and the device computes on {self.device}; move it with "
                f".to({str(self.device)!r})"
            )
        name = str(array.dtype).removeprefix("torch.")
        if name not in SENDABLE or array.layout is not torch.strided:
            what = f"dtype {name}" if array.layout is torch.strided else f"layout {array.layout}"
            raise _refused(f"gloo cannot send a tensor of {what}; convert it, for instance with .to(torch.float32)")
        return array

    def adopted(self, given: Any) -> Any:
        with unmetered():
            return torch.tensor(given, device=self.device) if isinstance(given, np.ndarray) else self._moved(given)

    def _moved(self, given: Any) -> Any:
        return given.detach().to(self.device, copy=True, memory_format=torch.contiguous_format)

    def copy(self, array: Any) -> Any:
        with unmetered():
            return array.clone(memory_format=torch.contiguous_format)

    def copy_out(self, array: Any) -> Any:
        """A copy in the processor's memory."""
        with unmetered():
            return array.detach().to("cpu", copy=True) if isinstance(array, torch.Tensor) else np.array(array)

    def on_host(self, array: Any) -> Any:
        try:
            return np.asarray(self.copy_out(array).numpy())
        except TypeError:
            raise _refused(f"a slower memory cannot store {array.dtype}; convert it with .to(torch.float32)") from None

    def lend(self, array: Any, meter: Meter | None) -> tuple[Any, LentBlock | None]:
        tensor = self.adopted(array)
        block = None if meter is None else LentBlock(meter, tensor.nbytes)
        if block is not None:
            tensor.untyped_storage()._block = block
        return tensor, block

    def zeros(self, shape: Any, dtype: Any) -> Any:
        with unmetered():
            return torch.zeros(shape, dtype=named_dtype(dtype), device=self.device)

    def strides(self, array: Any) -> tuple[int, ...]:
        return tuple(step * array.itemsize for step in array.stride())

    def offset_in(self, buffer: Any, view: Any) -> int | None:
        same = view.untyped_storage()._cdata == buffer.untyped_storage()._cdata
        return int(view.storage_offset()) if same else None

    def place_in(self, buffer: Any, offset: int, strides: tuple[int, ...], like: Any) -> Any:
        return torch.as_strided(buffer, like.shape, [step // like.itemsize for step in strides], offset)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def in_background(self, work: Callable[[], object]) -> Future[float]:
        """Does work in a thread, one task after the other; on a GPU in a separate stream, after everything that this
        thread has requested so far. Returns the seconds that the work took."""
        self._thread = self._thread or ThreadPoolExecutor(1)
        stream = nullcontext()
        if self.device.type == "cuda":
            self._stream = self._stream or torch.cuda.Stream(self.device)
            asked, stream = torch.cuda.current_stream(self.device).record_event(), torch.cuda.stream(self._stream)

        def timed() -> float:
            start = perf_counter()
            with stream:
                if self.device.type == "cuda":
                    self._stream.wait_event(asked)
                work()
                self.synchronize()
            return perf_counter() - start

        future: Future[float] = self._thread.submit(timed)
        return future

    def fill(self, tensor: Any, given: Any) -> None:
        tensor.copy_(torch.from_numpy(np.array(given)))

    @contextmanager
    def watched(self, cls: type, metered: bool) -> Iterator[None]:
        """Also refuses numpy's functions on tensors, which would copy them to the processor unnoticed."""
        convert, torch.Tensor.__array__ = torch.Tensor.__array__, _refuse_numpy
        try:
            with _Metering() if metered else nullcontext():
                yield
        finally:
            torch.Tensor.__array__ = convert


def named_dtype(dtype: Any) -> Any:
    """A dtype of torch, from a dtype of torch or numpy, or from its name."""
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, np.dtype(dtype).name)


def charged(tensor: Any, meter: Meter) -> Any:
    """The tensor, whose storage is charged to `meter` for as long as it lives; once, however many tensors view it."""
    storage = tensor.untyped_storage()
    if not hasattr(storage, "_block"):
        storage._block = ChargedBlock(meter, storage.nbytes())
    return tensor


class _Metering(TorchDispatchMode):  # type: ignore[misc]
    """Counts the flops of every operation of torch, and charges the storages that it makes."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        meter = current.meter
        if meter is not None:
            count = FLOPS.get(function._overloadpacket)
            if count is not None:
                meter.compute(count(*args, **(kwargs or {}), out_val=result))
            for tensor in tree_iter(result):
                if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                    charged(tensor, meter)
        return result


def _refused(why: str) -> RuleError:
    return RuleError(f"{why}{current_player_line()}")


def _refuse_numpy(tensor: Any, *_: Any, **__: Any) -> Any:
    raise _refused("a function of numpy got a tensor of torch; use a function of torch, of self.xp, or a method")


with _Metering():  # the first use of a mode loads a thousand modules: here, once for all devices
    torch.zeros(1)


# --- Sockets between all processes, with the methods of an mpi4py communicator that control messages need ---
#
# A socket can be asked whether a message has arrived, waits for any of several, and reports at once when the process at
# its other end has ended.

FRAME = Struct("<qqqq")
"""The header of each content: its length, its tag, its number if its receipt is to be confirmed, and the number that it
confirms. Numbers begin at 1."""

PAUSE = 0.05
"""Seconds after which a waiting process looks at the time again."""

ANY = -1


class Message(NamedTuple):
    """A message that has arrived."""

    content: bytes

    def recv(self) -> Any:
        return loads(self.content)


class Request(NamedTuple):
    """A message that has been sent; one with a number is to be confirmed."""

    communicator: SocketCommunicator
    number: int

    def Test(self) -> bool:  # as mpi4py calls it
        return self.communicator.is_done(self.number)


class SocketCommunicator:
    """This process's connections, by rank. Sending never waits: data that a socket does not accept at once is kept."""

    def __init__(self, rank: int, sockets: Mapping[int, socket.socket]) -> None:
        self.rank, self.size = rank, len(sockets) + 1
        self.lost: set[int] = set()
        """Ranks whose connections have ended."""
        self._sockets = sockets
        self._selector = DefaultSelector()
        self._received: dict[int, bytearray] = {other: bytearray() for other in sockets}
        self._unsent: dict[int, bytearray] = {other: bytearray() for other in sockets}
        self._messages: dict[int, dict[int, deque[tuple[int, bytes]]]] = defaultdict(lambda: defaultdict(deque))
        """By tag and source: the number to confirm, and the content."""
        self._numbers, self._awaited = count(1), set[int]()
        self._is_new = False
        for other, end in sockets.items():
            end.setblocking(False)
            self._selector.register(end, EVENT_READ, other)

    def Isend(self, content: bytes, to: int, tag: int) -> Request:
        self._send(to, tag, content)
        return Request(self, 0)

    def Issend(self, content: bytes, to: int, tag: int) -> Request:
        """Sends a message; the request is done when the message has been received."""
        number = next(self._numbers)
        self._awaited.add(number)
        self._send(to, tag, content, number)
        return Request(self, number)

    def is_done(self, number: int) -> bool:
        """True if the message with this number need not be confirmed any more."""
        if number in self._awaited:
            self._advance(0)
        return number not in self._awaited

    def isend(self, given: Any, to: int, tag: int) -> Request:
        return self.Isend(dumps(given), to, tag)

    def improbe(self, source: int = ANY, tag: int = 0) -> Message | None:
        """Takes a message with this tag, if one has arrived."""
        self._advance(0)
        boxes = self._messages[tag]
        for rank in list(boxes) if source == ANY else [source]:
            if boxes[rank]:
                number, content = boxes[rank].popleft()
                if number:
                    self._send(rank, 0, b"", confirms=number)
                return Message(content)
        return None

    def allgather(self, given: Any) -> list[Any]:
        return self.exchanged(given, range(self.size), ANY)

    def exchanged(self, given: Any, members: Sequence[int], tag: int) -> list[Any]:
        """What each of some ranks gives; one that has ended gives the same as this one."""
        others = [member for member in members if member != self.rank]
        for other in others:
            self.isend(given, other, tag)
        contents = {self.rank: given}
        while missing := [other for other in others if other not in contents]:
            come = self.improbe(missing[0], tag)
            if come is not None:
                contents[missing[0]] = come.recv()
            elif missing[0] in self.lost:
                contents[missing[0]] = given
            else:
                self.idle()
        return [contents[member] for member in members]

    def idle(self) -> None:
        """Waits a short time until something arrives; not at all if something has arrived since the last call."""
        self._is_new = self._is_new or self._advance(PAUSE)
        self._is_new = False

    def flush(self) -> None:
        """Waits until everything has been sent, or its receiver has ended."""
        while any(self._unsent.values()):
            self._advance(PAUSE)

    def _send(self, to: int, tag: int, content: bytes, number: int = 0, confirms: int = 0) -> None:
        if to not in self.lost:
            self._unsent[to] += FRAME.pack(len(content), tag, number, confirms) + content
            self._write(to)

    def _write(self, to: int) -> None:
        unsent, end = self._unsent[to], self._sockets[to]
        try:
            while unsent:
                del unsent[: end.send(unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return self._lose(to)
        self._selector.modify(end, EVENT_READ | EVENT_WRITE if unsent else EVENT_READ, to)

    def _advance(self, seconds: float) -> bool:
        """Sends and receives what it can; otherwise waits for so many seconds. True if something has arrived."""
        for key, events in self._selector.select(seconds):
            if events & EVENT_WRITE:
                self._write(key.data)
            if events & EVENT_READ and key.data not in self.lost:
                self._read(key.data)
        return self._is_new

    def _read(self, source: int) -> None:
        buffer = self._received[source]
        try:
            while part := self._sockets[source].recv(1 << 20):
                buffer += part
            self._lose(source)
        except BlockingIOError:
            pass
        except OSError:
            self._lose(source)
        while len(buffer) >= FRAME.size:
            length, tag, number, confirms = FRAME.unpack_from(buffer)
            if len(buffer) < FRAME.size + length:
                break
            self._is_new = True
            self._awaited.discard(confirms)
            if not confirms:
                self._messages[tag][source].append((number, bytes(buffer[FRAME.size : FRAME.size + length])))
            del buffer[: FRAME.size + length]

    def _lose(self, other: int) -> None:
        self._is_new = True
        self.lost.add(other)
        self._unsent[other].clear()
        self._selector.unregister(self._sockets[other])


# --- torch.distributed as a carrier: a process group of gloo, or of NCCL where every process has its own GPU ---
#
# Each collective is torch's, except that gloo's reduce-scatter cannot run in the background, so it is replaced by an
# all-to-all and a sum. An all-reduce adds in its own order, so floats may differ in the last bits from other
# transports. gloo's data is copied from the GPU to the processor's memory and back.

GROUPS = -2
"""The tag of messages about new groups."""

LONGEST = timedelta(minutes=5)
"""How long torch waits for an array that another process has announced."""

REDUCTIONS = {"sum": "SUM", "avg": "SUM", "max": "MAX", "min": "MIN", "prod": "PRODUCT"}
COMBINE = {"sum": torch.add, "avg": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}
LOGICAL = {"sum": "max", "prod": "min"}
"""The reductions that numpy uses for booleans."""

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Before PyTorch 2.13 these have their older names."""

UNSORTED = {"sort_ranks": False} if "sort_ranks" in signature(dist.new_group).parameters else {}
"""Keeps the order of a group's members; older versions sort them."""

_numbers = count()
_world: list[SocketCommunicator] = []
_groups: dict[tuple[int, ...], Any] = {}
_made: list[Any] = []


class TorchCarrier:
    """One run on the default process group of torch.distributed. The first run makes the group, from the variables that
    torchrun sets or with a `store`, a new file that all processes share."""

    max_small = -1
    polls_per_check = 1

    def __init__(self, size: int, device: str, store: str = "") -> None:
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if size != processes:
            raise RuleError(
                f"got {counted(processes, 'process')} for {counted(size, 'device')}; start the program with "
                f"'torchrun --nproc-per-node {size} ...'"
            )
        require_device(device)
        place, self.backend = _chosen(device)
        if not _world:
            torch.set_num_threads(1 if store else max(1, (os.cpu_count() or 1) // size))  # a forked pool would hang
            if store:
                loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
                os.environ.setdefault("GLOO_SOCKET_IFNAME", (*loopback, "lo")[0])
            backend = "cpu:gloo,cuda:nccl" if self.backend == "nccl" else "gloo"
            where = {"init_method": f"file://{store}", "rank": int(os.environ["RANK"]), "world_size": size}
            dist.init_process_group(backend, timeout=LONGEST, **(where if store else {}))
            _world.append(_connected(dist.get_rank(), size))
            atexit.register(_world[0].flush)
        self.control = self.data = _world[0]
        self.library: ArrayLibrary = TorchLibrary(place)
        self.first = next(_numbers) * TAGS_OF_A_RUN
        self.lost: Collection[int] = self.data.lost
        self.idle = self.data.idle
        self.in_background: Callable[[], object] | None = None
        """Called when a collective has begun; returns when its result is wanted."""
        self.took = 0.0
        """Seconds from the start to the end of the last collective."""

    def collective(self, call: CollectiveCall, arr: Any, index: int) -> Any:
        with unmetered():
            start, ended = perf_counter(), [0.0]
            work, result = self._started(call, arr)
            if work is not None and self.backend == "gloo":
                work.get_future().add_done_callback(lambda _: ended.__setitem__(0, perf_counter()))
        if self.in_background is not None:
            self.in_background()
        with unmetered():
            self._finish(work)
            self.took = (ended[0] or perf_counter()) - start
            return result()

    def _started(self, call: CollectiveCall, arr: Any) -> tuple[Any, Callable[[], Any]]:
        """Starts a collective. Returns torch's work, and a function that makes the result when the work is done."""
        n, name, op = len(call.group), call.name, call.op
        if op == "avg" and not (arr.is_floating_point() or arr.is_complex()):
            arr = arr.to(torch.float64)
        op = LOGICAL.get(op, op) if arr.dtype is torch.bool else op
        if op in ("max", "min") and arr.is_complex():
            raise RuleError(f"torch has no {op} of complex numbers; reduce their absolute values, or gather them")
        given = arr if self.backend == "nccl" else arr.cpu()
        if name in ("reduce_scatter", "all_to_all"):
            given = given.unflatten(call.axis, (n, given.shape[call.axis] // n)).movedim(call.axis, 0)
        members = list(call.group) if UNSORTED else sorted(call.group)  # in the order of torch's group
        moved = members != list(call.group)
        if moved and name in ("reduce_scatter", "all_to_all"):
            given = given[[call.group.index(member) for member in members]]
        pieces = given.clone(memory_format=torch.contiguous_format)  # gloo lets go of it later than it says
        scatters = name == "reduce_scatter" and self.backend == "gloo"
        reduces = name == "all_reduce" or (name == "reduce_scatter" and not scatters)
        shapes = {"all_gather": (n, *pieces.shape), "reduce_scatter": pieces.shape[0 if scatters else 1 :]}
        shape = shapes.get(name, pieces.shape)
        output = pieces if name == "all_reduce" else torch.empty(shape, dtype=given.dtype, device=given.device)
        options = {"group": self.group(call.group), "async_op": True}
        reduction = {"op": getattr(dist.ReduceOp, REDUCTIONS[op])} if op else {}
        work = None
        if n == 1:
            output.copy_(pieces.view(output.shape))
        elif given.numel():
            match name:
                case "all_reduce":
                    work = dist.all_reduce(output, **reduction, **options)
                case "all_gather":
                    work = all_gather_single(output.view(-1), pieces.view(-1), **options)
                case "reduce_scatter" if not scatters:
                    work = reduce_scatter_single(output.view(-1), pieces.view(-1), **reduction, **options)
                case _:
                    work = dist.all_to_all_single(output.view(-1), pieces.view(-1), **options)

        def result() -> Any:
            ordered = output[[members.index(member) for member in call.group]] if moved and not reduces else output
            combined = reduce(COMBINE[op], ordered) if scatters else ordered
            combined = combined / n if call.op == "avg" else combined.clone() if name == "all_reduce" else combined
            if name in ("all_gather", "all_to_all"):
                combined = torch.cat(list(combined) if given.ndim else [combined], call.axis)
            return combined.to(self.library.device)

        return work, result

    def group(self, members: tuple[int, ...]) -> Any:
        """Torch's group of some devices; all of them make a new group together.

        Gloo connects a group only if each member has made as many groups before, so a member that has made fewer makes
        groups with itself.
        """
        if members == tuple(range(self.data.size)) or len(members) == 1:
            return None
        if members not in _groups:
            most = max(self.data.exchanged(len(_made), members, GROUPS))
            if any(member in self.lost for member in members):
                raise PeerFailedError
            while len(_made) <= most:
                chosen = [self.data.rank] if len(_made) < most else list(members)
                _made.append(dist.new_group(chosen, timeout=LONGEST, use_local_synchronization=True, **UNSORTED))
            _groups[members] = _made[-1]
        return _groups[members]

    def _finish(self, work: Any) -> None:
        """Waits for torch's work, on which all devices have agreed."""
        try:
            if work is not None:
                work.wait()
        except RuntimeError as why:
            self.idle()
            if self.lost:
                raise PeerFailedError from None
            raise RuleError(f"torch.distributed has failed: {str(why).splitlines()[0]}") from None

    def send_body(self, arr: Any, to: int, tag: int, header: Any) -> Any:
        with unmetered():
            content = arr.detach().cpu().contiguous().view(-1)
            return _Body(self, dist.isend(content, to, tag=tag) if arr.numel() else None, header)

    def receive_body(self, shape: tuple[int, ...], dtype: str, source: int, tag: int) -> tuple[Any, Any]:
        with unmetered():
            array = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix(TORCH)))
            self._finish(dist.irecv(array.view(-1), source, tag=tag) if array.numel() else None)
            return array.to(self.library.device), None

    def abort(self) -> None:
        os._exit(1)


class _Body:
    """An array in transit. Torch is asked about it only after the receiver has begun to receive it."""

    def __init__(self, carrier: TorchCarrier, work: Any, header: Any) -> None:
        self.carrier, self.work, self.header = carrier, work, header

    def Test(self) -> bool:  # as mpi4py calls it
        if not self.header.Test():
            return False
        self.carrier._finish(self.work)
        self.work = None
        return True


def require_device(device: str) -> None:
    if device not in ("cpu", "cuda"):
        raise RuleError(f"there is no device {device!r}; there are 'cpu' and 'cuda'")
    if device == "cuda" and not torch.cuda.device_count():
        raise RuleError("torch finds no GPU here; leave out device='cuda', or --device cuda, to run on the processor")


def _chosen(device: str) -> tuple[str, str]:
    """The device on which this process computes, and the backend by which it communicates."""
    if device == "cpu":
        return "cpu", "gloo"
    gpus = torch.cuda.device_count()
    local, processes = (int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    torch.cuda.set_device(local % gpus)
    return f"cuda:{local % gpus}", "nccl" if processes <= gpus else "gloo"


def _connected(rank: int, size: int) -> SocketCommunicator:
    """Sockets to all other processes. Each listens where the first can reach it; a secret authenticates the
    connections."""
    first = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, _, _, _, address = socket.getaddrinfo(first, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        host = probe.getsockname()[0]
    ends: dict[int, socket.socket] = {}
    with socket.create_server((host, 0), family=family, backlog=size) as server:
        listeners: list[Any] = [None] * size
        dist.all_gather_object(listeners, (server.getsockname()[:2], secrets.token_bytes(16)))
        secret = listeners[0][1]
        for other in range(rank):
            ends[other] = socket.create_connection(listeners[other][0])
            ends[other].sendall(secret + rank.to_bytes(8, "little"))
        while len(ends) < size - 1:
            end, _ = server.accept()
            said = end.recv(24, socket.MSG_WAITALL)
            if secrets.compare_digest(said[:16], secret):
                ends[int.from_bytes(said[16:], "little")] = end
    for end in ends.values():
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketCommunicator(rank, ends)
