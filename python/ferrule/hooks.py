# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of DistributedDataParallel that send less: rounded gradients, or the largest ones only.

    import ferrule.hooks

    model.register_comm_hook(None, ferrule.hooks.wire_hook("bfloat16"))
    model.register_comm_hook(ferrule.hooks.TopKState(0.01), ferrule.hooks.topk_hook)

They need process groups of the backend "ferrule". All ranks get the same gradients, to the bit.
"""

from typing import Any, Callable, Dict, Optional

import torch
from torch._C._distributed_c10d import GradBucket
from torch.distributed import distributed_c10d

from .operations import wire_code


def _group(group: Any) -> Any:
    c10d: Any = distributed_c10d
    found = group if group is not None else c10d._get_default_group()
    if not hasattr(found, "_submit"):
        raise ValueError('the hook needs a process group of the backend "ferrule"')
    return found


def wire_hook(wire: str) -> Callable[[Any, Any], Any]:
    """Returns a hook that averages gradients, and sends them as `wire`.

    `wire`: "bfloat16", "float16" or "int8" (blocks of 128 elements with a scale); sums are computed
    in float32. Gradients of other types are sent as they are. The state of the hook is the process
    group, or None. Raises ValueError for another `wire`.
    """
    wire_code(wire)

    # DDP compares these annotations.
    def hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        used = wire if buffer.dtype == torch.float32 else "same"
        work = _group(state).allreduce([buffer], "avg", wire=used)
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(_first)
        return future

    return hook


def _first(future: Any) -> Any:
    return future.value()[0]


class TopKState:
    """The state of topk_hook(): what was not sent is added to the next gradients."""

    def __init__(self, fraction: float, group: Optional[Any] = None) -> None:
        """`fraction`: the part of the gradients that is sent, 0 to 1. Raises ValueError."""
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction={fraction} is not between 0 and 1")
        self.fraction = fraction
        self.group = group
        self.rests: Dict[Any, Any] = {}  # by parameter: DDP arranges its buckets anew


def topk_hook(
    state: TopKState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages the largest gradients of each rank. The rest stays for the next step.

    Each rank sends a fraction of its gradients, and their places. The rest keeps no infinite
    elements and no NaN.
    """
    group = _group(state.group)
    buffer = bucket.buffer()
    parameters = bucket.parameters()
    total = buffer.clone()
    parts = torch.split(total, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts):
        rest = state.rests.get(parameter)
        if rest is not None:
            part.add_(rest)
    count = max(1, int(buffer.numel() * state.fraction))
    places = torch.topk(total.abs(), count, sorted=False).indices
    values = total[places]
    total[places] = 0
    total.nan_to_num_(0, 0, 0)
    state.rests.update(zip(parameters, parts))
    size = group.size()
    all_values = torch.empty(size * count, dtype=values.dtype, device=values.device)
    all_places = torch.empty(size * count, dtype=places.dtype, device=values.device)
    work = group.allgather_into_tensor_coalesced([all_values, all_places], [values, places])

    def combine(_: Any) -> Any:
        buffer.zero_()
        # One rank after the other: the order of additions is the same on all ranks.
        for part, where in zip(all_values.chunk(size), all_places.chunk(size)):
            buffer.index_add_(0, where, part)
        return buffer.div_(size)

    future: torch.futures.Future[torch.Tensor] = work.get_future().then(combine)
    return future
