"""Find the columns of users, items, times, ratings and weights by their names."""

import re
from collections.abc import Sequence
from typing import Literal

from mgformer.data.formats.reading import Reading
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, did_you_mean

Role = Literal["user", "item", "time", "rating", "weight"]

# If a table has several known names of one role, the name listed first wins.
_NAMES: dict[Role, str] = {
    "user": """
        user userid uid reviewerid visitorid customerid customer memberid member accountid account
        personid person profileid username reviewer visitor clientid client buyerid buyer shopperid
        shopper viewerid readerid listenerid customerno customernumber useruuid customerkey
    """,
    "item": """
        item itemid iid movieid asin productid product articleid article bookid isbn trackid songid
        artistid businessid gameid animeid recipeid newsid videoid venueid locationid movie book
        track song artist game anime sku stockcode parentasin article business filmid film showid
        hotelid restaurantid listingid productcode itemcode articleno itemno productkey ean gtin upc
    """,
    "time": """
        timestamp time datetime date unixreviewtime ts createdat eventtime when reviewtime orderdate
        purchasedate eventdate occurredat ratedat watchedat purchasedat orderedat
    """,
    "rating": "rating overall stars score ratings grade",
    "weight": "weight count playcount plays",
}
_KNOWN_NAMES = {role: names.split() for role, names in _NAMES.items()}


def role_of(name: str) -> Role | None:
    """Return the role that a column of this name usually has."""
    plain = _plain(name)
    return next((role for role, known in _KNOWN_NAMES.items() if plain in known), None)


def find_columns(
    names: Sequence[str], options: DataConfig, where: str, reading: Reading | None = None
) -> dict[Role, int]:
    """Return the position of each role's column; users and items are required."""
    plain = [_plain(name) for name in names]
    found: dict[Role, int] = {}
    for role, known in _KNOWN_NAMES.items():
        asked = getattr(options, role)
        if asked is None:
            asked = next((names[plain.index(name)] for name in known if name in plain), "")
        if asked != "":
            found[role] = _position_of(asked, names, role, where)
        elif role in ("user", "item"):
            raise DataError(
                f"{where}: got the columns {_listed(names)}, expected one of {role} ids; "
                f"name it with --set data.{role}=NAME, or see: mgformer datasets show FILE"
            )
    if found["user"] == found["item"]:
        raise DataError(
            f"{where}: got one column for users and items, expected two; "
            "name them with --set data.user=NAME --set data.item=NAME"
        )
    if options.min_rating is not None and "rating" not in found:
        raise DataError(
            f"{where}: got no column of ratings, expected one because of data.min_rating; "
            "name it with --set data.rating=NAME"
        )
    unused = None
    if options.min_rating is None and options.rating is None:
        unused = found.pop("rating", None)
    if reading is not None:
        reading.took(names, found, None if unused is None else names[unused])
    return found


def _position_of(asked: str | int, names: Sequence[str], role: Role, where: str) -> int:
    if asked in names:
        return names.index(str(asked))
    if str(asked).isdecimal() and int(asked) < len(names):
        return int(asked)
    raise DataError(
        f"{where}: got the columns {_listed(names)}, expected {asked!r}"
        f"{did_you_mean(str(asked), names)}; name the right one with --set data.{role}=NAME"
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _listed(names: Sequence[str], most: int = 12) -> str:
    short = [" ".join(name.split())[:40] for name in names[:most]]
    return ", ".join(short) + (", …" if len(names) > most else "")
