"""Tensors are read as safetensors reads them, and hostile bytes are refused."""

import json
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from mgformer.runs.tensors import tensors_in


def bytes_of(header: object, values: bytes = b"", length: int | None = None) -> np.ndarray:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = (len(text) if length is None else length).to_bytes(8, "little")
    return np.frombuffer(start + text + values, dtype=np.uint8).copy()


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_tensors_are_those_that_safetensors_wrote() -> None:
    written = {
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.empty(0, 5),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "half": torch.rand(3, dtype=torch.bfloat16),
        "cube": torch.rand(2, 3, 5, dtype=torch.float64),
        "flags": torch.tensor([True, False, True]),
    }
    content = np.frombuffer(safetensors.torch.save(written, {"a": "b"}), dtype=np.uint8).copy()
    found = tensors_in(content)
    assert found.keys() == written.keys()
    for name, tensor in written.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_values_off_their_alignment_are_read() -> None:
    values = b"\0" + np.array([1.5, 2.5], dtype=np.float32).tobytes()
    for padding in range(4):  # one of them is off whatever the address of the array
        header = json.dumps(entry(shape=[2], offsets=[1, 9])).encode() + b" " * padding
        assert tensors_in(bytes_of(header, values))["t"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    "content",
    [
        np.empty(0, dtype=np.uint8),
        bytes_of(entry(), b"1234", length=1 << 60),
        bytes_of(entry(), b"1234", length=10_000),
        bytes_of(b"[" * 100_000),
        bytes_of(b"not JSON"),
        bytes_of(b"\xff\xfe"),
        bytes_of({"t": {}}),
        bytes_of({"t": 3}),
        bytes_of(entry(dtype="F31"), b"1234"),
        bytes_of(entry(dtype=["F32"]), b"1234"),
        bytes_of(entry(shape=[2]), b"1234"),
        bytes_of(entry(shape=[-1]), b"1234"),
        bytes_of(entry(shape=[1.0]), b"1234"),
        bytes_of(entry(shape=None), b"1234"),
        bytes_of(entry(shape=[1 << 62, 0], offsets=[0, 0]), b"1234"),
        bytes_of(entry(offsets=[0, 8], shape=[2]), b"1234"),
        bytes_of(entry(offsets=[-4, 0]), b"1234"),
        bytes_of(entry(offsets=[4, 0]), b"1234"),
        bytes_of(entry(offsets=[True, 5]), b"12345"),
        bytes_of(entry(offsets=[0]), b"1234"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(content: np.ndarray) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        tensors_in(content)


def test_a_header_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ValueError, match="mapping"):
        tensors_in(bytes_of([1, 2]))
