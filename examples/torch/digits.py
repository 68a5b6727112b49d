#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains a network on images of digits with DistributedDataParallel, over Ferrule.

    torchrun --nproc_per_node 2 --max_restarts 3 digits.py --checkpoint digits.pt

After each epoch rank 0 replaces the checkpoint. Ranks that torchrun starts again, and later runs,
resume after its epoch: a rank may be killed at any time. With two ranks the result equals that of
an undisturbed run, bit for bit. With more it may differ: DDP has another order of buckets in the
first step, and thus of additions.

Ferrule needs `import ferrule.torch` and the name of the backend, and nothing else in one machine.

Prints: epoch 1 of 25: loss ...
        epoch 25 of 25: loss ...
        accuracy 0.9..., parameters ...
"""
import argparse
import hashlib
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.csv"
BATCH = 24  # of each rank


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="ferrule",
                        help="of torch.distributed (default: ferrule)")
    parser.add_argument("--device", help="port of this rank, as packet:eth0=10.1.1.1/24 "
                        "(default: that of FRL_FABRIC, or memory of this machine)")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--checkpoint", type=pathlib.Path,
                        help="file that rank 0 writes after each epoch (default: none)")
    parser.add_argument("--data", type=pathlib.Path, default=DATA,
                        help="64 pixels from 0 to 16 and a digit in each line (data/digits.csv)")
    return parser.parse_args()


def load_images(path):
    """Returns (training set, test set). The first of every five images is for the test."""
    with open(path, encoding="utf-8") as lines:
        rows = torch.tensor([[int(number) for number in line.split(",")] for line in lines])
    images = TensorDataset(rows[:, :64].float() / 16, rows[:, 64])
    tested = torch.arange(len(rows)) % 5 == 0
    return TensorDataset(*images[~tested]), TensorDataset(*images[tested])


def make_model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                         nn.Linear(256, 10))


def save_checkpoint(path, state):
    """Replaces the file in one step: a process that is killed leaves the old or the new one."""
    new = path.with_suffix(".new")
    with open(new, "wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # the new name
    os.close(folder)


def load_checkpoint(path, model, optimizer):
    """Rank 0 reads the file, and broadcasts it. Returns the number of epochs that are done."""
    state = [None]
    if dist.get_rank() == 0 and path and path.exists():
        state[0] = torch.load(path)  # before torch 2.6 this can run code: load only your own files
    dist.broadcast_object_list(state)
    if not state[0]:
        return 0
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return state[0]["epoch"]


def train_step(model, optimizer, images, digits):
    """Returns the loss. DDP averages the gradients of all ranks in backward()."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), digits)
    loss.backward()
    optimizer.step()
    return loss.item()


def train_epoch(model, optimizer, loader):
    """Returns the mean loss of all ranks."""
    losses = [train_step(model, optimizer, images, digits) for images, digits in loader]
    mean = torch.tensor(sum(losses) / len(losses))
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def measure_accuracy(model, tests):
    """Each rank tests a part of the images."""
    images, digits = tests[dist.get_rank()::dist.get_world_size()]
    with torch.no_grad():
        right = (model(images).argmax(1) == digits).sum()
    dist.all_reduce(right)
    return right.item() / len(tests)


def digest(model):
    """Returns a hash of the parameters, by which runs can be compared."""
    parts = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def train(options):
    training, tests = load_images(options.data)
    sampler = DistributedSampler(training, drop_last=True)
    loader = DataLoader(training, BATCH, sampler=sampler, drop_last=True)
    net = make_model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    done = load_checkpoint(options.checkpoint, net, optimizer)
    is_first = dist.get_rank() == 0
    if is_first and done:
        print(f"resumed after epoch {done}", flush=True)
    model = DistributedDataParallel(net)
    for epoch in range(done + 1, options.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
        if is_first:
            print(f"epoch {epoch} of {options.epochs}: loss {loss:.4f}", flush=True)
            if options.checkpoint:
                save_checkpoint(options.checkpoint, {
                    "epoch": epoch, "model": net.state_dict(), "optimizer": optimizer.state_dict()})
    accuracy = measure_accuracy(net, tests)
    if is_first:
        print(f"accuracy {accuracy:.4f}, parameters {digest(net)}", flush=True)


def main():
    options = parse()
    torch.set_num_threads(1)  # the network is small
    group_options = None
    if options.backend == "ferrule":
        import ferrule.torch  # registers the backend
        if options.device:
            group_options = ferrule.torch.Options(devices=[options.device])
    dist.init_process_group(options.backend, pg_options=group_options)
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
