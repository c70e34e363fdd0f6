"""One reading of a source: which columns were taken, which rows were left out, what was noticed."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.errors import DataError

log = logging.getLogger("mgformer.reading")

FEW = 5
"""Number of rows that are described if many are left out."""
IN_FILE, IN_TABLE, IN_MEMORY = "{}:{}", "{}: row {}", "{}, row {}"
"""How errors name a row: by its line in a text file, or by its position. A function of the number
can also name it."""


class Reading:
    """What is known about the rows of a source while it is read, and afterwards.

    A row that cannot be used is a DataError. With `skip`, it is left out and counted instead.
    """

    def __init__(
        self,
        source: str,
        numbers: Sequence[int] | NDArray[np.integer] | None = None,
        form: str | Callable[[int], str] = IN_FILE,
        skip: bool = False,
    ) -> None:
        self.source, self.form, self.skip = source, form, skip
        self.numbers = numbers
        """The line of each row; None if rows are named by their position."""
        self.columns: dict[str, str] = {}
        """Role → name of the column that was taken for it."""
        self.ignored: list[str] = []
        """Names of the columns that were not taken."""
        self.unused_ratings: str | None = None
        """Name of a column of ratings that nothing uses."""
        self.time_unit: str | None = None
        """"dates" (microseconds since 1970), the unit of numbers, or None if it is not known."""
        self.notes: list[str] = []
        """What was noticed, one line each."""
        self.num_skipped = 0
        self._first: list[tuple[int, str]] = []
        self._bad: NDArray[np.bool_] | None = None
        self._kept: list[NDArray[np.bool_]] = []

    def again(self, skip: bool) -> "Reading":
        """Return a reading of the same columns that has not seen a row yet."""
        reading = Reading(self.source, form=self.form, skip=skip)
        reading.columns, reading.ignored = self.columns, self.ignored
        reading.unused_ratings, reading.notes = self.unused_ratings, [*self.notes]
        return reading

    def place(self, row: int) -> str:
        """Return the name of a row for an error, such as "ratings.csv:7"."""
        return self._named(self._number(row))

    def _named(self, number: int) -> str:
        if isinstance(self.form, str):
            return self.form.format(self.source, number)
        return self.form(number)

    def _number(self, row: int) -> int:
        for kept in reversed(self._kept):
            row = int(np.flatnonzero(kept)[row])
        return row if self.numbers is None else int(self.numbers[row])

    def refuse(
        self,
        wrong: pl.Series,
        got: Callable[[int], str],
        expected: str,
        remedy: str = "correct the row",
        optional: str | None = None,
    ) -> None:
        """Refuse or leave out the rows where `wrong` is true or null.

        `got` describes a row. The column of an `optional` role can also be ignored.
        """
        rows = np.flatnonzero(wrong.fill_null(True).to_numpy())
        if not len(rows):
            return
        if not self.skip:
            row = int(rows[0])
            ignore = f", or ignore the column with --set data.{optional}=''" if optional else ""
            raise DataError(
                f"{self.place(row)}: {got(row)}, expected {expected}; {remedy}, or leave out such "
                f"rows with --set data.on_error=skip{ignore}"
            )
        self._leave_out(rows, len(wrong), lambda row: f"{got(row)}, expected {expected}")

    def refuse_row(self, row: int, height: int, problem: str, remedy: str) -> None:
        """Refuse or leave out one of `height` rows."""
        if not self.skip:
            raise DataError(f"{self.place(row)}: {problem}; {remedy}")
        self._leave_out(np.array([row]), height, lambda _: problem)

    def _leave_out(self, rows: NDArray[np.intp], height: int, why: Callable[[int], str]) -> None:
        if self._bad is None:
            self._bad = np.zeros(height, dtype=bool)
        new = rows[~self._bad[rows]]
        self._bad[new] = True
        self._count(len(new), ((self._number(int(row)), why(int(row))) for row in new))

    def refuse_line(self, number: int, problem: str, remedy: str) -> None:
        """Refuse or leave out a line that is no row."""
        if not self.skip:
            raise DataError(
                f"{self._named(number)}: {problem}; {remedy}, or leave out such "
                "lines with --set data.on_error=skip"
            )
        self._count(1, [(number, problem)])

    def _count(self, number: int, described: Iterable[tuple[int, str]]) -> None:
        self.num_skipped += number
        few = [one for _, one in zip(range(FEW), described, strict=False)]
        self._first = sorted(self._first + few)[:FEW]

    def keep(self, frame: pl.DataFrame, also: pl.Series | None = None) -> pl.DataFrame:
        """Return the rows that are not left out and, if given, where `also` is true."""
        if self._bad is None and also is None:
            return frame
        wanted = np.ones(frame.height, dtype=bool) if self._bad is None else ~self._bad
        if also is not None:
            wanted &= also.fill_null(False).to_numpy()
        self._kept.append(wanted)
        self._bad = None
        return frame.filter(wanted)

    @property
    def first_skipped(self) -> list[str]:
        """The first rows that were left out, and why."""
        return [f"{self._named(number)}: {why}" for number, why in self._first]

    def took(self, names: Sequence[str], positions: Mapping[Any, int], ratings: str | None) -> None:
        """Note which columns were taken, and the name of ratings that nothing uses."""
        self.columns = {role: names[at] for role, at in positions.items()}
        taken = set(positions.values())
        self.ignored = [name for at, name in enumerate(names) if at not in taken and name]
        self.unused_ratings = ratings

    def lines(self) -> list[str]:
        """Return what a person should know about the columns, one line each."""
        taken = ", ".join(f"{role} = {name}" for role, name in self.columns.items())
        found = [f"columns: {taken}"] if taken else []
        others = ", ".join(name for name in self.ignored if name != self.unused_ratings)
        unused = []
        if self.unused_ratings is not None:
            unused = [
                f"ratings in {self.unused_ratings} are treated as likes, also low ones "
                "(data.min_rating drops those)"
            ]
        unused += [f"ignored: {others}"] if others else []
        return found + (["; ".join(unused)] if unused else []) + self.notes


@contextmanager
def unsaid() -> Iterator[None]:
    """Log nothing about readings: the caller shows what was noticed in its own way."""
    log.addFilter(_nothing)
    try:
        yield
    finally:
        log.removeFilter(_nothing)


def _nothing(_: logging.LogRecord) -> bool:
    return False


def say(readings: Iterable[Reading]) -> None:
    """Log what was noticed, and which rows were left out; what holds for all files only once."""
    said: set[str] = set()
    for reading in readings:
        for line in reading.lines():
            if line not in said:
                log.info("%s: %s", reading.source, line)
            said.add(line)
        if reading.num_skipped:
            described = [f"\n  {line}" for line in reading.first_skipped]
            more = reading.num_skipped - len(described)
            described += [f"\n  and {more:,} more"] if more else []
            rows = f"{reading.num_skipped:,} {'row' if reading.num_skipped == 1 else 'rows'}"
            message = "%s: left out %s that cannot be used:%s"
            log.warning(message, reading.source, rows, "".join(described))
