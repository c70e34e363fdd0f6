"""Checksums are those of the blocks, however they are computed."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from mgformer.checksums import (
    BLOCK,
    checksum_of_bytes,
    checksum_of_file,
    checksum_of_tensors,
    read_file,
)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77])
def test_a_file_and_its_bytes_have_the_checksum_of_their_blocks(size: int, tmp_path: Path) -> None:
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "file").write_bytes(content)
    blocks = [content[at : at + BLOCK] for at in range(0, size, BLOCK)] or [b""]
    digests = b"".join(hashlib.sha256(block).digest() for block in blocks)
    expected = hashlib.sha256(digests).hexdigest()
    assert checksum_of_file(tmp_path / "file") == expected
    assert checksum_of_bytes(content) == expected
    read, checksum = read_file(tmp_path / "file")
    assert checksum == expected
    assert read.tobytes() == content


def test_everything_about_tensors_counts() -> None:
    tensors = {"a": torch.arange(6.0), "b": torch.tensor(2, dtype=torch.int32)}
    others = [
        ("other", tensors),
        ("text", {"a": tensors["a"]}),
        ("text", {**tensors, "b": torch.tensor(3, dtype=torch.int32)}),
        ("text", {**tensors, "b": torch.tensor(2, dtype=torch.uint32)}),
        ("text", {**tensors, "a": tensors["a"].reshape(2, 3)}),
        ("text", {"c": tensors["a"], "b": tensors["b"]}),
        ("text", tensors),
    ]
    assert len({checksum_of_tensors(*other) for other in others}) == len(others)
    turned = dict(reversed(tensors.items()))
    assert checksum_of_tensors("text", turned) == checksum_of_tensors("text", tensors)
