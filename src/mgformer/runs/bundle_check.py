"""What the files of a bundle must be like, checked before anything uses them.

Compiled code follows row pointers and item numbers without looking: a wrong one ends the process.
So every number that is an index is checked against what it points into, and every value that is
multiplied must be finite. The checks are passes over memory, far faster than the checksums.

Shapes: U users, I items, E pairs or entries.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.errors import BundleError
from mgformer.runs.record import Record

LARGEST = 1e10
"""The largest value of a vector or weight. Products of three of them fit into float32."""
FLOATS = (torch.float32, torch.float64)
INDICES = (torch.int32, torch.int64)


class Contents:
    """The tensors of one file. They are taken out by name, and checked."""

    def __init__(self, source: str, tensors: dict[str, Tensor]) -> None:
        self.source, self._left = source, dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def refuse(self, name: str, got: object, expected: str) -> NoReturn:
        """Say what is wrong with a tensor."""
        raise BundleError(
            f"{self.source}: {name}: got {got}, expected {expected}; this is not a file that"
            " mgformer wrote: copy the bundle again, or train again"
        )

    def take(self, name: str, types: Sequence[torch.dtype], *shape: int | None) -> Tensor:
        """Return a tensor of one of these types and of this shape; None stands for any size."""
        if name not in self._left:
            self.refuse(name, "no such tensor", "one")
        tensor = self._left.pop(name)
        if tensor.dtype not in types:
            self.refuse(name, tensor.dtype, " or ".join(map(str, types)))
        sizes = list(tensor.shape)
        if len(sizes) != len(shape) or any(
            wanted not in (None, size) for size, wanted in zip(sizes, shape, strict=True)
        ):
            wanted = ["any" if size is None else size for size in shape]
            self.refuse(name, f"the shape {sizes}", f"[{', '.join(map(str, wanted))}]")
        return tensor

    def values(self, name: str, *shape: int | None) -> Tensor:
        """Return a tensor of finite numbers."""
        tensor = self.take(name, FLOATS, *shape)
        check_values(self.source, name, tensor)
        return tensor

    def numbers(
        self, name: str, types: Sequence[torch.dtype], below: int, *shape: int | None
    ) -> NDArray[Any]:
        """Return whole numbers from 0 to `below` - 1."""
        tensor = self.take(name, types, *shape)
        if tensor.numel():
            low, high = (int(bound) for bound in torch.aminmax(tensor))
            if low < 0 or high >= below:
                self.refuse(name, low if low < 0 else high, f"numbers from 0 to {below - 1}")
        return tensor.numpy()

    def rows(
        self,
        name: str,
        num_rows: int,
        num_columns: int,
        pointer_types: Sequence[torch.dtype],
        index_types: Sequence[torch.dtype],
        *,
        ascending: bool,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return `indptr` and `indices` of a CSR matrix.

        If `ascending`, the numbers of a row must ascend: then no pair occurs twice.
        """
        indices = self.numbers(f"{name}.indices", index_types, num_columns, None)
        indptr = self.take(f"{name}.indptr", pointer_types, num_rows + 1).numpy()
        if indptr[0] != 0 or indptr[-1] != len(indices):
            ends = f"rows from {indptr[0]} to {indptr[-1]}"
            self.refuse(f"{name}.indptr", ends, f"from 0 to {len(indices)}")
        if not (indptr[1:] >= indptr[:-1]).all():
            self.refuse(f"{name}.indptr", "a row that ends before it begins", "ascending numbers")
        if ascending and len(indices):
            rises = indices[1:] > indices[:-1]
            starts = indptr[1:-1]
            rises[starts[(starts > 0) & (starts < len(indices))] - 1] = True
            if not rises.all():
                self.refuse(f"{name}.indices", "a row out of order", "ascending numbers in rows")
        return indptr, indices

    def matrix(self, name: str, num_rows: int | None, num_columns: int) -> sp.csr_array:
        """Return a sparse matrix of finite float32 values."""
        sizes = self.take(f"{name}.shape", [torch.int64], 2).tolist()
        if (num_rows is not None and sizes[0] != num_rows) or sizes[1] != num_columns:
            wanted = "any" if num_rows is None else num_rows
            self.refuse(f"{name}.shape", sizes, f"[{wanted}, {num_columns}]")
        # scipy does not rely on the order within rows.
        indptr, indices = self.rows(name, sizes[0], num_columns, INDICES, INDICES, ascending=False)
        if indptr.dtype != indices.dtype:
            self.refuse(f"{name}.indptr", indptr.dtype, str(indices.dtype))
        data = self.take(f"{name}.data", [torch.float32], len(indices))
        check_values(self.source, f"{name}.data", data)
        return sp.csr_array((data.numpy(), indices, indptr), shape=tuple(sizes))

    def finish(self) -> None:
        """Refuse tensors that nobody took."""
        for name in self._left:
            self.refuse(ascii(name)[1:-1], "a tensor that is not known", "none of this name")


