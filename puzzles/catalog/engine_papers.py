"""The publications that only engine puzzles cite, each once, by year."""

from __future__ import annotations

from .paper import Paper

BELADY = Paper(
    "L. A. Belady", 1966, "A study of replacement algorithms for a virtual-storage computer", "IBM Systems Journal 5"
)
OPENSHMEM = Paper(
    "Barbara Chapman, Tony Curtis, Swaroop Pophale et al.",
    2010,
    "Introducing OpenSHMEM: SHMEM for the PGAS community",
    "Fourth Conference on Partitioned Global Address Space Programming Model",
)
DISTBELIEF = Paper(
    "Jeffrey Dean, Greg S. Corrado, Rajat Monga et al.", 2012, "Large Scale Distributed Deep Networks", "NIPS 2012"
)
PARAMETER_SERVER = Paper(
    "Mu Li, David G. Andersen, Jun Woo Park et al.",
    2014,
    "Scaling Distributed Machine Learning with the Parameter Server",
    "OSDI 2014",
)
BACKUP_WORKERS = Paper(
    "Jianmin Chen, Xinghao Pan, Rajat Monga, Samy Bengio, Rafal Jozefowicz",
    2016,
    "Revisiting Distributed Synchronous SGD",
    "arXiv 1604.00981",
)
FEDERATED_STRATEGIES = Paper(
    "Jakub Konečný, H. Brendan McMahan, Felix X. Yu, Peter Richtárik, Ananda Theertha Suresh, Dave Bacon",
    2016,
    "Federated Learning: Strategies for Improving Communication Efficiency",
    "arXiv 1610.05492",
)
TRANSFORMER = Paper(
    "Ashish Vaswani, Noam Shazeer, Niki Parmar et al.",
    2017,
    "Attention Is All You Need",
    "NeurIPS 2017, arXiv 1706.03762",
)
SPARSELY_GATED = Paper(
    "Noam Shazeer, Azalia Mirhoseini, Krzysztof Maziarz et al.",
    2017,
    "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
    "ICLR 2017, arXiv 1701.06538",
)
FEDERATED_AVERAGING = Paper(
    "H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas",
    2017,
    "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    "AISTATS 2017, arXiv 1602.05629 (first version 2016)",
)
MEAN_ESTIMATION = Paper(
    "Ananda Theertha Suresh, Felix X. Yu, Sanjiv Kumar, H. Brendan McMahan",
    2017,
    "Distributed Mean Estimation with Limited Communication",
    "ICML 2017, arXiv 1611.00429",
)
MIXED_PRECISION = Paper(
    "Paulius Micikevicius, Sharan Narang, Jonah Alben et al.",
    2017,
    "Mixed Precision Training",
    "ICLR 2018, arXiv 1710.03740",
)
MESH_TENSORFLOW = Paper(
    "Noam Shazeer, Youlong Cheng, Niki Parmar et al.",
    2018,
    "Mesh-TensorFlow: Deep Learning for Supercomputers",
    "NeurIPS 2018, arXiv 1811.02084",
)
ONLINE_SOFTMAX = Paper(
    "Maxim Milakov, Natalia Gimelshein", 2018, "Online normalizer calculation for softmax", "arXiv 1805.02867"
)
TORCHGPIPE = Paper(
    "Chiheon Kim, Heungsub Lee, Myungryong Jeong et al.",
    2020,
    "torchgpipe: On-the-fly Pipeline Parallelism for Training Giant Models",
    "arXiv 2004.09910",
)
SWITCH = Paper(
    "William Fedus, Barret Zoph, Noam Shazeer",
    2021,
    "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
    "Journal of Machine Learning Research 23, arXiv 2101.03961",
)
MEGABLOCKS = Paper(
    "Trevor Gale, Deepak Narayanan, Cliff Young, Matei Zaharia",
    2022,
    "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts",
    "MLSys 2023, arXiv 2211.15841",
)
ZERO_INFERENCE = Paper(
    "The DeepSpeed team",
    2022,
    "ZeRO-Inference: Democratizing massive model inference",
    "DeepSpeed blog, deepspeed.ai/2022/09/09/zero-inference.html",
)
DISTSERVE = Paper(
    "Yinmin Zhong, Shengyu Liu, Junda Chen et al.",
    2024,
    "DistServe: Disaggregating Prefill and Decoding for Goodput-optimized Large Language Model Serving",
    "OSDI 2024, arXiv 2401.09670",
)
SPLITWISE = Paper(
    "Pratyush Patel, Esha Choukse, Chaojie Zhang et al.",
    2024,
    "Splitwise: Efficient Generative LLM Inference Using Phase Splitting",
    "ISCA 2024, arXiv 2311.18677",
)
GLOBAL_BALANCE = Paper(
    "Zihan Qiu, Zeyu Huang, Bo Zheng et al.",
    2025,
    "Demons in the Detail: On Implementing Load Balancing Loss for Training Specialized Mixture-of-Expert Models",
    "ACL 2025, arXiv 2501.11873",
)
