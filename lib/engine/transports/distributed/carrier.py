"""torch.distributed as a carrier: a process group of gloo, or of NCCL where every process has its own GPU.

Each collective is torch's, except that gloo's reduce-scatter cannot run in the background, so it is replaced by an
all-to-all and a sum. An all-reduce adds in its own order, so floats may differ in the last bits from other transports.
Messages go through gloo even between GPUs, because senders would have to wait for NCCL's. gloo's data is copied from
the GPU to the processor's memory and back.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import reduce
from inspect import signature
from itertools import count
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from lib.engine.call import TORCH, CollectiveCall
from lib.engine.libraries.numpy_library import ArrayLibrary
from lib.engine.libraries.torch_library import TorchLibrary
from lib.engine.metering.meter import unmetered
from lib.engine.transports.processes.carrier import TAGS_OF_A_RUN
from lib.engine.transports.processes.control import PeerFailedError
from lib.errors import RuleError
from lib.values.algebra import counted

from .sockets import SocketCommunicator

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
            most = max(self._counts(members, len(_made)))
            while len(_made) <= most:
                chosen = [self.data.rank] if len(_made) < most else list(members)
                _made.append(dist.new_group(chosen, timeout=LONGEST, use_local_synchronization=True, **UNSORTED))
            _groups[members] = _made[-1]
        return _groups[members]

    def _counts(self, members: tuple[int, ...], groups: int) -> list[int]:
        others = [member for member in members if member != self.data.rank]
        for other in others:
            self.data.isend(groups, other, GROUPS)
        counts = [groups]
        for other in others:
            while (come := self.data.improbe(other, GROUPS)) is None:
                if other in self.lost:
                    raise PeerFailedError
                self.idle()
            counts.append(come.recv())
        return counts

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
