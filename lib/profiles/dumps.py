"""Reads event dumps of a pipeline: `config.json` with pp_size, vp_size and num_mbs, and `pp_rank_N.json` with lists of
starts and ends by step, in ms. Megatron-LM writes them in AMD's Primus (--dump_pp_data true); any framework can."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lib.errors import RuleError
from lib.schedules import Cell

from .sources import RankProfile, RankStep, Span, clipped, is_time, mapping, whole_number

OPERATION = {"fwd": "F", "bwd": "B", "wgrad": "W"}
NAME = re.compile(r"pp_rank_(\d{1,6})\.json(?:\.gz)?")
MOST_CELLS = 1_000_000


def is_dump_config(data: Any) -> bool:
    return "pp_size" in mapping(data)


def read_dump(data: Any, file: str, config: Mapping[str, Any]) -> RankProfile:
    """What a dump says about its rank."""
    named = NAME.fullmatch(file)
    if named is None:
        raise RuleError(f"{file} is not an event dump: next to config.json they are called pp_rank_0.json")
    ranks = whole_number(config.get("pp_size")) or 0
    chunks = whole_number(config.get("vp_size") or 1) or 0
    if not 0 < ranks <= 10_000 or not 0 < chunks <= 1000:
        raise RuleError("config.json has a pp_size or a vp_size that is not a number of ranks or chunks")
    steps: dict[int, RankStep] = {}
    for key, step in mapping(data).items():
        if not key.isdecimal() or len(key) > 9:
            raise RuleError(f"{file} has the step '{clipped(key)}', which is not a number")
        spans = sorted(_spans(mapping(step), f"{file}, step {key}", ranks, chunks), key=lambda span: span.start)
        if spans:
            total = mapping(step).get("total")
            end = max(span.end for span in spans)
            steps[int(key)] = RankStep(0.0, max(end, _time(total, file) if total is not None else end), tuple(spans))
    return RankProfile(file, int(named[1]), ranks, steps, "event dump")


def _spans(step: Mapping[str, Any], where: str, ranks: int, chunks: int) -> Iterator[Span]:
    halves = bool(step.get("wgrad_start"))
    for word, letter in OPERATION.items():
        starts, ends = (_times(step.get(f"{word}_{side}", []), f"{where}, {word}_{side}") for side in ("start", "end"))
        if len(starts) != len(ends):
            raise RuleError(f"{where} has {len(starts)} {word}_start and {len(ends)} {word}_end; it needs as many")
        batches, places = (step.get(f"{word}_{name}") for name in ("minibatch", "chunk"))
        op = "I" if letter == "B" and halves else letter
        for n, (start, end) in enumerate(zip(starts, ends)):
            if end < start:
                raise RuleError(f"{where}: {word} {n} ends before it starts")
            turn = n // (ranks * chunks) * ranks + n % ranks
            chunk = n % (ranks * chunks) // ranks
            batch = _entry(batches, n, turn, where)
            place = _entry(places, n, chunk if letter == "F" else chunks - 1 - chunk, where)
            yield Span((Cell(-1 - place, op, batch),), start, start, end, end - start)


def _entry(given: Any, place: int, otherwise: int, where: str) -> int:
    if given is None:
        return otherwise
    number = whole_number(given[place]) if isinstance(given, list) and place < len(given) else None
    if number is None or number >= MOST_CELLS:
        raise RuleError(f"{where} has no microbatch or chunk for entry {place}")
    return number


def _times(value: Any, where: str) -> list[float]:
    if not isinstance(value, list) or len(value) > MOST_CELLS:
        raise RuleError(f"{where} is not a list of times in ms")
    return [_time(time, where) for time in value]


def _time(value: Any, where: str) -> float:
    if not is_time(value):
        raise RuleError(f"{where} has {clipped(repr(value))}, which is not a time in ms")
    return float(value)
