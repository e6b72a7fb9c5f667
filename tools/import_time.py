"""How long `import proxode` takes beyond `import torch`: the median of several fresh processes, and what costs most.

    python tools/import_time.py [--runs 7] [--limit 0.3]

The bytecode is compiled once before anything is measured. CPU time is what counts on a busy machine; both are shown.
Ends with status 1 where the median of the CPU times is above the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = (
    "import time, torch; wall, cpu = time.perf_counter(), time.process_time(); import proxode; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)


def run(arguments: list[str], cache: str) -> subprocess.CompletedProcess[str]:
    here = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": str(ROOT)}
    here.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, env=here)


def dearest(report: str, count: int = 8) -> list[tuple[int, str]]:
    """The modules that take most by themselves, in microseconds, of those that torch has not brought already."""
    rows = [line.split("|") for line in report.splitlines() if line.startswith("import time:")]
    own = [(int(row[0].split(":")[1]), row[2].strip()) for row in rows if row[0].split(":")[1].strip().isdigit()]
    last = max(i for i, (_, name) in enumerate(own) if name == "torch")
    return sorted(own[last + 1 :], reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--limit", type=float, default=0.3, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        run(["-c", CODE], cache)
        pairs = [tuple(map(float, run(["-c", CODE], cache).stdout.split())) for _ in range(given.runs)]
        wall, cpu = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        print(f"import proxode beyond torch, median of {given.runs}: {cpu:.3f} s of CPU, {wall:.3f} s by the clock")
        for microseconds, name in dearest(run(["-X", "importtime", "-c", "import torch, proxode"], cache).stderr):
            print(f"{microseconds / 1e6:8.3f} s  {name}")
    if cpu > given.limit:
        raise SystemExit(f"that is above {given.limit} s")


if __name__ == "__main__":
    main()
