"""Words the refusals of layouts: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "axes without names": "a program of JAX needs a mesh with named axes; plan a Graph(mesh=mesh(data=2, model=4))",
        "uneven pieces": "JAX has no uneven pieces, and '{name}' is padded; pad it with graph.pad",
        "no such framework": "there is no framework {framework!r}; {advice}",
        "pieces differ": "devices {first} and {device} should hold the same piece, but theirs differ",
        "completed plan too large": "the completed plan holds {peak:,} bytes on a device when {when}, more than {cap:,}: {names}; split one of these with an annotation, or let plan(graph, peak={cap}) choose",
        "no highspy": "a plan needs highspy, which solves integer programs: {install}",
        "no plan fits": "no plan fits into {cap:,} bytes on each device; the smallest possible is {smallest:,}",
        "peak too small": "{what}; the smallest possible peak is {smallest:,}, when {when}",
        "no such relation": "{name}: there is no relation {relation!r}; {advice}",
        "parts do not divide": "{where} cannot be split into {n} parts: the number has to divide {sizes}",
        "no equal parts": "{name}: dimension {dim} of '{tensor}', of size {size}, cannot be split into {n} equal parts; pad it to {whole} with graph.pad",
        "no gradient": "'{name}': {kind} has no gradient for '{tensor}', which is computed from weights",
        "uneven not boolean": "uneven is True, False, or None for strategies that are given only; got {got!r}",
        "no value given": "no value was given for {source} '{name}' of shape {shape}",
        "no JAX": "from_jax needs jax, which is not installed: {install}",
        "padded annotation": "{whose} pads its shape {shape} to {padded}, and this graph takes equal parts only; split other dimensions, or pad it with graph.pad",
        "axes without mesh": "{whose} names axes, and this graph has no mesh; make it with Graph(mesh=mesh(data=2, ...))",
        "no parameter": "'{result}' depends on no parameter; add one with graph.parameter(name, shape)",
        "sums differ": "the target is a sum of {summands} pieces, the source of {source}: a redistribution can complete sums, but not change them",
        "other number of devices": "the mesh {mesh} has {devices}; this run has {run}",
    }
)
