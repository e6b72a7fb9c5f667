"""What people build with the solvers: layers, normalising flows, diffusion on graphs."""

from .attention import Attention
from .bijections import Logit, Squeeze, bits_per_dim, dequantise
from .cnf import CNF
from .edges import Edges
from .flow import Flow, image_flow, vector_flow
from .grand import GRAND
from .multiscale import Multiscale
from .neural_ode import NeuralODE
from .time_layers import TimeNet

__all__ = [
    "CNF", "GRAND", "Attention", "Edges", "Flow", "Logit", "Multiscale", "NeuralODE", "Squeeze", "TimeNet",
    "bits_per_dim", "dequantise", "image_flow", "vector_flow",
]  # fmt: skip
