"""What runs as it is inside of a model that torch.compile compiles.

A solve decides by numbers, which no graph holds, and its loop would be traced step by step. `torch.compiler.disable`
steps out too, by a wrapper around each function, but its import of torch's compiler takes longer than that of proxode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

F = TypeVar("F", bound=Callable[..., Any])

WHY = "a solve by proxode decides its steps by numbers and runs as it is; its option compile=True compiles f"


def eager(function: F) -> F:
    """The same function, at which a trace breaks off, and which is then run uncompiled, with all that it calls."""
    marked: Any = function
    marked._torchdynamo_disable, marked._torchdynamo_disable_msg = True, WHY  # read before a trace goes into it
    if hasattr(eval_frame, "set_code_exec_strategy"):  # read when it is called; older versions of torch have none
        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(marked.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return function
