"""Modules that communicate with other processes whenever they are called."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .methods.base import Method
from .spread import present


def check_collective(func: Any, method: Method) -> None:
    """Raise where processes would wait for each other for ever: each takes its own steps, so they call func a different
    number of times, and func waits for all of them in every call."""
    if not isinstance(func, nn.Module) or not dist.is_available() or not dist.is_initialized():
        return
    if any(isinstance(module, DistributedDataParallel) for module in func.modules()):
        raise ValueError(
            "`func` is wrapped in DistributedDataParallel, which expects one call of it in a forward pass: wrap the "
            "module that calls the solver, DistributedDataParallel(model), and give the solver the plain func"
        )
    adaptive = method.implicit or method.adaptive
    if adaptive and present() is None and dist.get_world_size() > 1 and any(map(_gathers, func.modules())):
        raise ValueError(
            "`func` has parameters that fully_shard divides, so that all processes must call it together, but each "
            "takes its own steps: apply fully_shard to the module that calls the solver and not to func or its layers, "
            "or give `group` (options={'group': torch.distributed.group.WORLD}), which makes all take the same steps"
        )


def _gathers(module: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)
