"""Words the refusals of a run: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "no such name": "a model has no '{name}'; {advice}",
        "cannot send": "cannot send {value}",
        "no keys": "pass a list of what keys(...) returned, such as [kv]; got {got}",
        "arguments of a pair": "forward_backward takes (layer, inp, weight) for a forward and (layer, inp, grad, weight) for a backward",
        "several values": "{name} takes one value at a time; got {got}",
        "no setting": "Dist: setting must be a Setting, such as Setting(steps=2); got {got!r}",
        "sizes differ": "rank {rank} asks for {layers} layers and {batches} batches, but rank {other} asked for {other_layers} and {other_batches}; all ranks of a Dist share one model: use the same numbers, or make a new Dist",
        "handle summed": "'+' takes values; this is {handle}",
        "handle not awaited": "{whose} values are there when it has been awaited; this is {handle}",
        "rank still waits": "this rank is still waiting in {call} on line {line}; a rank does one thing at a time, so await that call first",
        "values without layers": "{count} values need a list of {count} layers; got {got}",
        "empty list": "this list is empty; give at least one value",
        "handle used elsewhere": "{handle} belongs to another rank; only the rank that made a handle uses it",
        "no value made": "{handle} makes no value",
        "handle awaited elsewhere": "{handle} belongs to rank {rank}; only the rank that made a handle awaits it",
        "awaited twice": "{handle} was already awaited on line {line}; keep what 'await' returned",
        "never awaited": "{call} was never awaited; await its handle before the end",
        "no Dist": "Model: dist must be a Dist, such as Dist(4); got {got}",
        "set by the runtime": "the runtime sets this; read it, or change the contents of a dictionary, but do not replace it",
        "rank comes first": "the rank comes first: pass_to(rank, value)",
        "tag without source": "a message with a tag needs its source; write receive(0, tag={tag})",
        "no models": "pass the models of a run, such as [model] or the list that gather returns; got {got}",
        "models missing": "pass the models of a run; got none",
        "models of several runs": "these models belong to different runs; pass the models of one Dist, one for each rank",
        "ranks missing": "no model of {ranks} was passed; pass the models of all ranks",
        "value comes first": "the value comes first: {name}(value, layer)",
        "list without overlap": "a list of values needs costs with overlap; call once for each value",
        "not awaited": "{call} on line {line} was called without await, so it never ran; write 'await model.{name}(...)'{more}",
        "no value": "expected a weight, an activation or another value of the game; got {got}",
        "value of another rank": "the {value} belongs to rank {rank}; rank {this_rank} can get it only by communication: pass_to and receive, or a collective",
        "value of another Dist": "this is the {value} of another Dist; fetch it there",
        "loop is running": "run cannot be called where an event loop is running, as in a notebook; use 'await run_async(...)'",
        "wrong dictionary": "{dictionary} holds {kind}s only; got {got}{hint}",
        "nothing stored": "nothing is stored under this key; {dictionary} {have}; {advice}",
        "strange key": "a key must be a number, a string or a tuple of these; got an object of type {got}",
    }
)
