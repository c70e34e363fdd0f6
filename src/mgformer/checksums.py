"""Checksums that use all cores: the SHA-256 of the SHA-256 of each block.

A plain SHA-256 runs in one thread and takes longer than reading the file. Blocks are independent of
each other, so threads share them. Every level has a fixed place: data cannot pass for a list of
checksums.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that print help write no tensors
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

BLOCK = 8 << 20
"""Bytes of a block. Other values give other checksums."""
PIECE = 1 << 18
"""Bytes that are read at a time; they stay in the cache of a core until they are hashed."""


def checksum_of_file(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""

    def block(start: int) -> bytes:
        piece = memoryview(bytearray(PIECE))
        return _digest_of_block(path, start, lambda _at, most: piece[:most])

    return _of_blocks(path.stat().st_size, block)


def read_file(path: Path) -> "tuple[NDArray[np.uint8], str]":
    """Return the bytes of a file and their checksum, in one pass."""
    import numpy as np

    content = np.empty(path.stat().st_size, dtype=np.uint8)
    view = memoryview(content)  # type: ignore[arg-type] # an array is a buffer

    def block(start: int) -> bytes:
        return _digest_of_block(path, start, lambda at, most: view[at : at + most])

    return content, _of_blocks(len(content), block)


def checksum_of_bytes(data: "bytes | NDArray[np.uint8]") -> str:
    """Return the checksum that a file with these bytes has."""
    view = memoryview(data)  # type: ignore[arg-type] # an array is a buffer
    return _of_blocks(len(view), lambda at: hashlib.sha256(view[at : at + BLOCK]).digest())


def checksum_of_tensors(text: str, tensors: "Mapping[str, Tensor]") -> str:
    """Return the checksum of a text and of contiguous tensors: names, types, shapes and values."""
    import torch

    whole = hashlib.sha256(hashlib.sha256(text.encode()).digest())
    for name, tensor in sorted(tensors.items()):
        described = f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}"
        whole.update(hashlib.sha256(described.encode()).digest())
        values = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        whole.update(bytes.fromhex(checksum_of_bytes(values)))
    return whole.hexdigest()


def _digest_of_block(path: Path, start: int, target: Callable[[int, int], memoryview]) -> bytes:
    """Return the digest of a block. `target` says where to put so many bytes from a place on."""
    digest, at = hashlib.sha256(), start
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        while got := stream.readinto(piece := target(at, min(start + BLOCK - at, PIECE))):
            digest.update(piece[:got])
            at += got
    return digest.digest()


def _of_blocks(size: int, block: Callable[[int], bytes]) -> str:
    """Return the checksum of what has `size` bytes, given the digest of the block at a place."""
    starts = range(0, size, BLOCK)
    if len(starts) <= 1:
        return hashlib.sha256(block(0)).hexdigest()
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(starts))) as threads:
        return hashlib.sha256(b"".join(threads.map(block, starts))).hexdigest()
