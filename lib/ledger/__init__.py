"""The game's core: what a run needs, what it does, what it leaves, and what that is worth.

To be read in this order, which is that of the imports:

- what is fixed before a run: `costs`, `named_costs`, `setting`, `goal`
- values as labels, and their algebra: `algebra`, `values`
- what each operation requires and returns: `layers`, `attention`, `updates`, `collectives`, `operations`
- the record of a run, its notation as JSON, and how long its values live: `trace`, `trace_json`, `lifetimes`
- how ranks meet, and the walk through a trace: `meetings`, `deadlocks`, `lanes`
- the referee: `recomputation`, `memory`, `traffic`, `family`, `notes`, `referee`
- a run in progress, which the referee judges at its end: `waits`, `recorder`, `live_run`, `rank`, `model`, `runner`
"""
