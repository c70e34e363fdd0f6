"""What is written under faults: each scene has an old state and an act that leads to a new one."""

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import torch

from mgformer.data.attributes import Attribute, Attributes
from mgformer.data.dataset import read_dataset
from mgformer.data.splits import split_dataset
from mgformer.ranking.scorers import DotScorer
from mgformer.recommend.batch import write_lists
from mgformer.recommend.export import export
from mgformer.recommend.query import ListOptions
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import build_config
from mgformer.runs.finish import protocol_of
from mgformer.runs.record import Record
from mgformer.training import loop
from mgformer.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from mgformer.training.log import read_log
from tests.command import mgformer

OLD, NEW = "old", "new"
USERS, ITEMS = 24, 12
torch.set_num_threads(1)  # threads cost more than they save on small tensors


class SystemFailed(Exception):
    """A command ended with exit code 3 and one line."""


@cache
def pairs() -> tuple[list[str], list[str]]:
    """Return users and items of a small dataset."""
    rng = np.random.default_rng(3)
    drawn = [(u, i) for u in range(USERS) for i in rng.choice(ITEMS, 6, replace=False)]
    return [f"u{u}" for u, _ in drawn], [f"i{i}" for _, i in drawn]


@cache
def bundle_of(seed: int) -> Bundle:
    """Return a recommender with vectors; it is not trained, because processes make it anew."""
    config = build_config({"seed": seed, "model": {"name": "bprmf", "dim": 4}})
    dataset = read_dataset(pairs(), config.data)
    split = split_dataset(dataset, config.split, np.random.default_rng(0))
    rng = torch.Generator().manual_seed(seed)
    users, items = (torch.rand(n, 4, generator=rng) for n in split.train.matrix.shape)
    record = Record(
        model="bprmf",
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        protocol=protocol_of(split),
        seed=seed,
        config=config.to_mapping(),
    )
    return Bundle(
        scorer=DotScorer(users, items),
        train=split.train,
        valid=split.valid,
        test=split.test,
        history=split.history,
        record=record,
        per_user=pl.DataFrame({"user": split.train.users.values, "ndcg@20": [0.5] * USERS}),
        weights={"users": users},
    )


class Scene(ABC):
    """Something that is written in a folder."""

    name: str

    @abstractmethod
    def before(self, folder: Path) -> None:
        """Make the old state."""

    @abstractmethod
    def act(self, folder: Path) -> None:
        """Write the new state; raise an OSError or SystemFailed if the system fails."""

    @abstractmethod
    def state(self, folder: Path) -> str:
        """Return "old" or "new"; raise if the folder holds neither whole."""


class Save(Scene):
    """A bundle takes the place of another one."""

    name = "save"

    def before(self, folder: Path) -> None:
        save_bundle(bundle_of(0), folder)

    def act(self, folder: Path) -> None:
        save_bundle(bundle_of(1), folder)

    def state(self, folder: Path) -> str:
        return (OLD, NEW)[load_bundle(folder).record.seed]


class SaveCheckpoint(Scene):
    """A checkpoint takes the place of another one."""

    name = "checkpoint"

    def _write(self, folder: Path, epochs: int) -> None:
        tensors = {"model/w": torch.full((50,), float(epochs))}
        save_checkpoint(folder, Checkpoint({"epochs": epochs, "config": {}, "log": []}, tensors))

    def before(self, folder: Path) -> None:
        self._write(folder, 0)

    def act(self, folder: Path) -> None:
        self._write(folder, 1)

    def state(self, folder: Path) -> str:
        found = load_checkpoint(folder)
        assert found is not None
        assert (found.tensors["model/w"] == found.state["epochs"]).all()
        return (OLD, NEW)[found.state["epochs"]]


class Lists(Scene):
    """The lists of all users take the place of others."""

    name = "lists"

    def _write(self, folder: Path, k: int) -> None:
        bundle = bundle_of(0)
        wanted, target = ListOptions(k=k), folder / "lists.parquet"
        write_lists(bundle, bundle.users.values, wanted, target, block_users=10)

    def before(self, folder: Path) -> None:
        folder.mkdir()
        self._write(folder, 2)

    def act(self, folder: Path) -> None:
        self._write(folder, 3)

    def state(self, folder: Path) -> str:
        found = pl.read_parquet(folder / "lists.parquet")
        longest = int(found["rank"].to_numpy().max())
        assert found.height == longest * USERS
        return {2: OLD, 3: NEW}[longest]


