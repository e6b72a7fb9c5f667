"""Citation, co-author and co-purchase graphs, from the npz files of the gnn-benchmark collection.

Shchur et al., Pitfalls of Graph Neural Network Evaluation, https://arxiv.org/abs/1811.05868.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..sparse import csr
from .files import DataError, DataFile, find
from .npz import read_arrays

if TYPE_CHECKING:
    import numpy as np

HOME = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
NAMES = ("adj_indptr", "adj_indices", "adj_shape", "attr_indptr", "attr_indices", "attr_data", "attr_shape", "labels")


@dataclass(frozen=True)
class Source:
    """A file, the counts that its contents must have, and their SHA-256 (`digest`)."""

    title: str
    file: str
    nodes: int
    edges: int  # undirected, without loops
    features: int
    classes: int
    sha256: str
    home: str = HOME

    @property
    def data_file(self) -> DataFile:
        return DataFile(self.title, self.file, self.home + self.file)

    def check(self, path: Path) -> Graph:
        """The graph in a file, which must be this one."""
        graph = read(path)
        found = (graph.nodes, graph.edges, graph.features.shape[1], graph.classes)
        expected = (self.nodes, self.edges, self.features, self.classes)
        if found != expected:
            raise DataError(f"{path.name}: nodes, edges, features, classes are {found}, they should be {expected}")
        if digest(graph) != self.sha256:
            raise DataError(f"{path.name}: the contents are not those of {self.title}, though their number is right")
        return graph


SOURCES: dict[str, Source] = {
    "coauthor_cs": Source(
        "Coauthor-CS", "ms_academic_cs.npz", 18_333, 81_894, 6_805, 15,
        "e9afe7bb69256cce9f5cd9a35e9e6a62cc8325f8c92a26d5fdaee07a58a577ce",
    ),
    "cora": Source(
        "Cora", "cora.npz", 2_708, 5_278, 1_433, 7,
        "2f53569450dace08aaf2ae2d8a3282af2a096fb8750d03f61e261bfedf00548b",
    ),
    "citeseer": Source(
        "Citeseer", "citeseer.npz", 3_312, 4_536, 3_703, 6,
        "3f5c5e81f12ba6c2062e158938b65e105a01522bba29376a95fdc27db5739c0f",
    ),
    "photo": Source(
        "Amazon Photo", "amazon_electronics_photo.npz", 7_650, 119_081, 745, 8,
        "c1e3ea74a8d6061d6d5c1063b6503933ca9e54894ab8e5ba8ad1c609a91e7f6c",
    ),
    "computers": Source(
        "Amazon Computers", "amazon_electronics_computers.npz", 13_752, 245_861, 767, 10,
        "b6a27baf7c98fdc3f2f3291a9a492322401775b160229a72acecbf1ad6e6b342",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Graph:
    """`target` and `source` of every directed edge, sorted by target: both directions of each, and all self-loops."""

    target: Tensor
    source: Tensor
    features: Tensor  # sparse CSR, ones where a feature is present
    labels: Tensor

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.labels)

    @property
    def classes(self) -> int:
        """How many classes the labels have."""
        return int(self.labels.max()) + 1

    @property
    def edges(self) -> int:
        """How many edges there are, each counted once, without self-loops."""
        return (len(self.target) - self.nodes) // 2

    @property
    def edge_index(self) -> Tensor:
        """The edges in the form of torch_geometric."""
        return torch.stack([self.source, self.target])


def load_graph(name: str, data_dir: Path | str | None = None) -> Graph:
    """The graph `name` of `SOURCES`, checked to be that one."""
    source = source_of(name)
    return source.check(find(source.data_file, data_dir))


def source_of(name: str) -> Source:
    if name not in SOURCES:
        raise ValueError(f"there is no graph {name!r}; known are: {', '.join(SOURCES)}")
    return SOURCES[name]


def read(path: Path) -> Graph:
    """The graph in any file of the collection's form. Counts of features become ones; edges lose their direction."""
    arrays = read_arrays(path, NAMES)
    labels, shape = arrays["labels"], [int(size) for size in arrays["attr_shape"]]
    n = len(labels)
    if len(shape) != 2 or shape[0] != n or [int(size) for size in arrays["adj_shape"]] != [n, n]:
        raise DataError(f"{path.name}: the shapes of labels, adjacency and features do not fit together")
    if n == 0 or labels.ndim != 1 or labels.dtype.kind not in "iu" or int(labels.min()) < 0:
        raise DataError(f"{path.name}: labels must be whole numbers from 0, one for each node")
    rows, columns = _entries(path, arrays["adj_indptr"], arrays["adj_indices"], (n, n))
    target, source = _symmetric_with_loops(rows, columns, n)
    features = _ones(path, arrays, (n, shape[1]))
    return Graph(target, source, features, torch.from_numpy(labels.astype("int64")))


def digest(graph: Graph) -> str:
    """SHA-256 of what is in a graph: files that hold the same in other integer types or another order have the same."""
    sha = hashlib.sha256(repr(tuple(graph.features.shape)).encode())
    for part in (graph.target, graph.source, graph.features.crow_indices(), graph.features.col_indices(), graph.labels):
        sha.update(part.numpy().astype("<i8").tobytes())
    return sha.hexdigest()


def _entries(path: Path, indptr: Any, columns: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Rows and columns of the entries of a CSR matrix, checked."""
    import numpy as np

    sound = indptr.dtype.kind in "iu" and columns.dtype.kind in "iu" and indptr.shape == (shape[0] + 1,)
    if sound:
        indptr, columns = indptr.astype(np.int64), columns.astype(np.int64)
        sound = columns.ndim == 1 and indptr[0] == 0 and indptr[-1] == len(columns) and (np.diff(indptr) >= 0).all()
    if not sound or (len(columns) and not 0 <= columns.min() <= columns.max() < shape[1]):
        raise DataError(f"{path.name}: a sparse matrix of {shape[0]} by {shape[1]} has indices that do not fit it")
    return np.repeat(np.arange(shape[0]), np.diff(indptr)), columns


def _ones(path: Path, arrays: dict[str, np.ndarray[Any, Any]], shape: tuple[int, int]) -> Tensor:
    """The features as a sparse matrix of ones."""
    import numpy as np

    rows, columns = _entries(path, arrays["attr_indptr"], arrays["attr_indices"], shape)
    if arrays["attr_data"].shape != columns.shape:
        raise DataError(f"{path.name}: attr_data and attr_indices have different lengths")
    keys = _distinct((rows * shape[1] + columns)[arrays["attr_data"] > 0])
    starts = np.searchsorted(keys, np.arange(shape[0] + 1) * shape[1])
    values = torch.ones(len(keys))
    pointers, places = torch.from_numpy(starts.astype(np.int64)), torch.from_numpy(keys % shape[1])
    return csr(pointers, places, values, shape)


def _symmetric_with_loops(rows: Any, columns: Any, n: int) -> tuple[Tensor, Tensor]:
    """Both directions of every edge and one loop at every node, sorted by target, none twice."""
    import numpy as np

    loops = np.arange(n)
    keys = _distinct(np.concatenate([rows * n + columns, columns * n + rows, loops * n + loops]))
    return torch.from_numpy(keys // n), torch.from_numpy(keys % n)


def _distinct(keys: Any) -> Any:
    """In order, none twice."""
    import numpy as np

    if not (np.diff(keys) > 0).all():  # numpy's own unique takes several times as long
        keys = np.sort(keys)
        keys = keys[np.diff(keys, prepend=-1) > 0]
    return keys
