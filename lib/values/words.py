"""Words the refusals of the values: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "no list": "{owner}{things} must be a list of numbers, such as [0]; got {got}",
        "listed twice": "{owner}{thing} {number} is listed twice; list it once",
        "does not exist": "{owner}{thing} {number} does not exist; {exist}",
        "no whole number": "{owner}{thing} must be a whole number; got {got}",
        "too small": "{owner}{thing} must be at least {least}; got {got}",
        "version not older": "{owner}: version {older} is not older than step {step}; leave it out where it is the step",
        "no part": "{owner}{thing} must be (i, n), the i-th of n parts; got {got}",
        "arguments swapped": "the arguments are in the wrong order: {swapped}; write {call}",
        "wrong kind": "{name} must be {kind}; got {value}{hint}",
        "no shards": "{owner} has no shards; give at least one, such as shards={{0}}",
        "no layer": "{owner}: layer {layer} does not exist; a model of {layers} layers has {first} to {last} here",
        "no batches": "{owner} has no batches; give at least one, such as batches={{0}}",
        "vocabulary not boolean": "{owner}: vocabulary must be True or False; got {got!r:.60}",
        "none of these": "{owner} has no {thing}; name at least one, such as {numbers}={{0}}",
        "only full values": "only weights, optimizer states and weight gradients have shards; got {value}",
        "full already": "{who} contributes the {value}, which is full already; contribute this rank's shard, and store the full value under a key of its own",
        "shard not held": "this is the {value}, which does not hold all of shard {i} of {n}; gather it first",
        "wrong kind for use": "{use} must be {kind}; got {value}{hint}",
        "values differ": "cannot {verb} values that differ in {differ}: {who} contributes the {first}, {other_who} the {other}{advice}",
        "outer gradient without copies": "Delta: an outer gradient is of copies; got {got!r:.60}",
        "copies of other batches": "Delta: its copies together have the batches of its mark; got {got!r:.60}",
        "only values parked": "Parked: only a value of the game can be parked; got {got!r}",
        "no copy": "copy must be {fields}, such as (0, [1], 4, []); got {got!r:.60}",
        "no averages": "averages must be a list; got {got!r:.60}",
        "no average": "an average is two steps and the batches of each replica; got {got!r:.60}",
        "no norm": "{owner}: it has shards of {layers} layers; got {shards!r:.60} of {total}",
        "not part of sum": "this is the {value}; keys and values are not parts of a sum",
        "complete sum": "this is the {value}, which is already complete; only parts of a sum are added",
        "copies of other rounds": "{who} contributes the {first}, {other_who} the {other}; sum copies of one round",
        "in both": "{both} include {thing} {number}; {then}",
        "parts in both": "both values already include {parts} of the sum; add each once",
        "shares in both": "both values already include the {shares}; add each once",
        "versions differ": "one gradient was made with version {sum_version}, the other with {grad_version}; all of a step use one version",
    }
)
