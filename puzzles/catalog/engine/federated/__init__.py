"""Chapter of federated learning: clients keep their examples and send small updates to a server."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Leave the data where it is",
    idea="clients keep their examples and send updates to a server; how few bytes are enough?",
    files={
        "FedSGD": "fed_sgd",
        "FedAvg": "fed_avg",
        "LowRank": "low_rank",
        "Subsample": "subsample",
        "Quantize": "quantize",
        "Rotate": "rotate",
    },
)
