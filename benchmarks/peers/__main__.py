"""Run all contestants on one dataset, and print and save the table."""

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.measure import ROOT, report
from benchmarks.peers import __doc__ as about
from benchmarks.peers.contestants import CONTESTANTS, OURS
from benchmarks.peers.split import config_of
from benchmarks.peers.theirs import K
from mgformer.files import make_folder, write_text
from mgformer.ranking.metrics import METRICS
from mgformer.runs.train import prepare

BUILD = ROOT / "build" / "peers"
HERE = Path(__file__).parent
VALIDATION_USERS = 2_000
"""How many users judge trials; LensKit takes milliseconds for each list."""
COLUMNS = ("", "Recall@20", "NDCG@20", "fit, s", "all lists, s", "peak MB")


def environment() -> Path:
    """Return the Python of the peers; make the environment if it is not there, or outdated."""
    wanted = (HERE / "requirements.txt").read_text()
    python, done = BUILD / "bin" / "python", BUILD / "installed.txt"
    if not done.is_file() or done.read_text() != wanted:
        venv.create(BUILD, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")]
        subprocess.run(pip, check=True)
        write_text(done, wanted)
    return python


class Arena:
    """The split on disk, and what all contestants are measured with."""

    def __init__(self, dataset: str, folder: Path, python: Path) -> None:
        """Split the dataset and write what the contestants read."""
        self.dataset, self.folder, self.python = dataset, folder, python
        make_folder(folder)
        split = prepare(config_of(dataset)).split
        train, valid, test = (
            part.matrix.tocsr() for part in (split.train, split.valid, split.test)
        )
        self.known = {"valid": train, "test": sp.csr_array(train + valid)}
        self.wanted = {"valid": valid, "test": test}
        rng = np.random.default_rng(0)
        self.users: dict[str, NDArray[np.int64]] = {}
        for part, pairs in self.wanted.items():
            users = np.flatnonzero(np.diff(pairs.indptr))
            if part == "valid" and len(users) > VALIDATION_USERS:
                users = np.sort(rng.choice(users, VALIDATION_USERS, replace=False))
            self.users[part] = users
            with (folder / f"{part}-users.npy").open("wb") as file:
                np.save(file, users)
            with (folder / f"{part}-pairs.npz").open("wb") as file:
                sp.save_npz(file, sp.csr_matrix(self.known[part]))

    def run(self, name: str, options: dict[str, Any], part: str) -> dict[str, Any]:
        """Return quality, times and memory of a contestant."""
        request: dict[str, Any] = {
            **{"model": name, "options": options, "dataset": self.dataset, "refit": part == "test"},
            "pairs": str(self.folder / f"{part}-pairs.npz"),
            "users": str(self.folder / f"{part}-users.npy"),
            **{file: str(self.folder / file) for file in ("lists.npy", "answer.json")},
        }
        request["lists"], request["answer"] = request.pop("lists.npy"), request.pop("answer.json")
        place = self.folder / "request.json"
        write_text(place, json.dumps(request))
        if CONTESTANTS[name].module == OURS:
            command = [sys.executable, "-m", "benchmarks.peers.ours", str(place)]
        else:
            command = [str(self.python), str(HERE / "theirs.py"), str(place)]
        # implicit asks for one thread of OpenBLAS, because it has threads of its own.
        settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "LK_LOG_LEVEL": "error"}
        done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name} {options} failed:\n{done.stderr[-2000:]}")
        answer: dict[str, Any] = json.loads(Path(request["answer"]).read_text())
        return {**answer, **self.measured(np.load(request["lists"]), part)}

    def measured(self, lists: NDArray[np.int64], part: str) -> dict[str, float]:
        """Return Recall@20 and NDCG@20 of lists, by our definitions; -1 is an empty place."""
        users, wanted = self.users[part], self.wanted[part]
        if self.known[part][np.repeat(users, K), np.maximum(lists, 0).ravel()][
            (lists >= 0).ravel()
        ].any():
            raise SystemExit("a list contains an item that the user had already")
        rows = wanted[users].toarray() > 0
        hits = np.take_along_axis(rows, np.maximum(lists, 0), axis=1) & (lists >= 0)
        counts = rows.sum(1)
        return {name: float(METRICS[name](hits, counts, K).mean()) for name in ("recall", "ndcg")}


def main() -> None:
    """Measure and print."""
    assert about is not None
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--dataset", default="ml-latest-small")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[*CONTESTANTS])
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    arena = Arena(options.dataset, ROOT / "build" / f"peers-{options.dataset}", environment())
    figures: dict[str, Any] = {}
    for name in options.only or CONTESTANTS:
        start = time.perf_counter()
        drawn = [*CONTESTANTS[name].trials(options.trials, name)]
        trials = [{"options": one, **arena.run(name, one, "valid")} for one in drawn]
        best = max(trials, key=lambda trial: trial["ndcg"])
        figures[name] = {
            **{"options": best["options"], "valid": best["ndcg"], "trials": trials},
            **arena.run(name, best["options"], "test"),
        }
        took = time.perf_counter() - start
        print(f"{name}: NDCG@20 {figures[name]['ndcg']:.4f}, {took:.0f} s in all", file=sys.stderr)
    rows = [
        [
            name,
            *(f"{found[metric]:.4f}" for metric in ("recall", "ndcg")),
            *(f"{found[key]:.2f}" for key in ("fit_seconds", "lists_seconds")),
            f"{found['peak_mb']:.0f}",
        ]
        for name, found in sorted(figures.items(), key=lambda item: -item[1]["ndcg"])
    ]
    pinned = (HERE / "requirements.txt").read_text().split()
    versions = dict(pin.split("==") for pin in pinned if not pin.startswith("torch"))
    report(
        f"peers-{options.dataset}",
        rows,
        {"dataset": options.dataset, "trials": options.trials, "models": figures},
        save=options.save,
        columns=COLUMNS,
        versions=versions,
    )


if __name__ == "__main__":
    main()
