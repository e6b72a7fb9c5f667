"""What people build with the solvers: layers, normalising flows, diffusion on graphs."""

from .attention import Attention
from .edges import Edges
from .grand import GRAND
from .neural_ode import NeuralODE

__all__ = ["GRAND", "Attention", "Edges", "NeuralODE"]
