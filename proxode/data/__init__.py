"""Data for the experiments: files that are checked before they are believed, and densities to draw from."""

from .densities import DENSITIES, sample_density
from .fetch import fetch
from .files import DataError
from .graphs import SOURCES, Graph, load_graph
from .mnist import load_mnist
from .splits import Split, random_split

__all__ = [
    "DENSITIES", "SOURCES", "DataError", "Graph", "Split", "fetch", "load_graph", "load_mnist", "random_split",
    "sample_density",
]  # fmt: skip
