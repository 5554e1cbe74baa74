"""Slower memories and numbers of devices are the same on every transport."""

from typing import Any

import numpy as np

from lib.engine import launch
from tests.oracles.collective_arrays import N

from .script import Script, all_equal, equal, on_each, several


def slower_memories(on: str) -> None:
    """Names, copies, odd arrays; each link carries one array at a time, and computing goes on meanwhile."""

    def does(me: Any, x: Any) -> Any:
        for tier in (me.host, me.disk):
            tier.put("a/b", x)
            tier.put("empty", np.zeros((0, 3), np.int8))
            tier.put("view", np.asfortranarray(np.arange(12.0).reshape(3, 4))[::2].T)
            tier.put("scalar", 2.5)
            tier.put("scalar", np.float32(3))
            x += 1
            tier.drop("view") if me.device_id else None
        return [tier.fetch(name) for tier in (me.host, me.disk) for name in tier]

    xs = several((2, 3), "float32")
    before = [x.copy() for x in xs]
    got = on_each(on, does, xs, metered=True)
    view = np.arange(12.0).reshape(3, 4)[::2].T
    for i in range(N):
        kept = [np.zeros((0, 3), np.int8), *([] if i else [view]), np.array(3, np.float32)]
        assert all_equal(got[i], [before[i], *kept, before[i] + 1, *kept])

    def overlaps(me: Any, w: Any) -> Any:
        me.host.put("w", w)  # until 2,048
        me.disk.put("w", w)  # until 2,048 + 16,384
        first, second = me.host.fetch_async("w"), me.host.fetch_async("w")
        third = me.disk.fetch_async("w")
        w @ w  # until 2,048 + 16,384 + 8,192: the host's link is free again, the disk's is not
        arrived = [first.done(), second.done(), third.done()]
        y = me.all_reduce(first.wait() + second.wait() + third.wait())
        return [arrived, y]

    with launch(Script, N, overlaps, on=on, byte_time={"host": 2, "disk": 16}) as run:
        got = run.forward([np.full((16, 16), i, np.float32) for i in range(N)])
        meters = run.meters
    for arrived, y in got:
        assert arrived == [True, True, False]
        assert equal(y, np.full((16, 16), 3 * (0 + 1 + 2 + 3), np.float32))
    for reading in meters:
        assert reading.host == {"read": 2048, "written": 1024, "live": 1024, "peak": 1024}
        assert reading.disk == {"read": 1024, "written": 1024, "live": 1024, "peak": 1024}
        assert reading.clock == 2048 + 16_384 + 16_384
        assert reading.flops == 8192


def numbers_answer_when_called(on: str) -> None:
    got = on_each(on, lambda me, _: [me.device_id + 0, me.device_id(), me.num_devices + 0, me.num_devices()])
    assert got == [[i, i, N, N] for i in range(N)]
