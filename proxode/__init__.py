"""proxode: proximal implicit solvers for stiff neural ODEs in PyTorch."""

from . import gradients, inner, methods
from .api import odeint, odeint_adjoint, odeint_dense, odeint_event, solve
from .events import Event
from .solution import Recording, Solution, SolverError, Stats, record
from .status import Status
from .stepper import Stepped, Stepper

try:
    from ._version import __version__
except ImportError:  # pragma: no cover
    __version__ = "0.1.0"

__all__ = [
    "Event", "Recording", "Solution", "SolverError", "Stats", "Status", "Stepped", "Stepper", "__version__",
    "gradients", "inner", "methods", "odeint", "odeint_adjoint", "odeint_dense", "odeint_event", "record", "solve",
]  # fmt: skip