class Export(Scene):
    """The vectors of a recommender take the place of those of another; each file is whole."""

    name = "export"

    def before(self, folder: Path) -> None:
        export(bundle_of(0), "npz", folder)

    def act(self, folder: Path) -> None:
        export(bundle_of(1), "npz", folder)

    def state(self, folder: Path) -> str:
        with np.load(folder / "vectors.npz") as found:
            assert found["users"].shape[0] == USERS
            expected = bundle_of(1).complete_scorer.users  # type: ignore[attr-defined]
            return NEW if np.array_equal(found["users"], expected.numpy()) else OLD


class Command(Scene):
    """A command; it ends with 0, or with 3 and one line."""

    def run(self, *arguments: object) -> None:
        done = mgformer(*arguments)
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in done.stderr, done.stderr
        if done.returncode:
            assert (done.returncode, len(lines)) == (3, 1), done.stderr
            raise SystemFailed(lines[0])

    def data(self, folder: Path) -> Path:
        """Return a file of interactions beside the folder."""
        above = folder.parent
        path = (above.parent if above.name == "old" else above) / "pairs.csv"
        if not path.exists():
            rows = zip(*pairs(), strict=True)
            path.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in rows))
        return path


class Train(Command):
    """A training, with a checkpoint at every epoch, takes the place of a trained recommender."""

    name = "train"

    def _train(self, folder: Path, seed: int, epochs: int) -> None:
        before, loop.CHECKPOINT_SECONDS = loop.CHECKPOINT_SECONDS, 0.0
        options = [f"train.epochs={epochs}", "model.dim=4", "train.batch_size=64"]
        settings = [word for option in options for word in ("--set", option)]
        try:
            self.run(
                "train", self.data(folder), "--model", "bprmf", *settings, "--seed", seed, "--out",
                folder,
            )  # fmt: skip
        finally:
            loop.CHECKPOINT_SECONDS = before

    def before(self, folder: Path) -> None:
        self._train(folder, 0, 1)

    def act(self, folder: Path) -> None:
        self._train(folder, 1, 2)

    def state(self, folder: Path) -> str:
        record = load_bundle(folder).record
        log = [entry["epoch"] for entry in read_log(folder)]
        # The log of the new run is renamed right after its bundle is saved.
        assert log in ([1], [1, 2][: 1 + record.seed]), log
        load_checkpoint(folder)
        return (OLD, NEW)[record.seed]


class Tune(Command):
    """A tuning goes on: trials are added one by one, and best.toml is replaced."""

    name = "tune"

    def _tune(self, folder: Path, trials: int) -> None:
        self.run(
            "tune", self.data(folder), "--model", "itemknn", "--trials", trials, "--out", folder
        )

    def before(self, folder: Path) -> None:
        self._tune(folder, 1)

    def act(self, folder: Path) -> None:
        self._tune(folder, 3)

    def state(self, folder: Path) -> str:
        trials = json.loads((folder / "trials.json").read_text())["trials"]
        assert trials[0]["state"] == "complete"
        head = (folder / "best.toml").read_text()
        return NEW if "3 trials" in head else OLD


class AddItems(Command):
    """New items come into a recommender."""

    name = "add-items"

    def before(self, folder: Path) -> None:
        kinds = pl.Series([f"k{n % 3}" for n in range(ITEMS)])
        about = Attributes({"kind": Attribute("category", kinds)})
        save_bundle(replace(bundle_of(0), about_items=about), folder)

    def act(self, folder: Path) -> None:
        new = folder.parent / "new.csv"
        new.write_text("item,kind\nfirst,k0\nlast,k2\n")
        self.run("add-items", folder, new)

    def state(self, folder: Path) -> str:
        found = load_bundle(folder)
        return {ITEMS: OLD, ITEMS + 2: NEW}[len(found.items)]


class SetRules(Command):
    """Rules come into a recommender."""

    name = "rules"

    def before(self, folder: Path) -> None:
        save_bundle(bundle_of(0), folder)

    def act(self, folder: Path) -> None:
        rules = folder.parent / "rules.toml"
        rules.write_text("[[pin]]\nitems = ['i3']\n")
        self.run("rules", folder, rules)

    def state(self, folder: Path) -> str:
        return NEW if load_bundle(folder).rules.pin else OLD


SCENES: dict[str, Scene] = {
    scene.name: scene
    for scene in (
        Save(), SaveCheckpoint(), Lists(), Export(), Train(), Tune(), AddItems(), SetRules(),
    )
}  # fmt: skip


def names_in(folder: Path) -> set[str]:
    """Return what is in a folder, hidden files too; checksums in names are cut off."""
    return {path.name.partition("-")[0] for path in folder.iterdir()}
