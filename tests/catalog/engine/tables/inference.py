"""Chapter `inference`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "PrefillDecode": {"sent": 4_032, "messages": 3, "collectives": 21, "elapsed": 52_504, "weights": 2_048},
    "Stream": {"host_read": 2_048, "disk_read": 0, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 1_408},
    "Prefetch": {"elapsed": 18_432, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 2_048},
    "HostCache": {
        "disk_read": 4_096,
        "host_peak": 1_024,
        "host_loaded": 0,
        "sent": 18_432,
        "collectives": 24,
        "weights": 0,
        "peak": 1_536,
    },
}

WRONG = {
    ("PrefillDecode", "prefill sees the future"): (
        "seen = np.tri(len(x), k.shape[1], earlier, dtype=bool)",
        "seen = np.ones((len(x), k.shape[1]), dtype=bool)",
        "failed: device 0, forward() differs ... does a token of a prompt see later ones?",
    ),
    ("PrefillDecode", "nothing appended to the cache"): (
        "y, k, v = self.layer(out[-1][None], k, v)",
        "y, _, _ = self.layer(out[-1][None], k, v)",
        "failed: device 2, forward() differs ... are the keys and values of a generated token missing in the cache?",
    ),
    ("PrefillDecode", "summed over both groups"): (
        ", group=self.group), k, v",
        "), k, v",
        "failed: nobody can move: devices 0, 1 wait in all_reduce(float32 (12, 16), op='sum')",
    ),
    ("PrefillDecode", "all heads on every decode device"): (
        "np.concatenate([y[-1], k.ravel(), v.ravel()]))",
        "np.concatenate([y[-1], k.ravel(), v.ravel()]))\n        self.all_gather(np.stack([k, v]), 1, self.group)",
        "over_target: correct, but bytes sent 5,952, and the target is 4,032",
    ),
    ("PrefillDecode", "the prompt computed again"): (
        "        out = [parts[0][: self.dim]]\n",
        "        out = [parts[0][: self.dim]]\n        prompt = np.ones((k.shape[1], self.dim), np.float32)\n"
        "        prompt @ self.w[COLUMNS[1]], prompt @ self.w[COLUMNS[2]]\n",
        "over_target: correct, but flops of time after loading 64,920, and the target is 52,504",
    ),
    ("PrefillDecode", "prefill waits for decode"): (
        "    def backward(self, grads):\n",
        "    def forward(self, x):\n        every, out = range(self.num_devices), []\n"
        "        for prompt in x if self.group is self.prefill else range(x):\n"
        "            out.append(self.fill(prompt) if self.group is self.prefill else self.generate())\n"
        "            if self.group is self.decode:\n"
        "                [self.send(there, out[-1][0, :1]) for there in self.prefill]\n"
        "            else:\n                [self.receive(there) for there in self.decode]\n"
        "        return np.concatenate(out) if self.group is self.prefill else np.stack(out)\n\n"
        "    def backward(self, grads):\n",
        "over_target: correct, but messages sent 6, and the target is 3; and flops of time after loading 73,896",
    ),
    ("PrefillDecode", "three messages"): (
        "np.concatenate([y[-1], k.ravel(), v.ravel()]))",
        "np.concatenate([y[-1], k.ravel()]))\n        self.send(self.decode[part], v.ravel())",
        "failed: ",
    ),
    ("PrefillDecode", "the full weights on every device"): (
        "        self.scale = ",
        "        self.full = np.zeros((4, model_dim, model_dim), np.float32)\n        self.scale = ",
        "over_target: correct, but bytes after loading 6,144, and the target is 2,048",
    ),
    ("PrefillDecode", "as many devices in both groups"): (
        "first : first + each]]",
        "first : first + 1]]",
        "failed: tried with 6 devices, model_dim 24, prefill 4, tokens 4: ",
    ),
    ("Stream", "the layer of before is still there"): (
        '            x = relu(x @ self.all_gather(self.host.fetch(f"layer_{layer}/weights")))\n',
        '            w = self.all_gather(self.host.fetch(f"layer_{layer}/weights"))\n            x = relu(x @ w)\n',
        "over_target: correct, but peak bytes 2,432, and the target is 1,664",
    ),
    ("Stream", "weights where no meter looks"): (
        "            self.host.put(name, np.split(params[name], self.num_devices)[self.device_id])\n\n"
        "    def forward(self, x):\n",
        "            self.host.put(name, np.split(params[name], self.num_devices)[self.device_id])\n"
        "        kept = [w.tolist() for w in params.values()]\n"
        "        self.layer = lambda i: np.array(kept[i], np.float32)\n\n"
        "    def forward(self, x):\n"
        "        for layer in range(self.layers):\n"
        "            x = relu(x @ self.layer(layer))\n"
        "        return x\n",
        "failed: device 0 keeps 2,048 numbers in self.layer outside of arrays",
    ),
    ("Stream", "whole layers on every host"): (
        "np.split(params[name], self.num_devices)[self.device_id])",
        "params[name])\n        self.all_gather = np.asarray",
        "over_target: correct, but bytes read from the host 8,192, and the target is 2,048",
    ),
    ("Stream", "all shards fetched first"): (
        "        for layer in range(self.layers):\n            # N",
        '        kept = [self.host.fetch(f"layer_{layer}/weights") for layer in range(self.layers)]\n'
        "        for layer in range(self.layers):\n            # N",
        "over_target: correct, but bytes read from the host 4,096, and the target is 2,048; and peak bytes 3,456",
    ),
    ("Stream", "weights kept on the devices"): (
        "            self.host.put(name",
        "            self.__dict__[name] = params[name]\n            self.host.put(name",
        "over_target: correct, but bytes after loading 8,192, and the target is 0; and peak bytes",
    ),
    ("Stream", "hidden on the disk"): (
        "            self.host.put(name, ",
        "            self.host, name = self.disk, name\n            self.host.put(name, ",
        "over_target: correct, but bytes read from the disk 2,048, and the target is 0",
    ),
    ("Stream", "only a shard used"): (
        'self.all_gather(self.host.fetch(f"layer_{layer}/weights"))',
        'np.tile(self.host.fetch(f"layer_{layer}/weights"), (4, 1))',
        "failed: device 0, forward() differs from what a single device computes: at [",
    ),
    ("Stream", "put under another name"): (
        'name = f"layer_{layer}/weights"\n            self.host.put(name, np.split(params[name]',
        'name = f"layer_{layer}"\n            self.host.put(name, np.split(params[f"{name}/weights"]',
        "failed: device 0 of 4, host.fetch('layer_0/weights'): the host has no 'layer_0/weights'; did you mean ",
    ),
    ("Prefetch", "one after the other"): (
        "            shard = coming.wait()\n            coming = self.host.fetch_async(after) if after else None\n"
        "            x = relu(x @ self.all_gather(shard))\n",
        "            x = relu(x @ self.all_gather(coming.wait()))\n"
        "            coming = self.host.fetch_async(after) if after else None\n",
        "over_target: correct, but flops of time after loading 32,768, and the target is 18,432",
    ),
    ("Prefetch", "waits at once"): (
        "        coming = self.host.fetch_async(self.names[0])\n        for after in (*self.names[1:], None):\n"
        "            shard = coming.wait()\n            coming = self.host.fetch_async(after) if after else None\n",
        "        for name in self.names:\n            shard = self.host.fetch_async(name).wait()\n",
        "over_target: correct, but flops of time after loading 32,768, and the target is 18,432",
    ),
    ("Prefetch", "everything asked for at once"): (
        "        coming = self.host.fetch_async(self.names[0])\n        for after in (*self.names[1:], None):\n"
        "            shard = coming.wait()\n            coming = self.host.fetch_async(after) if after else None\n"
        "            x = relu(x @ self.all_gather(shard))\n",
        "        every = [self.host.fetch_async(name) for name in self.names]\n        for coming in every:\n"
        "            x = relu(x @ self.all_gather(coming.wait()))\n",
        "over_target: correct, but peak bytes 3,",
    ),
    ("Prefetch", "one too many"): (
        "self.host.fetch_async(after) if after else None",
        "self.host.fetch_async(after)",
        "failed: device 3 of 4, host.fetch_async(None): the host has no None; put it there first",
    ),
    ("Prefetch", "waited for twice"): (
        "self.all_gather(shard))",
        "self.all_gather(shard)); late = coming and (coming.wait(), coming.wait())",
        "failed: device 3 of 4, host.fetch_async('layer_1/weights'): wait() was already called; keep",
    ),
    ("Prefetch", "whole layers, without a gather"): (
        "np.split(params[name], self.num_devices)[self.device_id])",
        "params[name])\n        self.all_gather = np.asarray",
        "over_target: correct, but flops of time after loading 67,584, and the target is 18,432",
    ),
    ("HostCache", "the latest are kept"): (
        "        if len(self.host) < self.fits:\n            self.host.put(name, shard)\n",
        "        if len(self.host) == self.fits:\n            self.host.drop(next(iter(self.host)))\n"
        "        self.host.put(name, shard)\n",
        "over_target: correct, but bytes read from the disk 6,144, and the target is 4,096",
    ),
    ("HostCache", "nothing is kept"): (
        "        if len(self.host) < self.fits:\n            self.host.put(name, shard)\n",
        "",
        "over_target: correct, but bytes read from the disk 6,144, and the target is 4,096",
    ),
    ("HostCache", "everything is kept"): (
        "        if len(self.host) < self.fits:\n            self",
        "        if True:\n            self",
        "over_target: correct, but bytes on the host at most 2,048, and the target is 1,024",
    ),
    ("HostCache", "put on the host at once"): (
        "            self.disk.put(name, np",
        "            self.host.put(name, np",
        "over_target: correct, but bytes on the host at most 2,048, and the target is 1,024; and bytes on the",
    ),
    ("HostCache", "only for the shown host"): (
        "self.fits = host_bytes // (model_dim * model_dim * 4 // self.num_devices)",
        "self.fits = 4",
        "over_target: correct, but tried with layers 5, host_bytes 256: bytes on the host at most 1,024, ",
    ),
}
