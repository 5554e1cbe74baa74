# gathers_everything: over_target
# says: add1 -> relu pays 458,752 bytes (all-gather)
def gathers_everything(graph):
    1
