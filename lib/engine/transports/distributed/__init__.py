"""torch.distributed as a transport: arrays go through it, and what processes agree on through sockets between them."""
