"""Words the refusals of the record of a run: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "other storing": "this record does not store or delete as a run does: {ops}",
        "no JSON": "this is not a trace in JSON: {why}",
        "no trace": 'this is not a trace: it must be an object with "format": "{form}"',
        "other version": "this trace is of version {version!r}; this program reads version {read}",
        "impossible count": "{name} of a trace must be a whole number from 1 to {most:,}; got {got!r:.60}",
        "ranks missing": "a trace of {ranks} holds a list of operations for each; found {count}",
        "no operations": "the operations of rank {rank} must be a list; got {got!r:.60}",
        "impossible setting": "this trace has an impossible setting: {why}",
        "unreadable operation": "operation {operation} of rank {rank}: {why}",
        "no operation": "there is no operation {name!r}",
        "no ticks": "'at' must be the start and the end in ticks; got {got!r:.60}",
        "no number": "{column} must be a whole number from {first}; got {got!r:.60}",
        "batch twice": "a batch is listed twice",
        "no numbers": "{column} must be a list of whole numbers from 0; got {got!r:.60}",
        "too many": "a value has at most {most:,} of anything; got {got!r:.60}",
        "no value": "value must be a kind and its fields; got {got!r:.60}",
        "no key": "a key must be a number, a string or a tuple of these; got an object",
    }
)
