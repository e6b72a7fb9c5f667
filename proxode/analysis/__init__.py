"""What a differential equation is like, and which method, inner solver and gradient fit it."""

from .advice import Advice, Choice
from .costs import Cost
from .diagnosis import Diagnosis
from .examine import diagnose
from .places import Place
from .spectrum import Spectrum

__all__ = ["Advice", "Choice", "Cost", "Diagnosis", "Place", "Spectrum", "diagnose"]
