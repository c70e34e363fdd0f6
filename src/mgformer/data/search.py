"""Find ids by a part of the id or of the name, whatever the case and the accents."""

import polars as pl

MARKS = "[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670]"
"""Accents, and the marks of vowels in Hebrew and Arabic, once they are apart from their letters.
Marks of other scripts stay: in many they are letters."""
PLAIN = {
    "ß": "ss",
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "đ": "d",
    "ð": "d",
    "ł": "l",
    "þ": "th",
    "ı": "i",
}
"""Letters that do not fall apart into a plain letter and a mark."""
BLOCK = 1 << 16
"""Rows that are searched at once."""
BETWEEN = "\n"
"""Between the id and the name: nobody searches for a line end."""


def folded(text: pl.Series) -> pl.Series:
    """Return text without case, accents and compatibility forms, such as wide letters."""
    lower = text.str.to_lowercase()
    # Most texts are ASCII, and for those the rest of the work would be in vain.
    odd = (text.str.len_bytes() != text.str.len_chars()).arg_true()
    apart = lower.gather(odd).str.normalize("NFKD").str.to_lowercase()
    return lower.scatter(odd, apart.str.replace_all(MARKS, "").str.replace_many(PLAIN))


class Searchable:
    """Texts that are folded once, for many searches."""

    def __init__(self, ids: pl.Series, names: pl.Series | None = None) -> None:
        """Prepare the search for ids, and for the names of the same rows."""
        parts = [ids.cast(pl.String).alias("id")]
        if names is not None:
            parts.append(names.cast(pl.String).alias("name"))
        joined = pl.concat_str(parts, separator=BETWEEN, ignore_nulls=True)
        self._folded = folded(pl.select(joined.alias("text")).to_series())

    def find(self, text: str, most: int) -> pl.Series:
        """Return the first rows that contain a text."""
        wanted = folded(pl.Series("text", [text.strip()]))[0].replace(BETWEEN, " ")
        if not wanted:
            return pl.int_range(min(most, len(self._folded)), eager=True)
        found = pl.Series(dtype=pl.Int64)
        for start in range(0, len(self._folded), BLOCK):  # the first rows often have enough
            block = self._folded.slice(start, BLOCK).str.contains(wanted, literal=True)
            found.append(block.arg_true().cast(pl.Int64) + start)
            if len(found) >= most:
                break
        return found.head(most)
