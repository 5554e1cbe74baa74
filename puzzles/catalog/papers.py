"""The publications that puzzles of several tracks cite, each once, by year; docs/papers.md lists who cites each."""

from __future__ import annotations

from .paper import Paper

LPT = Paper(
    "Ronald L. Graham",
    1969,
    "Bounds on Multiprocessing Timing Anomalies",
    "SIAM Journal on Applied Mathematics 17(2), 416-429",
)
BACKPROPAGATION = Paper(
    "David E. Rumelhart, Geoffrey E. Hinton, Ronald J. Williams",
    1986,
    "Learning representations by back-propagating errors",
    "Nature 323, 533-536",
)
REVOLVE = Paper(
    "Andreas Griewank, Andrea Walther",
    2000,
    "Algorithm 799: Revolve: An Implementation of Checkpointing for the Reverse or Adjoint Mode of Computational "
    "Differentiation",
    "ACM Transactions on Mathematical Software 26(1), 19-45",
)
RING_ALL_REDUCE = Paper(
    "Pitch Patarasuk, Xin Yuan",
    2009,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    "Journal of Parallel and Distributed Computing 69(2), 117-124",
)
ADAM = Paper(
    "Diederik P. Kingma, Jimmy Ba", 2014, "Adam: A Method for Stochastic Optimization", "ICLR 2015, arXiv 1412.6980"
)
CHECKPOINTING = Paper(
    "Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin",
    2016,
    "Training Deep Nets with Sublinear Memory Cost",
    "arXiv 1604.06174",
)
VDNN = Paper(
    "Minsoo Rhu, Natalia Gimelshein, Jason Clemons, Arslan Zulfiqar, Stephen W. Keckler",
    2016,
    "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design",
    "MICRO-49, arXiv 1602.08124",
)
TIED_EMBEDDING = Paper(
    "Ofir Press, Lior Wolf", 2017, "Using the Output Embedding to Improve Language Models", "EACL 2017"
)
SCALING_TRANSLATION = Paper(
    "Myle Ott, Sergey Edunov, David Grangier, Michael Auli",
    2018,
    "Scaling Neural Machine Translation",
    "WMT 2018, arXiv 1806.00187",
)
GPIPE = Paper(
    "Yanping Huang, Youlong Cheng, Ankur Bapna et al.",
    2019,
    "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
    "NeurIPS 2019, arXiv 1811.06965",
)
PIPEDREAM = Paper(
    "Deepak Narayanan et al.", 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", "SOSP 2019"
)
MEGATRON = Paper(
    "Mohammad Shoeybi, Mostofa Patwary, Raul Puri et al.",
    2019,
    "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
    "arXiv 1909.08053",
)
BLUECONNECT = Paper(
    "Minsik Cho, Ulrich Finkler, Mauricio Serrano, David Kung, Hillery Hunter",
    2019,
    "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network hierarchy",
    "MLSys 2019",
)
LOCAL_SGD = Paper(
    "Sebastian U. Stich", 2019, "Local SGD Converges Fast and Communicates Little", "ICLR 2019, arXiv 1805.09767"
)
CAPUCHIN = Paper(
    "Xuan Peng, Xuanhua Shi, Hulin Dai et al.",
    2020,
    "Capuchin: Tensor-based GPU Memory Management for Deep Learning",
    "ASPLOS 2020",
)
PYTORCH_DDP = Paper(
    "Shen Li, Yanli Zhao, Rohan Varma et al.",
    2020,
    "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
    "VLDB 2020, arXiv 2006.15704",
)
ZERO = Paper(
    "Samyam Rajbhandari, Jeff Rasley, Olatunji Ruwase, Yuxiong He",
    2020,
    "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
    "SC20, arXiv 1910.02054",
)
WEIGHT_UPDATE_SHARDING = Paper(
    "Yuanzhong Xu et al.",
    2020,
    "Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training",
    "arXiv 2004.13336",
)
GSHARD = Paper(
    "Dmitry Lepikhin, HyoukJoong Lee, Yuanzhong Xu et al.",
    2020,
    "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding",
    "ICLR 2021, arXiv 2006.16668",
)
MEGATRON_CLUSTERS = Paper(
    "Deepak Narayanan, Mohammad Shoeybi, Jared Casper et al.",
    2021,
    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
    "SC21, arXiv 2104.04473",
)
PIPEDREAM_2BW = Paper(
    "Deepak Narayanan, Amar Phanishayee, Kaiyu Shi, Xie Chen, Matei Zaharia",
    2021,
    "Memory-Efficient Pipeline-Parallel DNN Training",
    "ICML 2021, arXiv 2006.09503",
)
GSPMD = Paper(
    "Yuanzhong Xu, HyoukJoong Lee, Dehao Chen et al.",
    2021,
    "GSPMD: General and Scalable Parallelization for ML Computation Graphs",
    "arXiv 2105.04663",
)
ZERO_INFINITY = Paper(
    "Samyam Rajbhandari, Olatunji Ruwase, Jeff Rasley et al.",
    2021,
    "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep Learning",
    "SC 2021, arXiv 2104.07857",
)
ZERO_OFFLOAD = Paper(
    "Jie Ren, Samyam Rajbhandari, Reza Yazdani Aminabadi et al.",
    2021,
    "ZeRO-Offload: Democratizing Billion-Scale Model Training",
    "USENIX ATC 2021, arXiv 2101.06840",
)
TERAPIPE = Paper(
    "Zhuohan Li, Siyuan Zhuang, Shiyuan Guo et al.",
    2021,
    "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language Models",
    "ICML 2021, arXiv 2102.07988",
)
BREADTH_FIRST_PIPELINE = Paper("Joel Lamy-Poirier", 2022, "Breadth-First Pipeline Parallelism", "arXiv 2211.05953")
H100 = Paper("NVIDIA", 2022, "NVIDIA H100 Tensor Core GPU Architecture", "White paper")
SEQUENCE_PARALLELISM = Paper(
    "Vijay Korthikanti, Jared Casper, Sangkug Lym et al.",
    2022,
    "Reducing Activation Recomputation in Large Transformer Models",
    "MLSys 2023, arXiv 2205.05198",
)
FLASH_ATTENTION = Paper(
    "Tri Dao, Daniel Y. Fu, Stefano Ermon et al.",
    2022,
    "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
    "NeurIPS 2022, arXiv 2205.14135",
)
DEEPSPEED_INFERENCE = Paper(
    "Reza Yazdani Aminabadi, Samyam Rajbhandari, Minjia Zhang et al.",
    2022,
    "DeepSpeed Inference: Enabling Efficient Inference of Transformer Models at Unprecedented Scale",
    "SC22, arXiv 2207.00032",
)
PYTORCH_FSDP = Paper(
    "Yanli Zhao, Andrew Gu, Rohan Varma et al.",
    2023,
    "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel",
    "VLDB 2023, arXiv 2304.11277",
)
RING_ATTENTION = Paper(
    "Hao Liu, Matei Zaharia, Pieter Abbeel",
    2023,
    "Ring Attention with Blockwise Transformers for Near-Infinite Context",
    "arXiv 2310.01889",
)
STRIPED_ATTENTION = Paper(
    "William Brandon, Aniruddha Nrusimha, Kevin Qian et al.",
    2023,
    "Striped Attention: Faster Ring Attention for Causal Transformers",
    "arXiv 2311.09431",
)
FLEXGEN = Paper(
    "Ying Sheng, Lianmin Zheng, Binhang Yuan et al.",
    2023,
    "FlexGen: High-Throughput Generative Inference of Large Language Models with a Single GPU",
    "ICML 2023, arXiv 2303.06865",
)
DILOCO = Paper(
    "Arthur Douillard, Qixuan Feng, Andrei A. Rusu et al.",
    2023,
    "DiLoCo: Distributed Low-Communication Training of Language Models",
    "arXiv 2311.08105",
)
SHARDING_PROPAGATION = Paper(
    "MindSpore authors", 2023, "Sharding Propagation", "documentation of MindSpore 2.1, section Parallel Design"
)
ULYSSES = Paper(
    "Sam Ade Jacobs, Masahiro Tanaka, Chengming Zhang et al.",
    2023,
    "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence Transformer Models",
    "arXiv 2309.14509",
)
FULL_REMATERIALIZATION = Paper(
    "chaserileyroberts on GitHub",
    2024,
    "Involuntary full rematerialization for advanced data movements",
    "jax-ml/jax issue 21562, also openxla/xla issue 15207",
)
ZERO_BUBBLE = Paper(
    "Penghui Qi, Xinyi Wan, Guangxing Huang, Min Lin",
    2024,
    "Zero Bubble Pipeline Parallelism",
    "ICLR 2024, arXiv 2401.10241",
)
CONTROLLABLE_MEMORY = Paper(
    "Penghui Qi, Xinyi Wan, Nyamdavaa Amar, Min Lin",
    2024,
    "Pipeline Parallelism with Controllable Memory",
    "NeurIPS 2024, arXiv 2405.15362",
)
VOCABULARY_PARALLELISM = Paper(
    "Man Tsung Yeung, Penghui Qi, Min Lin, Xinyi Wan",
    2024,
    "Balancing Pipeline Parallelism with Vocabulary Parallelism",
    "MLSys 2025, arXiv 2411.05288",
)
MIXTRAL = Paper(
    "Albert Q. Jiang, Alexandre Sablayrolles, Antoine Roux et al.", 2024, "Mixtral of Experts", "arXiv 2401.04088"
)
MEGATRON_CORE_MOE = Paper("NVIDIA", 2024, "Megatron Core MoE", "README of the package in NVIDIA/Megatron-LM, core r0.9")
NEMO_PERFORMANCE = Paper("NVIDIA", 2024, "NeMo Framework: performance summary", "documentation of container 24.07")
TORCHTITAN = Paper(
    "Wanchao Liang, Tianyu Liu, Less Wright et al.",
    2024,
    "TorchTitan: One-stop PyTorch native solution for production ready LLM pre-training",
    "ICLR 2025, arXiv 2410.06511",
)
LLAMA_3 = Paper("Abhimanyu Dubey et al.", 2024, "The Llama 3 Herd of Models", "arXiv 2407.21783")
DEEPSEEK_V3 = Paper("DeepSeek-AI", 2024, "DeepSeek-V3 Technical Report", "arXiv 2412.19437")
SEQ_1F1B = Paper(
    "Ao Sun, Weilin Zhao, Xu Han et al.",
    2024,
    "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training",
    "arXiv 2406.03488",
)
STREAMING_DILOCO = Paper(
    "Arthur Douillard, Yanislav Donchev, Keith Rush et al.",
    2025,
    "Streaming DiLoCo with Overlapping Communication: Towards a Distributed Free Lunch",
    "arXiv 2501.18512",
)
