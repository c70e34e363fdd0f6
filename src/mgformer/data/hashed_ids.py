"""User ids as keyed hashes: a bundle then names nobody to those who do not have the key.

The hash is HMAC-SHA256 with the key, cut to 32 hexadecimal digits. Without a key, hashes of short
ids could be found by trying all ids. The key is a file of its own, outside the bundle.
"""

import hashlib
import hmac
import os
import secrets
from dataclasses import replace
from pathlib import Path

import polars as pl

from mgformer.data.attributes import NO_ATTRIBUTES
from mgformer.data.dataset import Dataset
from mgformer.data.ids import ExternalId, Ids
from mgformer.data.interactions import Interactions
from mgformer.errors import ConfigError

DIGITS = 32
FEWEST_BYTES = 16
MARKED = b"mgformer: mark of this key"


def read_key(path: Path) -> bytes:
    """Read a key from a file."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        why = error.strerror or "cannot be read"
        raise ConfigError(f"{path}: no usable key of ids ({why}); check the path") from None
    if len(key) < FEWEST_BYTES:
        raise ConfigError(
            f"{path}: the key has {len(key)} bytes, expected at least {FEWEST_BYTES}; delete the"
            " file to get a new key"
        )
    return key


def new_key(path: Path) -> bytes:
    """Write a random key to a new file that only its owner can read."""
    key = secrets.token_hex(32).encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot write a key of ids ({error.strerror})") from None
    with os.fdopen(handle, "wb") as stream:
        stream.write(key + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    return key


def hash_id(user: ExternalId, key: bytes) -> str:
    """Return the hash of a user id."""
    return hmac.new(key, str(user).encode(), hashlib.sha256).hexdigest()[:DIGITS]


def mark_of(key: bytes) -> str:
    """Return what tells two keys apart; it does not reveal the key."""
    return hmac.new(key, MARKED, hashlib.sha256).hexdigest()[:DIGITS]


def hash_users(dataset: Dataset, key: bytes) -> Dataset:
    """Return a dataset whose user ids are hashes, without attributes that may tell who they are."""
    old = dataset.interactions
    hashes = pl.Series("id", [hash_id(user, key) for user in old.users.values], dtype=pl.String)
    users = Ids(hashes.sort())

    def changed(pairs: Interactions) -> Interactions:
        return Interactions.from_numbers(
            users,
            pairs.items,
            users.encode(hashes)[pairs.rows],
            pairs.indices,
            pairs.times,
            pairs.weights,
            pairs.places,
        )

    parts = dataset.parts and {name: changed(part) for name, part in dataset.parts.items()}
    return replace(
        dataset, interactions=changed(old), parts=parts, rows=None, about_users=NO_ATTRIBUTES
    )
