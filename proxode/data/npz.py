"""Arrays from npz files, without ever unpickling."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import DataError

if TYPE_CHECKING:
    import numpy as np

BROKEN = (ValueError, OSError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """These arrays of a file, of whole numbers or floats; an array of objects, which is a pickle, is refused."""
    try:
        import numpy as np
    except ImportError:
        raise ImportError("npz files are read with numpy: pip install numpy") from None
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is not an npz file")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in names}
    except FileNotFoundError:
        raise
    except BROKEN as error:
        what = f"there is no array {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path.name} cannot be read: {what}. The file may be damaged: fetch it again") from error
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise DataError(f"{path.name}: {name} holds {array.dtype}, not numbers")
    return arrays
