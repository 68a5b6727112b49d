# SPDX-License-Identifier: BSD-3-Clause
"""The backend "ferrule" of torch.distributed, for CPU tensors.

    import torch.distributed as dist
    import ferrule.torch

    dist.init_process_group("ferrule")
    model = torch.nn.parallel.DistributedDataParallel(model)

Works with PyTorch 1.13 and later. Options: `pg_options=ferrule.torch.Options(...)`, and the `FRL_*`
settings. Hooks of DistributedDataParallel that send less are in `ferrule.hooks`.
"""

from typing import Any, Sequence

import torch.distributed as dist

from .group import Options, ProcessGroup, create

__all__ = ["Options", "ProcessGroup", "register"]

NAME = "ferrule"


def register(devices: Sequence[str] = ("cpu",)) -> None:
    """Registers the backend. Importing this module does it for CPU tensors.

    `devices=("cpu", "cuda")`: also for CUDA tensors, for which NCCL with Ferrule's plugin is
    faster.
    """
    backend: Any = dist.Backend
    capability = getattr(backend, "backend_capability", None)
    if NAME.upper() in backend._plugins:
        if capability is not None:
            capability[NAME] = list(devices)
        return
    if capability is None:  # PyTorch 1.13
        backend.register_backend(NAME, create, extended_api=True)
    else:
        backend.register_backend(NAME, create, extended_api=True, devices=list(devices))


register()
