#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel over a backend: ddp.py BACKEND [ROW...].

After each row all ranks have the same parameters, to the bit. Where the algorithm is that of one
process on all the data, they are also nearly those of one process.
"""
import sys

import torch_jobs
from torch_jobs import VERSION, Skip, digest, expect, note, row

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH, CLASSES, BATCH = 32, 8, 16
LAYERS, LAYER_WIDTH = 8, 256
# Megabytes. With this limit each layer of DeepNet has a bucket of its own.
LAYER_MB = LAYER_WIDTH * LAYER_WIDTH * 4 / 2**20
GLOO_ABORTS = "operations that ranks start in different orders end a process"


class Net(nn.Module):
    """Three layers. `branches`: layers in the middle, of which a call uses one."""

    width, classes = WIDTH, CLASSES

    def __init__(self, dtype=torch.float32, branches=1, norm=False, recompute=False):
        super().__init__()
        torch.manual_seed(7)
        self.first = nn.Linear(WIDTH, 64)
        self.norm = nn.BatchNorm1d(64) if norm else nn.Identity()
        self.middle = nn.ModuleList([nn.Linear(64, 64) for _ in range(branches)])
        self.last = nn.Linear(64, CLASSES)
        self.recompute = recompute
        self.to(dtype)

    def forward(self, x, branch=0):
        x = torch.relu(self.norm(self.first(x)))
        layer = self.middle[branch]
        x = checkpoint(layer, x, use_reentrant=True) if self.recompute else layer(x)
        return self.last(torch.relu(x))


class DeepNet(nn.Sequential):
    width = classes = LAYER_WIDTH

    def __init__(self):
        torch.manual_seed(7)
        layers = []
        for _ in range(LAYERS):
            layers += [nn.Linear(LAYER_WIDTH, LAYER_WIDTH), nn.ReLU()]
            nn.init.kaiming_normal_(layers[-2].weight, nonlinearity="relu")
        super().__init__(*layers[:-1])


def batch(model, step, shard):
    """Returns the inputs and targets of a rank in a step."""
    net = getattr(model, "module", model)
    generator = torch.Generator().manual_seed(1000 * step + shard)
    x, y = (torch.randn(BATCH, size, generator=generator) for size in (net.width, net.classes))
    dtype = next(net.parameters()).dtype
    return x.to(dtype), y.to(dtype)


def loss_of(model, step, shard, **arguments):
    x, y = batch(model, step, shard)
    return nn.functional.mse_loss(model(x, **arguments), y)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def train(model, optimizer, steps=10, loss=loss_of):
    """Trains one rank. Returns the losses."""
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        value = loss(model, step, dist.get_rank())
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def compare_with_one_process(model, tolerance=1e-5, steps=10, *, make=Net, optimizer=sgd,
                             loss=loss_of, has_data=lambda step, shard: True):
    """Rank 0 trains alone on the data of all ranks, each with a weight of 1/ranks."""
    if dist.get_rank() != 0:
        return
    alone = make()
    stepper = optimizer(alone.parameters())
    for step in range(steps):
        stepper.zero_grad()
        for shard in range(dist.get_world_size()):
            if has_data(step, shard):
                (loss(alone, step, shard) / dist.get_world_size()).backward()
        stepper.step()
    for (name, mine), other in zip(alone.named_parameters(), model.parameters()):
        error = (mine - other).abs().max().item()
        expect(error <= tolerance, f"{name} differs by {error:.2g} from that of one process")


# ---- DDP itself

def plain_run(**options):
    model = DistributedDataParallel(Net(), **options)
    train(model, sgd(model.parameters()))
    compare_with_one_process(model.module)
    return digest(model.parameters())


@row()
def plain():
    return plain_run()


@row(ranks=4)
def plain_of_4_ranks():
    return plain_run()


@row()
def gradients_as_views_of_buckets():
    return plain_run(gradient_as_bucket_view=True)


@row()
def float64():
    model = DistributedDataParallel(Net(torch.float64))
    train(model, sgd(model.parameters()))
    compare_with_one_process(model.module, 1e-13, make=lambda: Net(torch.float64))
    return digest(model.parameters())


@row()
def many_buckets():
    model = DistributedDataParallel(DeepNet(), bucket_cap_mb=LAYER_MB)
    train(model, sgd(model.parameters()))
    compare_with_one_process(model.module, make=DeepNet)
    return digest(model.parameters())


@row()
def buffers():
    """Buffers of rank 0 are broadcast before each step."""
    net, seen = Net(norm=True), []
    net.register_forward_pre_hook(lambda module, _: seen.append(digest(module.buffers())))
    model = DistributedDataParallel(net)
    losses = train(model, sgd(model.parameters()))
    expect(len(set(seen)) == len(losses), "the running means do not change")
    return digest(model.parameters()), seen


@row()
def static_graph():
    """The graph has reentrant checkpoints, which need a static one."""
    model = DistributedDataParallel(Net(recompute=True), static_graph=True)
    train(model, sgd(model.parameters()))
    compare_with_one_process(model.module)
    return digest(model.parameters())


@row()
def unused_parameters():
    """Ranks use different branches, and no rank uses the third one."""
    def loss(model, step, shard):
        return loss_of(model, step, shard, branch=(step + shard) % 2)

    model = DistributedDataParallel(Net(branches=3), find_unused_parameters=True)
    train(model, sgd(model.parameters()), loss=loss)
    compare_with_one_process(model.module, make=lambda: Net(branches=3), loss=loss)
    expect(model.module.middle[2].weight.grad is None, "an unused parameter has a gradient")
    return digest(model.parameters())


@row()
def no_sync():
    """Two backward passes a step, of which the first one sends nothing."""
    def loss(model, step, shard):
        first = loss_of(model, step + 100, shard)
        if not isinstance(model, DistributedDataParallel):
            return first + loss_of(model, step, shard)
        with model.no_sync():
            loss_of(model, step + 100, shard).backward()
        return loss_of(model, step, shard)

    model = DistributedDataParallel(Net())
    train(model, sgd(model.parameters()), loss=loss)
    compare_with_one_process(model.module, loss=loss)
    return digest(model.parameters())


# ---- ranks with unequal numbers of steps

def steps_of(shard):
    return 3 + 2 * shard


@row(ranks=3)
def join():
    model = DistributedDataParallel(Net())
    optimizer = sgd(model.parameters())
    with Join([model]):
        train(model, optimizer, steps_of(dist.get_rank()))
    compare_with_one_process(model.module, steps=steps_of(dist.get_world_size() - 1),
                             has_data=lambda step, shard: step < steps_of(shard))
    return digest(model.parameters())


@row(ranks=3)
def join_with_zero():
    """Ranks without data step with their last gradients, which is no algorithm of one process."""
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    with Join([model, optimizer]):
        train(model, optimizer, steps_of(dist.get_rank()))
    return digest(model.parameters())


@row()
def zero():
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer)
    compare_with_one_process(model.module, optimizer=adam)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        state = optimizer.state_dict()["state"]
        expect(len(state) == len(list(model.parameters())), f"state of {len(state)} parameters")
    return digest(model.parameters())


# ---- hooks

def hooked_run(state, hook, steps=10, make=Net, **options):
    """Trains with a hook. Returns the model and the indices of the buckets."""
    model = DistributedDataParallel(make(), **options)
    indices = set()

    def counted(state, bucket):
        indices.add(bucket.index())
        return hook(state, bucket)

    model.register_comm_hook(state, counted)
    losses = train(model, sgd(model.parameters()), steps, lambda m, s, r: loss_of(m, s % 4, r))
    note(f"{len(indices)} buckets, loss {losses[0]:.4f}, then {losses[-1]:.4f}")
    expect(losses[-1] < 0.99 * losses[0], "it does not learn")
    return model, indices


def deep_run(state, hook):
    """Trains many layers, each in a bucket of its own. Returns the digest."""
    # Otherwise torch 1.13 fills the first bucket with 1 MiB.
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(LAYER_MB * 2**20)
    model, indices = hooked_run(state, hook, 60, DeepNet, bucket_cap_mb=LAYER_MB)
    expect(len(indices) == LAYERS, f"{len(indices)} buckets, not {LAYERS}")
    return digest(model.parameters())


@row()
def hook_allreduce():
    model, _ = hooked_run(None, default_hooks.allreduce_hook)
    compare_with_one_process(model.module, loss=lambda m, s, r: loss_of(m, s % 4, r))
    return digest(model.parameters())


@row()
def hook_fp16():
    model, _ = hooked_run(None, default_hooks.fp16_compress_hook)
    compare_with_one_process(model.module, 1e-3, loss=lambda m, s, r: loss_of(m, s % 4, r))
    return digest(model.parameters())


def cpp_run(hook, tolerance):
    """Hooks in C++, without Python between the bucket and the backend."""
    model = DistributedDataParallel(Net())
    model._register_builtin_comm_hook(hook)
    train(model, sgd(model.parameters()))
    compare_with_one_process(model.module, tolerance)
    return digest(model.parameters())


@row()
def hook_of_cpp_allreduce():
    return cpp_run(dist.BuiltinCommHookType.ALLREDUCE, 1e-5)


@row(fails={"ferrule": "the hook takes a list of tensors from no future that Python has made"})
def hook_of_cpp_fp16():
    return cpp_run(dist.BuiltinCommHookType.FP16_COMPRESS, 1e-3)


def powersgd_run(hook):
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4,
                                        start_powerSGD_iter=10, random_seed=3)
    return deep_run(state, hook)


@row(may_fail={"gloo": GLOO_ABORTS})
def hook_powersgd():
    """The hook starts operations in callbacks of futures, which end in any order."""
    return powersgd_run(powerSGD_hook.powerSGD_hook)


@row(may_fail={"gloo": GLOO_ABORTS})
def hook_powersgd_in_fp16():
    if VERSION < (2, 0):
        raise Skip(f"torch {torch.__version__} multiplies no float16 matrices on a CPU")
    return powersgd_run(default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook))


def top_tenth(_, bucket):
    """Sends the largest tenth of the gradients, with their indices. Nothing keeps the input."""
    flat = bucket.buffer()
    largest = flat.abs().topk(max(1, flat.numel() // 10)).indices
    mine = torch.cat([flat[largest], largest.to(flat.dtype)])
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    future = dist.all_gather(everyones, mine, async_op=True).get_future()

    def combine(_):
        flat.zero_()
        for values, indices in (part.chunk(2) for part in everyones):
            flat.index_add_(0, indices.long(), values)
        return flat.div_(dist.get_world_size())

    return future.then(combine)


@row()
def hook_top_k():
    return deep_run(None, top_tenth)


@row()
def hook_post_local_sgd():
    """From the fifth step on, ranks train alone; each second step averages the parameters."""
    model = DistributedDataParallel(Net())
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    state = post_local.PostLocalSGDState(None, alone, start_localSGD_iter=5)
    model.register_comm_hook(state, post_local.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=5)
    optimizer = PostLocalSGDOptimizer(sgd(model.parameters()), averager)
    train(model, optimizer, 10)
    return digest(model.parameters())


# ---- hooks of this package

@row(only="ferrule")
def wire_hooks():
    from ferrule import hooks

    digests = []
    for wire, tolerance in (("bfloat16", 5e-3), ("float16", 1e-3), ("int8", 2e-2)):
        model, _ = hooked_run(None, hooks.wire_hook(wire))
        compare_with_one_process(model.module, tolerance,
                                 loss=lambda m, s, r: loss_of(m, s % 4, r))
        digests.append(digest(model.parameters()))
    return digests


@row(only="ferrule")
def topk_hook_of_ferrule():
    from ferrule import hooks

    return deep_run(hooks.TopKState(0.1), hooks.topk_hook)


if __name__ == "__main__":
    sys.exit(torch_jobs.main(__doc__.splitlines()[0]))
