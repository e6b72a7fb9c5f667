"""Data files: what is read is what it should be, and what is not is refused."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import CLASSES, FEATURES, NODES, arrays, small_source

from proxode import data
from proxode.data import graphs, mnist

SHAPE = (5, 28, 28)


@pytest.fixture(autouse=True)
def no_folder_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXODE_DATA", raising=False)
    monkeypatch.setattr(urllib.request, "urlopen", local(urllib.request.urlopen))


def local(urlopen: Any) -> Any:
    def opens(url: str, **options: Any) -> Any:
        assert url.startswith("http://127.0.0.1:"), f"the network was touched: {url}"
        return urlopen(url, **options)

    return opens


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> graphs.Source:
    made = small_source(tmp_path)
    monkeypatch.setitem(graphs.SOURCES, "small", made)
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The folder tmp_path/public, at an address of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *anything: Any) -> None:
            pass

    (tmp_path / "public").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "public"))) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/"
        made.shutdown()
        thread.join()


# Graphs


def test_a_graph_has_both_directions_loops_and_features(source: graphs.Source, tmp_path: Path) -> None:
    graph = data.load_graph("small", tmp_path)
    dense = torch.zeros(NODES, NODES)
    dense[graph.target, graph.source] = 1
    raw = arrays()
    for row in range(NODES):
        for column in raw["adj_indices"][raw["adj_indptr"][row] : raw["adj_indptr"][row + 1]]:
            assert dense[row, column] == dense[column, row] == 1
    assert int(dense.sum()) == 2 * graph.edges + NODES == len(graph.target)
    assert torch.equal(dense.diagonal(), torch.ones(NODES))
    assert bool((graph.target.diff() >= 0).all())
    assert graph.features.to_dense().sum() == len(raw["attr_data"]) and graph.features.shape == (NODES, FEATURES)
    assert graph.classes == CLASSES and torch.equal(graph.edge_index[1], graph.target)


def test_a_repacked_file_is_the_same_graph(source: graphs.Source, tmp_path: Path) -> None:
    """Other integer types, counts for ones, an entry of zero, another order, deeper below the folder."""
    raw = arrays()
    for name in ("adj_indptr", "attr_indptr"):
        raw[name] = raw[name].astype(np.int32)
    raw["adj_indices"] = raw["adj_indices"].astype(np.uint16)
    first = slice(0, int(raw["attr_indptr"][1]))
    raw["attr_indices"][first] = raw["attr_indices"][first][::-1].copy()
    raw["attr_data"] = (3 * raw["attr_data"]).astype(np.uint8)
    absent = next(k for k in range(FEATURES) if k not in raw["attr_indices"][first])
    raw["attr_indices"] = np.insert(raw["attr_indices"], 0, absent)
    raw["attr_data"] = np.insert(raw["attr_data"], 0, 0)
    raw["attr_indptr"][1:] += 1
    (tmp_path / "small.npz").unlink()
    (tmp_path / "deep").mkdir()
    np.savez_compressed(tmp_path / "deep" / "small.npz", **raw)
    assert data.load_graph("small", tmp_path).edges == source.edges


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.arange(NODES)[::-1] % CLASSES}, "not those of small"),
        ({"labels": np.arange(NODES - 1) % CLASSES}, "do not fit together"),
        ({"labels": np.zeros(NODES, dtype=int)}, "they should be"),
        ({"labels": np.full(NODES, -1)}, "whole numbers from 0"),
        ({"attr_shape": np.array([NODES, FEATURES - 1])}, "indices that do not fit"),
        ({"attr_shape": np.array([NODES, FEATURES + 1])}, "they should be"),
        ({"attr_data": np.ones(3)}, "different lengths"),
        ({"adj_indices": arrays()["adj_indices"] + 1}, "indices that do not fit"),
        ({"adj_indptr": arrays()["adj_indptr"][::-1]}, "indices that do not fit"),
        ({"adj_indptr": arrays()["adj_indptr"].astype(float)}, "indices that do not fit"),
        ({"labels": np.array(["a"] * NODES)}, "not numbers"),
    ],
)
def test_wrong_contents_are_refused(
    source: graphs.Source, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "small.npz", **(arrays() | change))
    with pytest.raises(data.DataError, match=message):
        data.load_graph("small", tmp_path)


unpickled: list[str] = []


class Evil:
    def __reduce__(self) -> Any:
        return remember, ("me",)


def remember(word: str) -> None:
    unpickled.append(word)


def test_nothing_is_unpickled(source: graphs.Source, tmp_path: Path) -> None:
    evil = np.array([Evil()] * NODES, dtype=object)
    np.savez(tmp_path / "small.npz", **(arrays() | {"labels": evil}))
    with pytest.raises(data.DataError, match="cannot be read"):
        data.load_graph("small", tmp_path)
    (tmp_path / "small.npz").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(data.DataError, match="cannot be read"):
        data.load_graph("small", tmp_path)
    assert not unpickled


def test_damaged_files_are_refused(source: graphs.Source, tmp_path: Path) -> None:
    path = tmp_path / "small.npz"
    whole = path.read_bytes()
    middle = len(whole) // 3
    for broken in (b"", b"nothing", whole[: len(whole) // 2], whole[:middle] + bytes(64) + whole[middle + 64 :]):
        path.write_bytes(broken)
        with pytest.raises(data.DataError):
            data.load_graph("small", tmp_path)
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "one.npy").replace(path)
    with pytest.raises(data.DataError, match="not an npz file"):
        data.load_graph("small", tmp_path)
    np.savez(path, labels=np.ones(3))
    with pytest.raises(data.DataError, match="no array"):
        data.load_graph("small", tmp_path)


def test_missing_data_is_said_with_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"ms_academic_cs.npz, and it is not below .*https://.*--data-dir"):
        data.load_graph("coauthor_cs", tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder was given"):
        data.load_mnist()
    monkeypatch.setenv("PROXODE_DATA", str(tmp_path / "there"))
    with pytest.raises(FileNotFoundError, match="there"):
        data.load_mnist()
    with pytest.raises(ValueError, match="known are: coauthor_cs"):
        data.load_graph("karate")


# MNIST


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    pixels = torch.randint(0, 256, SHAPE, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    contents = (
        bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 28, 0, 0, 0, 28]) + pixels.numpy().tobytes(),
        bytes([0, 0, 8, 1, 0, 0, 0, 5, 3, 1, 4, 1, 5]),
    )
    parts = []
    for name, shape, content in zip(("images.gz", "labels.gz"), (SHAPE, SHAPE[:1]), contents, strict=True):
        (tmp_path / name).write_bytes(gzip.compress(content))
        parts.append(mnist.Part(name, shape, hashlib.sha256(content).hexdigest()))
    monkeypatch.setattr(mnist, "PARTS", {"train": tuple(parts)})
    return pixels


def test_digits_and_their_labels(digits: torch.Tensor, tmp_path: Path) -> None:
    images, labels = data.load_mnist("train", tmp_path)
    assert torch.equal(images, digits.unsqueeze(1)) and labels.tolist() == [3, 1, 4, 1, 5]
    images[0] = 0  # it is the caller's own memory
    with pytest.raises(ValueError, match="`part` must be one of"):
        data.load_mnist("valid", tmp_path)


def test_other_digits_are_refused(digits: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    content = bytearray(gzip.decompress(path.read_bytes()))
    for broken, message in (
        (gzip.compress(content[:-1]), "not an idx file of 5 x 28 x 28"),
        (gzip.compress(bytes(content) + b"0"), "not an idx file"),
        (gzip.compress(bytes([1]) + bytes(content[1:])), "not an idx file"),
        (gzip.compress(bytes(content[:-1]) + bytes([content[-1] ^ 1])), "not those of MNIST"),
        (gzip.compress(content)[:100], "cannot be unpacked"),
        (b"nothing", "cannot be unpacked"),
    ):
        path.write_bytes(broken)
        with pytest.raises(data.DataError, match=message):
            data.load_mnist("train", tmp_path)


# Fetching


def test_fetch_brings_a_file_once(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    source = small_source(tmp_path / "public", server)
    monkeypatch.setitem(graphs.SOURCES, "small", source)
    folder = tmp_path / "new" / "folder"
    assert data.fetch("small", folder) == [folder / "small.npz"]
    assert [path.name for path in folder.iterdir()] == ["small.npz"]  # no temporary file is left
    (tmp_path / "public" / "small.npz").unlink()
    assert data.fetch("small", folder) == [folder / "small.npz"]  # it is there
    monkeypatch.setenv("PROXODE_DATA", str(folder))
    assert data.load_graph("small").edges == source.edges


def test_fetch_leaves_nothing_that_is_wrong(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graphs.SOURCES, "small", small_source(tmp_path / "public", server))
    np.savez(tmp_path / "public" / "small.npz", **(arrays() | {"labels": np.arange(NODES)[::-1] % CLASSES}))
    folder = tmp_path / "folder"
    with pytest.raises(data.DataError, match="not those of small"):
        data.fetch("small", folder)
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("proxode.data.files.LARGEST", 100)
    with pytest.raises(data.DataError, match="larger than 100 bytes"):
        data.fetch("small", folder)


def test_fetch_says_what_to_do_without_a_network(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    source = small_source(tmp_path, "http://127.0.0.1:9/")  # nobody answers there
    monkeypatch.setitem(graphs.SOURCES, "small", source)
    with pytest.raises(ConnectionError, match=r"Get it from http://127.0.0.1:9/small.npz .* PROXODE_DATA"):
        data.fetch("small", tmp_path / "folder")
    gone = small_source(tmp_path, server)
    monkeypatch.setitem(graphs.SOURCES, "small", gone)
    with pytest.raises(ConnectionError, match=r"not found.*Get it from"):
        data.fetch("small", tmp_path / "folder")
    with pytest.raises(ValueError, match="`data_dir` must be given"):
        data.fetch("small")
    with pytest.raises(ValueError, match="known are: mnist, coauthor_cs"):
        data.fetch("imagenet", tmp_path)


# Real files, where there are any


@pytest.mark.parametrize("name", ["mnist", *graphs.SOURCES])
def test_the_real_files_are_what_they_should_be(name: str, real_data: Path) -> None:
    if name == "mnist":
        images, labels = data.load_mnist("test", real_data)
        assert images.shape == (10_000, 1, 28, 28) and labels.bincount().tolist()[0] == 980
    else:
        assert data.load_graph(name, real_data).nodes == graphs.SOURCES[name].nodes


@pytest.fixture
def real_data(request: pytest.FixtureRequest) -> Path:
    if not REAL:
        pytest.skip("no data folder: set PROXODE_DATA")
    return Path(REAL)


REAL = os.environ.get("PROXODE_DATA")  # before the tests take it away
