"""Fit one of our models, and time it and its lists, as theirs.py does for the peers."""

import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.peers.split import config_of
from benchmarks.peers.theirs import K, peak_mb, timed_lists
from mgformer.files import write_text
from mgformer.ranking.topk import top_k
from mgformer.runs.train import train


def main() -> None:
    """Do what the request asks."""
    request = json.loads(Path(sys.argv[1]).read_text())
    config = config_of(request["dataset"], request["model"], request["options"], request["refit"])
    bundle = train(config)
    seen = sp.csr_array(sp.load_npz(request["pairs"]))
    found, seconds = timed_lists(
        lambda users: top_k(bundle.scorer, users, K, seen=seen).items, np.load(request["users"])
    )
    np.save(request["lists"], found.astype(np.int64))
    fitted = bundle.record.seconds["train"]
    answer = {"fit_seconds": fitted, "lists_seconds": seconds, "peak_mb": peak_mb()}
    write_text(Path(request["answer"]), json.dumps(answer))


if __name__ == "__main__":
    main()
