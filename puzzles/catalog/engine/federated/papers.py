"""The publications that this chapter's puzzles are owed to."""

from puzzles.catalog.schedule.puzzle import Source

AVERAGING = Source(
    "H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas",
    2017,
    "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    "AISTATS 2017, arXiv 1602.05629 (first version 2016)",
)
STRATEGIES = Source(
    "Jakub Konečný, H. Brendan McMahan, Felix X. Yu, Peter Richtárik, Ananda Theertha Suresh, Dave Bacon",
    2016,
    "Federated Learning: Strategies for Improving Communication Efficiency",
    "arXiv 1610.05492",
)
MEAN_ESTIMATION = Source(
    "Ananda Theertha Suresh, Felix X. Yu, Sanjiv Kumar, H. Brendan McMahan",
    2017,
    "Distributed Mean Estimation with Limited Communication",
    "ICML 2017, arXiv 1611.00429",
)
