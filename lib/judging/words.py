"""Words the refusals of the referee: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "senseless record": "this record makes no sense ({why}): {record}",
        "other label": "called {call} on line {line} with layer {label}{more}: pass the layer of the value",
        "other ticks": "it takes place from tick {start} to {end}, not {op_start} to {op_end}",
        "other batches": "it is of batches {batches}, not {its_batches}",
        "other values": "it makes {values} values from number {first} on, not {numbers}",
        "values not numbered": "the values that this trace uses are not numbered by whole numbers",
        "ranks missing": "the trace is of {ranks} and holds {held}",
        "value not made": "it uses value {number}, which this rank has not made",
        "no operation": "there is no operation {name!r}",
        "other record": "a record of {name} holds {form}; this one is {op}",
        "batches never computed": "the gradient of {batches} was never computed; run forward and backward on these batches (a puzzle allows fake_grad only without batches, as a zero)",
        "never received": "this message was never received; receive it on rank {to}, or do not send it",
        "other message": "it makes {count} values from number {first} on, of no batches; this record is {op}",
        "nothing pending": "nothing is pending in the costs {costs!r}, which have no overlap: {op}",
        "not pending": "operation {operation} of this rank is not a pending call; a call is awaited once, after it was made",
        "other end": "it goes from tick {start} to {end} and uses {inputs}, as {call} does; this record is {op}",
        "never awaited": "{call} was never awaited; await its handle before the end",
        "takes no time": "to {name} takes no time, and makes nothing; this record is {op}",
        "nothing stored": "nothing is stored under this key",
        "stored value not made": "it stores value {number}, which this rank has not made",
        "wrong dictionary": "{dictionary} does not hold {kind}",
        "still pending": "the {value} is still pending; await it first",
        "made by hand": "the {value} was made by hand or by a model of another Dist; in a puzzle, get it from this model's own operations",
        "other layer": "it is of layer {layer}, the layer of the {value}, not {op_layer}",
        "no root": "a {name} names its root by a whole number; this record is {op}",
        "default recorded": "a record leaves out arguments that have their default; this one is {op}",
        "no labels": "a label is a whole number for each value; this record is {op}",
        "no group": "a group is some of the ranks, ascending; this record is {op}",
        "other size": "this is a run of {size}; the puzzle {slug} is of {goal_size}",
        "other costs": "this run has other costs than the puzzle {slug}, whose are {costs}",
        "other setting": "this run has another setting than the puzzle {slug}, whose is {setting}",
        "tier full": "rank {rank} has {memory:,} elements on the {tier} at t={time:g}, but only {capacity:,} fit; delete a parked value first",
        "no window": "window must be a number of steps, more than 0; got {got!r:.60}",
    }
)
