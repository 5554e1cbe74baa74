"""Chapter `annotated`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "AnnotatedMLP": {"sent": 4_096, "flops": 65_536, "weights": 2_048},
    "AnnotatedMoE": {"sent": 768, "flops": 20_480, "weights": 4_096},
}

H = '        h = mesh_split(h, self.mesh, ("data", "model"))\n'
WEIGHTS = (
    '        w0 = mesh_split(w0, self.mesh, ("data", "model"))\n'
    '        w1 = mesh_split(w1, self.mesh, ("model", "data"))\n'
)
SENT = "        sent = split(sent, 0, 4)  # so the experts are split along a row too, and only their tokens move\n"
HIDDEN = '        h = np.maximum(np.einsum("EGCM,EMH->EGCH", sent, wi), 0)\n'

WRONG = {
    ("AnnotatedMLP", "nothing more annotated"): (
        WEIGHTS,
        "        return mesh_split(np.maximum(x @ w0, 0) @ w1, self.mesh, {0: (0, 1)})\n",
        "over_target: correct, but bytes after loading 8,192, and the target is 2,048",
    ),
    ("AnnotatedMLP", "only the weights"): (
        H,
        "",
        "over_target: correct, but bytes sent 6,144, and the target is 4,096",
    ),
    ("AnnotatedMLP", "only what lies between"): (
        WEIGHTS,
        "",
        "over_target: correct, but bytes after loading 4,096, and the target is 2,048",
    ),
    ("AnnotatedMLP", "the weights gathered whole"): (
        H,
        '        h = mesh_split(h, self.mesh, (("data", "model"), None))\n',
        "over_target: correct, but bytes sent 6,144, and the target is 4,096",
    ),
    ("AnnotatedMLP", "only the hidden dimension split"): (
        WEIGHTS,
        '        w0 = mesh_split(w0, self.mesh, (None, ("data", "model")))\n'
        '        w1 = mesh_split(w1, self.mesh, (("data", "model"), None))\n'
        "        h = np.maximum(x @ w0, 0)\n"
        '        h = mesh_split(h, self.mesh, (None, ("data", "model")))\n'
        '        return mesh_split(h @ w1, self.mesh, (("data", "model"), None))\n',
        "over_target: correct, but bytes sent 6,144, and the target is 4,096",
    ),
    ("AnnotatedMLP", "the axes the wrong way round"): (
        H,
        '        h = mesh_split(h, self.mesh, ("model", "data"))\n',
        "over_target: correct, but its figures are unknown",
    ),
    ("AnnotatedMLP", "an axis twice"): (
        H,
        '        h = mesh_split(h, self.mesh, ("data", "data"))\n',
        "failed: line 21: 'relu1' of shape (64, 64): axis 0 of the device matrix 2x2 is named 2 times",
    ),
    ("AnnotatedMLP", "the output stays whole"): (
        'return mesh_split(y, self.mesh, (("data", "model"), None))',
        "return y",
        "failed: device 0, forward() should be an array of shape (16, 16); it is one of shape (32, 16)",
    ),
    ("AnnotatedMLP", "another program"): (
        "        y = np",
        "        h = np.exp(h)\n        y = np",
        "failed: line 22: the planner does not support numpy.exp with these arguments; it supports einsum, @, +",
    ),
    ("AnnotatedMoE", "nothing more annotated"): (SENT, "", "over_target: correct, but bytes after loading 16,384"),
    ("AnnotatedMoE", "each expert split in four"): (
        SENT,
        "        wi, wo = split(wi, 2, 4), split(wo, 1, 4)\n",
        "over_target: correct, but bytes sent 3,072, and the target is 768",
    ),
    ("AnnotatedMoE", "the experts' weights, and the hidden layer by groups"): (
        SENT + HIDDEN,
        "        wi, wo = split(wi, 0, 4), split(wo, 0, 4)\n" + HIDDEN + "        h = split(h, 1, 4)\n",
        "over_target: correct, but bytes sent 2,304, and the target is 768",
    ),
    ("AnnotatedMoE", "only its own expert"): (
        SENT,
        "        sent = sent[self.device_id]\n",
        "failed: line 19: 'einsum1' is indexed with 0; the planner supports einsum, @, +, maximum(x, 0), sum over one",
    ),
    ("AnnotatedMoE", "split by groups"): (
        SENT,
        "        sent = split(sent, 1, 4)\n",
        "over_target: correct, but bytes after loading 16,384, and the target is 4,096",
    ),
    ("AnnotatedMoE", "places split instead of experts"): (
        SENT,
        "        sent = split(sent, 2, 4)\n",
        "failed: line 19: 'einsum1' of shape (4, 4, 2, 16): dimension 2 of size 2 cannot be split into 4 equal parts",
    ),
    ("AnnotatedMoE", "too many parts"): (
        SENT,
        "        sent = split(sent, 0, 5)\n",
        "failed: line 19: 'einsum1' cannot be split into 5 parts: of the axes of the mesh 4 none have that many "
        "devices;",
    ),
}
