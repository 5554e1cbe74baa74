"""Every schedule on torch: its trace in as many processes as it has ranks, where collectives really overlap."""

import threading
from typing import Any

import pytest

from lib.engine.replay.rank import ReplayEngine
from lib.engine.replay.replay import replay
from puzzles.catalog.schedule import PUZZLES
from tests.support.replays import GAMES, trace_of
from tests.support.selection import first_of_each_kind
from tests.support.solved import SOME_RECORDS, played, record_name, reference_of, solved_by

torch = pytest.importorskip("torch", reason="needs the extra: pip install -e '.[torch]'")
pytest.importorskip("array_api_compat", reason="needs the extra: pip install -e '.[torch]'")

KINDS = ["fsdp", "zb_v", "fsdp_prefetch", "expert_parallel", "sequence_parallel", "offload", "local_sgd", "three_d"]
"""References that stand for the others: shards, halves, overlap, tokens, parts, tiers, several steps, groups."""


def passes(trace: Any, small: bool = True) -> None:
    result = replay(trace, "torch", small)
    here = replay(trace, small=small)
    assert result.passed
    assert result.ranks == here.ranks
    assert [len(events) for events in result.measured] == [len(trace.events(rank)) for rank in range(len(here.ranks))]


@pytest.mark.parametrize("slug", [pytest.param(s, marks=[] if s in KINDS else pytest.mark.slow) for s in PUZZLES])
def test_a_reference_has_the_results_memory_and_bytes_that_were_predicted(slug: str) -> None:
    passes(played(PUZZLES[slug], reference_of(slug)).trace)


@pytest.mark.slow
@pytest.mark.parametrize("record", [case.values[0] for case in SOME_RECORDS if not case.marks], ids=record_name)
def test_so_has_one_record_of_each_puzzle(record: Any) -> None:
    for puzzle, function in solved_by(record):
        passes(played(puzzle, function).trace)


@pytest.mark.parametrize("name", first_of_each_kind(((name,) for name in GAMES), lambda _: None, every=12))
def test_so_has_any_other_schedule(name: str) -> None:
    passes(trace_of(name))


@pytest.mark.slow
def test_so_it_has_in_full_size() -> None:
    """An all-reduce of gloo adds in an order of its own, which float32 forgives."""
    passes(played(PUZZLES["ddp"], reference_of("ddp")).trace, small=False)


def test_calls_beside_computation_are_asynchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather begins where it is made and ends at its await: computation between the two does not wait for it."""

    class Noting(ReplayEngine):
        def forward(self, x: Any) -> Any:
            from lib.engine import torch as engine_torch
            from lib.engine.replay.rank import PERFORM  # here, in the device's process, as the next

            self.noted: list[str] = []
            gather, forward = engine_torch.all_gather_single, PERFORM["forward"]

            def gathers(*args: Any, **kwargs: Any) -> Any:
                assert kwargs["async_op"]
                self.noted.append("gather")
                return gather(*args, **kwargs)

            def computes(engine: Any, op: Any, used: Any) -> Any:
                self.noted.append("forward")
                return forward(engine, op, used)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine_torch, "all_gather_single", gathers)
                patch.setitem(PERFORM, "forward", computes)
                return super().forward(x)

        def finish(self, at: int) -> None:
            self.noted.extend(["wait"] * (at in self.begun))
            super().finish(at)

        def declared(self) -> Any:
            return self.noted

    def shown(workload: Any, found: Any, *_: Any) -> float:
        raise AssertionError(" ".join(found[0]))

    monkeypatch.setattr("lib.engine.replay.replay.ReplayEngine", Noting)
    monkeypatch.setattr("lib.engine.replay.replay.error_of", shown)
    trace = played(PUZZLES["fsdp_prefetch"], reference_of("fsdp_prefetch")).trace
    with pytest.raises(AssertionError, match="wait gather forward wait"):
        replay(trace, "torch", small=True)


@pytest.mark.parametrize(("call", "beside"), [("on_host", "forward"), ("fill", "backward")])
def test_copies_beside_computation_are_asynchronous(call: str, beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy to or from the host ends only after a computation that was asked for later."""

    class Beside(ReplayEngine):
        def forward(self, x: Any) -> Any:
            from lib.engine.replay.rank import PERFORM
            from lib.engine.torch import TorchLibrary  # here, in the device's process, as the next

            copies, computes = getattr(TorchLibrary, call), PERFORM[beside]
            begun, computed = threading.Event(), threading.Event()

            def copied(library: Any, *args: Any) -> Any:
                if threading.current_thread() is threading.main_thread():
                    return copies(library, *args)
                begun.set()
                assert computed.wait(60), "no computation began meanwhile"
                return copies(library, *args)

            def performed(engine: Any, op: Any, used: Any) -> Any:
                if engine.copies:
                    computed.set()
                return computes(engine, op, used)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TorchLibrary, call, copied)
                patch.setitem(PERFORM, beside, performed)
                result = super().forward(x)
            self.has_begun = begun.is_set()
            return result

        def declared(self) -> Any:
            return self.has_begun

    monkeypatch.setattr("lib.engine.replay.replay.ReplayEngine", Beside)
    monkeypatch.setattr("lib.engine.replay.replay.error_of", lambda workload, found, *_: 0.0 if all(found) else 1.0)
    trace = played(PUZZLES["offload"], reference_of("offload")).trace
    assert replay(trace, "torch", small=True).passed


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU on this machine")
@pytest.mark.parametrize("slug", ["fsdp", "one_f_one_b", "tensor_parallel"])
def test_a_schedule_runs_on_one_gpu_by_several_processes(slug: str) -> None:
    """NCCL refuses two processes on one GPU; there gloo moves what they send, through the processor's memory."""
    trace = played(PUZZLES[slug], reference_of(slug)).trace
    assert replay(trace, "torch", small=False, device="cuda").passed
