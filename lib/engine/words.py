"""Words the refusals of runs on arrays: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "nobody can move": "nobody can move: {states}. {fix}",
        "never received": "messages were sent and never received: {pairs}; receive them, or do not send them",
        "no whole number": "{what} must be a whole number; got {got}",
        "no list of devices": "give devices as a list, such as [0, 1]; got {got}",
        "not in group": "device {device} is not in group {group}; only its members make this call",
        "no such device": "there is no device {device}; {there}",
        "other calls": "device {first} calls {call}, but device {device} calls {other_call}; every device of a group must make the same collective calls, with the same shapes, in the same order",
        "stream read late": "device {device} begins to read the stream after others have read {read} inputs, and only {most} are kept; begin to read before that, or let another device send the inputs",
        "stream too long": "the stream has more than {most:,} inputs, and on processes all are read before the first output is there; end it earlier, or run an endless stream in process",
        "other number of inputs": "got {inputs} for {devices}; give a list with one per device, or one array for all",
        "run has ended": "this run has ended; launch a new one. It ended because {because}",
        "no engine class": "launch runs a subclass of ShardedEngine; got {got!r}",
        "no devices": "num_devices is {size}; a run needs at least one device",
        "no such transport": "there is no transport {transport!r}; there are {known}",
        "no device for late_puts": "late_puts names device {device}; there are {size}, 0 to {last}",
        "no byte_time": "byte_time is {got}; give whole numbers of flops, 0 or more, for 'host' and 'disk'",
        "no equal shards": "{count} rows or tokens cannot be cut into {total} equal shards; replay a count that divides",
        "nothing to profile": "a profile shows cells or collectives, and this run has neither: {why}",
        "cells alternate": "the operations of {slot} and of another cell alternate on rank {rank}; a profile shows cells one after the other, so compute all layers of a stage at once",
        "no whole matrices": "a replay's weights are hidden x hidden, and the costs {costs!r} give a layer {weight:,} parameters, which is not a whole number of matrices; leave it out of the costs",
        "cannot be played": "a replay cannot play {name}; rank {rank} calls it on line {line}",
        "tier not replayed": "rank {rank} calls {name} with the tier {tier!r} on line {line}, and the devices of a replay have {tiers} only; name the tier {tier_here!r}",
        "impossible measurement": "a replay measures at least 1 run, of matrices whose width is a multiple of {WIDTHS} unless they are small; got {runs}, width {width}, small {small}",
        "no MPI": "this needs mpi4py and an MPI: {install}",
    }
)
