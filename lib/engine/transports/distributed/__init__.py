"""torch.distributed as a transport. Arrays go through torch, and control messages through sockets between processes."""
