"""How long a bundle takes to load, as a multiple of reading its bytes into memory.

    python -m benchmarks.loading [--users 2000000] [--save]

Loading checks every byte (checksums), every index and every value. Reading means `read_bytes` of
the same files, one after another. Both find the files in the page cache. A bundle of the first
format has checksums of whole files, which cannot be shared among threads. With a key, the bundle is
signed, and nothing is mapped. Rounds are interleaved, and the figures are medians.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.measure import report
from benchmarks.synthetic import synthetic_bundle
from mgformer.checksums import checksum_of_file
from mgformer.files import sha256_of, write_text
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import MANIFEST, load_bundle, save_bundle
from mgformer.runs.bundle_manifest import sealed

KEY = bytes(32)
DIM = 64


def bundles(num_users: int) -> dict[str, Bundle]:
    """Return a bundle that is mostly vectors, and one that is mostly pairs."""
    num_items = max(num_users // 10, 10)
    vectors = synthetic_bundle(num_users, num_items, DIM, num_users)
    pairs = synthetic_bundle(num_users // 10, num_items, 2, num_users * 20)
    weights = {"embeddings": torch.rand(num_users // 2, DIM)}
    return {"vectors": replace(vectors, weights=weights), "pairs": pairs}


def in_first_format(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    for file in manifest["files"].values():
        del file["checksum"]
        file["sha256"] = sha256_of(folder / file["name"])
    write_text(folder / MANIFEST, sealed({**manifest, "format": 1}))


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


def timed(tasks: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each task."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()  # fills the page cache
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=2_000_000, help="users of the largest bundle")
    parser.add_argument("--rounds", type=int, default=9, help="repetitions")
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    rows, figures = [], {}
    for name, bundle in bundles(options.users).items():
        with tempfile.TemporaryDirectory() as place:
            folder, first = Path(place) / "now", Path(place) / "first"
            save_bundle(bundle, folder, KEY)
            save_bundle(bundle, first)
            in_first_format(first)
            size = sum(path.stat().st_size for path in files_of(folder))

            def read(folder: Path = folder) -> list[bytes]:
                return [path.read_bytes() for path in files_of(folder)]

            def hashed(folder: Path = folder) -> list[str]:
                return [checksum_of_file(path) for path in files_of(folder)]

            tasks: dict[str, Callable[[], object]] = {
                "reading the bytes": read,
                "checksums alone": hashed,
                "loading": partial(load_bundle, folder),
                "loading with a key": partial(load_bundle, folder, KEY),
                "loading, first format": partial(load_bundle, first),
            }
            seconds = timed(tasks, options.rounds)
        base = seconds["reading the bytes"]
        figures[name] = {"bytes": size, "seconds": seconds, "ratio": seconds["loading"] / base}
        rows += [
            [f"{name} ({size / 1e6:.0f} MB)", task, f"{1000 * value:.1f} ms", f"{value / base:.2f}"]
            for task, value in seconds.items()
        ]
    columns = ("bundle", "", "median", "in reads of the bytes")
    report("loading", rows, figures, save=options.save, columns=columns)


if __name__ == "__main__":
    main()
