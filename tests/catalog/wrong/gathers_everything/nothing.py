# gathers_everything: over_target
# facts: 458,752
# misses: bytes, memory
def gathers_everything(graph):
    1
