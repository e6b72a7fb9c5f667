"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, from its idx files (http://yann.lecun.com/exdb/mnist/)."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .files import DataError, DataFile, find

HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the mirror that torchvision uses
UNSIGNED_BYTE = 8  # code of the idx format


@dataclass(frozen=True)
class Part:
    """An idx file: the shape that it must have, and the SHA-256 of its contents before compression."""

    file: str
    shape: tuple[int, ...]
    sha256: str
    home: str = HOME

    @property
    def data_file(self) -> DataFile:
        return DataFile("MNIST", self.file, self.home + self.file)

    def check(self, path: Path) -> Tensor:
        """The bytes in a file, which must be this one."""
        head = bytes([0, 0, UNSIGNED_BYTE, len(self.shape)]) + b"".join(n.to_bytes(4, "big") for n in self.shape)
        size = len(head) + math.prod(self.shape)
        try:
            with gzip.open(path, "rb") as file:
                content = file.read(size + 1)  # however much it may unpack to
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path.name} cannot be unpacked: {error}. It may be damaged: fetch it again") from None
        if len(content) != size or not content.startswith(head):
            raise DataError(f"{path.name} is not an idx file of {' x '.join(map(str, self.shape))} bytes")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataError(f"{path.name}: the contents are not those of MNIST, though their number is right")
        return torch.frombuffer(bytearray(content[len(head) :]), dtype=torch.uint8).view(self.shape)


PARTS = {
    "train": (
        Part(
            "train-images-idx3-ubyte.gz", (60_000, 28, 28),
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        Part(
            "train-labels-idx1-ubyte.gz", (60_000,),
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    "test": (
        Part(
            "t10k-images-idx3-ubyte.gz", (10_000, 28, 28),
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        Part(
            "t10k-labels-idx1-ubyte.gz", (10_000,),
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}  # fmt: skip


def load_mnist(part: str = "train", data_dir: Path | str | None = None) -> tuple[Tensor, Tensor]:
    """Images, bytes of shape `(n, 1, 28, 28)`, and their labels; `part` is "train" or "test"."""
    if part not in PARTS:
        raise ValueError(f"`part` must be one of {', '.join(PARTS)}, not {part!r}")
    images, labels = (item.check(find(item.data_file, data_dir)) for item in PARTS[part])
    return images.unsqueeze(1), labels.long()
