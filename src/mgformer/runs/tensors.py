"""Tensors from the bytes of a safetensors file, without a copy.

`safetensors.torch.load` copies every tensor: a bundle of 168 MB took more than twice as long.
The format: eight bytes with the length of the header, the header (JSON: name → dtype, shape,
begin and end of the values), the values.
"""

import json
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
LONGEST = 1 << 24
"""Bytes of a header. Those of bundles have less than ten thousand."""


def tensors_in(content: NDArray[np.uint8]) -> dict[str, Tensor]:
    """Return the tensors as views of the bytes.

    Raises:
        ValueError, TypeError, LookupError: The bytes are not those of a safetensors file.
    """
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    if not 8 <= start <= min(len(content), LONGEST):
        raise ValueError("the header does not fit into the file")
    try:
        header = json.loads(content[8:start].tobytes())
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("the header is no mapping of names")
    return {
        name: _view(content[start:], entry["dtype"], entry["shape"], *entry["data_offsets"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _view(values: NDArray[np.uint8], kind: str, shape: list[int], begin: int, end: int) -> Tensor:
    dtype = TYPES[kind]
    numbers = (*shape, begin, end)
    if not all(type(number) is int and 0 <= number <= len(values) for number in numbers):
        raise ValueError("a shape or a place that does not fit into the file")
    if end - begin != prod(shape) * dtype.itemsize:
        raise ValueError("a shape that does not fit its values")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    piece = values[begin:end]
    if piece.ctypes.data % dtype.itemsize:  # the format allows this, but nothing here writes it
        piece = piece.copy()
    return torch.from_numpy(piece).view(dtype).reshape(shape)
