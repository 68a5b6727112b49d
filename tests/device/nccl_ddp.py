# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a small training run with PyTorch's DistributedDataParallel, all ranks on GPU 0.

The parameters at the end have to be the same on all ranks, to the bit, and nearly those of the same
run without DDP. Started by nccl.sh, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 20
BATCH = 64


def make_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(), torch.nn.Linear(1024, 16)).cuda()


def batch(step, ranks):
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(ranks * BATCH, 256, generator=generator)
    y = torch.randn(ranks * BATCH, 16, generator=generator)
    return x.cuda(), y.cuda()


def train(model, ranks, rows):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = torch.nn.MSELoss()
    for step in range(STEPS):
        x, y = batch(step, ranks)
        optimizer.zero_grad()
        loss_of(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def loaded_nccl():
    """The libnccl that this process uses: PyTorch brings one of its own."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if "/libnccl.so" in line}
    return ", ".join(sorted(paths)) or "no libnccl.so: it is linked statically"


def main():
    torch.cuda.set_device(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model(), device_ids=[0], bucket_cap_mb=1)
    mine = train(model, ranks, slice(rank * BATCH, (rank + 1) * BATCH))
    everyone = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(everyone, mine)
    if not all(torch.equal(everyone[0], other) for other in everyone):
        sys.exit("the ranks have different parameters")
    alone = train(make_model(), ranks, slice(None))
    error = (alone - mine).abs().max().item()
    if error > 1e-4:
        sys.exit(f"parameters differ by {error} from those of one process")
    if rank == 0:
        print(f"DDP: {mine.numel()} parameters, the same on {ranks} ranks; "
              f"{error:.1e} from one process; NCCL {torch.cuda.nccl.version()}, "
              f"PyTorch {torch.__version__}")
        print(f"loaded: {loaded_nccl()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    main()
