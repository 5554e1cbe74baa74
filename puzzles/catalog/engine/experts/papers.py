"""The papers that this chapter is made of."""

from puzzles.catalog.schedule.puzzle import Source

SWITCH = Source(
    "William Fedus, Barret Zoph, Noam Shazeer",
    2021,
    "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
    "Journal of Machine Learning Research 23, arXiv 2101.03961",
)
GSHARD = Source(
    "Dmitry Lepikhin, HyoukJoong Lee, Yuanzhong Xu et al.",
    2020,
    "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding",
    "ICLR 2021, arXiv 2006.16668",
)
SPARSELY_GATED = Source(
    "Noam Shazeer, Azalia Mirhoseini, Krzysztof Maziarz et al.",
    2017,
    "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
    "ICLR 2017, arXiv 1701.06538",
)
MEGABLOCKS = Source(
    "Trevor Gale, Deepak Narayanan, Cliff Young, Matei Zaharia",
    2022,
    "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts",
    "MLSys 2023, arXiv 2211.15841",
)
DEMONS = Source(
    "Zihan Qiu, Zeyu Huang, Bo Zheng et al.",
    2025,
    "Demons in the Detail: On Implementing Load Balancing Loss for Training Specialized Mixture-of-Expert Models",
    "ACL 2025, arXiv 2501.11873",
)
OPENSHMEM = Source(
    "Barbara Chapman, Tony Curtis, Swaroop Pophale et al.",
    2010,
    "Introducing OpenSHMEM: SHMEM for the PGAS community",
    "Fourth Conference on Partitioned Global Address Space Programming Model",
)
