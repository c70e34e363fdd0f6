"""Runs with hashed user ids: new data get the same hashes, and a wrong key is refused."""

from pathlib import Path

from mgformer.data.dataset import Dataset
from mgformer.data.formats.feedback import is_feedback
from mgformer.data.hashed_ids import hash_users, mark_of, new_key, read_key
from mgformer.errors import ConfigError
from mgformer.runs.record import Record


def key_for_run(path: Path, folder: Path) -> bytes:
    """Return the key in a file, which is made if it does not exist; it stays out of the bundle."""
    if path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(
            f"--hash-ids {path}: lies in the folder of the run, where whoever gets the bundle gets"
            " the key; choose a file outside"
        )
    return read_key(path) if path.exists() else new_key(path)


def hashed_once(source: str | Path, dataset: Dataset, key: bytes) -> Dataset:
    """Return data with hashed user ids. A service knows hashes only, and its log has them."""
    return dataset if is_feedback(Path(source)) else hash_users(dataset, key)


def with_hashed_ids(
    source: str | Path, dataset: Dataset, record: Record, key: Path | None
) -> Dataset:
    """Return new data for a run, with hashed user ids if those of the run are hashed."""
    if record.hashed_ids is None:
        if key is not None:
            raise ConfigError(f"{key}: the user ids of this run are not hashed; leave out the key")
        return dataset
    if key is None and is_feedback(Path(source)):
        return dataset
    if key is None:
        raise ConfigError(
            "the user ids of this run are hashed; give the key file that it was made with"
        )
    secret = read_key(key)
    if mark_of(secret) != record.hashed_ids:
        raise ConfigError(f"{key}: another key than the one that hashed the user ids of this run")
    return hashed_once(source, dataset, secret)
