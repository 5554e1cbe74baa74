"""Messages and one-sided puts arrive in order, and hold what the array held when it was sent."""

from typing import Any

import numpy as np

from tests.oracles.collective_arrays import N, difference, every_pair

from .script import all_equal, facts_of, on_each, refused


def messages_of_every_kind(on: str) -> None:
    """Of each dtype in each shape and memory order, large ones too: they arrive in C order, and belong
    to the receiver."""
    sent = [(kind, kind.arrays()) for kind in every_pair()]

    def mistakes(me: Any, _: Any) -> list[str]:
        texts = []
        for kind, arrays in sent:
            me.send((me.device_id + 1) % N, arrays[me.device_id])
            got = me.receive((me.device_id - 1) % N)
            text = difference(got, arrays[me.device_id - 1])
            texts += [f"{kind}: {text}"] if text else []
            texts += [] if got.flags.c_contiguous and got.flags.writeable else [f"{kind}: {got.flags}"]
        return texts[:3]

    assert on_each(on, mistakes) == [[]] * N


def a_sent_array_may_be_changed(on: str) -> None:
    """What arrives is what the array held at the call, however large it is and in whichever memory order; and a
    receiver that changes what it got changes nobody else's."""

    def does(me: Any, x: Any) -> Any:
        right, left = (me.device_id + 1) % N, (me.device_id - 1) % N
        views = [lambda a: a, lambda a: a[:, ::2], lambda a: a.T]
        for view in views:
            me.send(right, view(x))
            x += N
        buffer = me.symmetric(x.shape, x.dtype)
        me.send_async(x, buffer, right).wait()
        x[:] = -1
        me.barrier()
        got = [me.receive(left) for _ in views]
        for array in got:
            array += 0  # it may be written to
        got[0] -= 1
        me.barrier()
        return [int(x.max()), *([int(array.min()), int(array.max())] for array in (*got, buffer))]

    for shape in ((4, 4), (600, 512)):
        got = on_each(on, does, [np.full(shape, device, "float32") for device in range(N)])
        for device, (mine, *theirs) in enumerate(got):
            left = (device - 1) % N
            assert mine == -1
            assert theirs == [[left - 1] * 2, [left + N] * 2, [left + 2 * N] * 2, [left + 3 * N] * 2]


def many_large_messages(on: str) -> None:
    """All are sent before the first is received, and their memory is used again."""

    def does(me: Any, x: Any) -> Any:
        first = []
        for turn in range(2):
            for i in range(6):
                me.send((me.device_id + 1) % N, x + 10 * i + turn)
            got = [me.receive((me.device_id - 1) % N) for _ in range(6)]
            assert [array.min() == array.max() for array in got] == [True] * 6
            first.append([int(array[0]) for array in got])
        return first

    got = on_each(on, does, [np.full(400_000, device) for device in range(N)])
    for device in range(N):
        left = (device - 1) % N
        assert got[device] == [[left + 10 * i + turn for i in range(6)] for turn in range(2)]


def one_sided_puts(on: str) -> None:
    def does(me: Any, x: Any) -> Any:
        buffer = me.symmetric((N, 3), "float32")
        other = me.symmetric(5, "int32")
        right = (me.device_id + 1) % N
        future = me.send_async(x, buffer[me.device_id], right)
        future.wait()
        x[:] = -1
        me.send_async(np.arange(3, dtype="int32"), other[::2], right)
        before = buffer.copy()
        me.barrier()
        return [before, buffer, other]

    xs = [np.full(3, i, "float32") for i in range(1, N + 1)]
    got = on_each(on, does, xs)
    for i in range(N):
        wanted = np.zeros((N, 3), "float32")
        wanted[i - 1] = (i - 1) % N + 1
        assert all_equal(got[i], [np.zeros((N, 3), "float32"), wanted, np.array([0, 0, 1, 0, 2], "int32")])


def large_puts_leave_nothing_behind(on: str) -> None:
    """On MPI, whatever a run that has ended well has sent is freed."""

    def does(me: Any, x: Any) -> Any:
        buffer = me.symmetric(x.shape, x.dtype)
        me.send_async(x, buffer, (me.device_id + 1) % N)
        me.barrier()
        return buffer

    kept = abandoned(on)
    got = on_each(on, does, [np.full(50_000, device, "int32") for device in range(N)])
    assert [int(array[-1]) for array in got] == [(device - 1) % N for device in range(N)]
    assert abandoned(on) == kept


def abandoned(on: str) -> int:
    if on == "inprocess":
        return 0
    from lib.engine import processes

    return len(processes._abandoned)


def empty_puts(on: str) -> None:
    """A slice that is empty on some devices can be put, as any other; an array elsewhere cannot, empty or not."""

    def does(me: Any, x: Any) -> Any:
        buffer = me.symmetric((4, 2), "float32")
        nothing = me.symmetric((0, 3), "int8")
        me.send_async(x[: me.device_id], buffer[: me.device_id], (me.device_id + 1) % N)
        me.send_async(x[:0], buffer[4:], (me.device_id + 1) % N)
        me.send_async(np.zeros((0, 3), "int8"), nothing, (me.device_id + 1) % N)
        me.barrier()
        return buffer

    for metered in (False, True):
        got = on_each(on, does, np.ones((4, 2), "float32"), metered=metered)
        assert [float(g.sum()) for g in got] == [2.0 * ((i - 1) % N) for i in range(N)]
    text = refused(on, lambda me, _: (me.symmetric(3), me.send_async(np.zeros(0), np.zeros(0), (me.device_id + 1) % N)))
    assert "dst is not a" in text, text


def barriers_of_groups(on: str) -> None:
    """A group's barrier delivers the puts between its members, and only those; others do not wait."""

    def does(me: Any, x: Any) -> Any:
        device = int(me.device_id)
        buffer = me.symmetric(N, "int32")
        if device == 3:
            me.send_async(np.array([9], "int32"), buffer[3:], 0)
            first = buffer.copy()
        else:
            group = [2, 0, 1]
            me.send_async(np.array([device + 1], "int32"), buffer[device : device + 1], (device + 1) % 3)
            me.send_async(np.array([device + 1], "int32"), buffer[device : device + 1], 3)
            me.barrier(group=group)
            first = buffer.copy()
            me.barrier(group)
            me.barrier(group=[device])
        me.barrier()
        return [first, buffer.copy()]

    got = on_each(on, does, metered=True)
    firsts = [[0, 0, 3, 0], [1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]
    assert [g[0].tolist() for g in got] == firsts
    assert [g[1].tolist() for g in got] == [[0, 0, 3, 9], *firsts[1:3], [1, 2, 3, 0]]
    text = refused(on, lambda me, _: me.barrier(group=[0, 1] if me.device_id < 2 else [1, 2]))
    assert ("device 3 of 4," in text, "in group (1, 2)" in text) == (True, True), text
    text = refused(on, lambda me, _: me.barrier(group=[0, 1]) if me.device_id == 0 else None)
    assert ("0 waits in barrier()" in text, " in group (0, 1)," in text) == (True, True), text


def unread_messages(on: str) -> None:
    facts = facts_of(on, lambda me, _: me.send(1, np.ones(2)) if me.device_id == 0 else None)
    assert [tuple(map(int, pair)) for pair in facts["unread"]] == [(0, 1, 1)]