def check_values(source: str, name: str, tensor: Tensor) -> None:
    """Refuse numbers that are not finite, or so large that scores would not be."""
    if not tensor.numel():
        return
    low, high = (float(bound) for bound in torch.aminmax(tensor))
    if not (low >= -LARGEST and high <= LARGEST):  # also if they are not numbers
        raise BundleError(
            f"{source}: {name}: got numbers from {low:g} to {high:g}, expected finite ones of at"
            f" most {LARGEST:g}; the training diverged or the file is damaged: train again"
        )


def pairs_of(contents: Contents, name: str, users: Ids, items: Ids) -> Interactions:
    """Return one part of the pairs."""
    indptr, indices = contents.rows(
        name, len(users), len(items), [torch.int64], [torch.int32], ascending=True
    )
    times = places = None
    if f"{name}.times" in contents:
        moments = contents.take(f"{name}.times", [torch.int64, torch.float64], len(indices))
        if moments.is_floating_point() and len(moments):
            bounds = torch.stack(torch.aminmax(moments))
            if not bounds.isfinite().all():
                contents.refuse(f"{name}.times", "a time that is not finite", "finite times")
        times = moments.numpy()
    if f"{name}.places" in contents:
        places = contents.take(f"{name}.places", [torch.int64], len(indices)).numpy()
    weights = None
    if f"{name}.weights" in contents:
        kept = contents.take(f"{name}.weights", [torch.float32], len(indices))
        if not ((kept > 0) & kept.isfinite()).all():
            contents.refuse(f"{name}.weights", "a weight that is not above 0", "finite weights > 0")
        weights = kept.numpy()
    return Interactions(users, items, indptr, indices, times, places, weights)


def ids_of(table: pl.DataFrame, source: str) -> Ids:
    """Return the ids of a table: text or whole numbers, all different, in ascending order."""
    if "id" not in table.columns or table["id"].dtype not in (pl.String, pl.Int64):
        refuse_table(source, f"the columns {_shown(table)}", "a column `id` of text or integers")
    ids = table["id"]
    if not len(ids):
        refuse_table(source, "no ids", "at least one")
    if ids.null_count():
        refuse_table(source, "a row without an id", "an id in every row")
    if not (ids.slice(1) > ids.slice(0, len(ids) - 1)).all():
        refuse_table(source, "ids out of order, or twice", "different ids in ascending order")
    return Ids(ids)


def check_per_user(table: pl.DataFrame, users: Ids, source: str) -> None:
    """Check the table of test metrics: the column `user`, then numbers."""
    first, *others = table.columns or [""]
    if first != "user" or table["user"].dtype != users.values.dtype:
        refuse_table(source, f"the columns {_shown(table)}", "`user` like the ids, then metrics")
    for name in others:
        if not table[name].dtype.is_numeric() or table[name].null_count():
            refuse_table(source, f"the column {name!a}", "numbers without gaps")
    ids = table["user"]
    if ids.null_count() or not (ids.slice(1) > ids.slice(0, max(len(ids) - 1, 0))).all():
        refuse_table(source, "users out of order, or twice", "ascending ids")
    if (users.encode(ids) < 0).any():
        refuse_table(source, "a user without an id", "users of the bundle")


def check_score(record: Record, parts: Sequence[Interactions], source: str) -> None:
    """Check that the score of a record can be computed from the pairs of the parts."""
    weights = {"gamma": record.gamma, "delta": record.delta, "eta": record.eta}
    for name, value in {**weights, "kappa": record.kappa}.items():
        if value is not None and not (0 if name == "kappa" else -LARGEST) <= value <= LARGEST:
            raise BundleError(f"{source}: {name} of the record is {value}; train it again")
    has_order = any(
        all(getattr(part, order) is not None for part in parts) for order in ("times", "places")
    )
    if record.kappa and not has_order:
        raise BundleError(
            f"{source}: the score ages histories, but the pairs have no order; train it again"
        )
    for section in ("data", "split", "model", "train", "score", "evaluation"):
        if not isinstance(record.config.get(section, {}), dict):
            raise BundleError(f"{source}: {section} of the config is no section; train it again")


def refuse_table(source: str, got: str, expected: str) -> NoReturn:
    """Say what is wrong with a table."""
    raise BundleError(
        f"{source}: got {got}, expected {expected}; this is not a file that mgformer wrote: copy"
        " the bundle again, or train again"
    )


def _shown(table: pl.DataFrame) -> str:
    return ", ".join(ascii(name) for name in table.columns[:5]) or "none"
