"""What people build with the solvers: layers, normalising flows, diffusion on graphs."""

from .neural_ode import NeuralODE

__all__ = ["NeuralODE"]
