"""Modules that communicate with other processes whenever they are called."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .gradients import Direct, Gradient, Implicit
from .methods.base import Method
from .spread import present


def check_collective(func: Any, method: Method, gradient: Gradient) -> None:
    """Raise where processes would wait for each other for ever: each takes its own steps, so they call func a different
    number of times, and func waits for all of them in every call. And where a gradient would be lost: fully_shard hands
    gradients on when a backward pass leaves func, which it must see in the graph."""
    if not isinstance(func, nn.Module) or not dist.is_available() or not dist.is_initialized():
        return
    if any(isinstance(module, DistributedDataParallel) for module in func.modules()):
        raise ValueError(
            "`func` is wrapped in DistributedDataParallel, which expects one call of it in a forward pass: wrap the "
            "module that calls the solver, DistributedDataParallel(model), and give the solver the plain func"
        )
    if not any(map(_gathers, func.modules())):
        return
    seen = isinstance(gradient, Direct) or (isinstance(gradient, Implicit) and not method.implicit)
    if torch.is_grad_enabled() and not seen:
        raise ValueError(
            "`func` has parameters that fully_shard divides, and would get no gradient by this method and `gradient`: "
            "use gradient='direct' (or an explicit method with 'implicit'), or apply fully_shard to the module that "
            "calls the solver and not to func or its layers"
        )
    adaptive = method.implicit or method.adaptive
    if adaptive and present() is None and dist.get_world_size() > 1:
        raise ValueError(
            "`func` has parameters that fully_shard divides, so that all processes must call it together, but each "
            "takes its own steps: apply fully_shard to the module that calls the solver and not to func or its layers, "
            "or give `group` (options={'group': torch.distributed.group.WORLD}), which makes all take the same steps"
        )


def _gathers(module: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)
