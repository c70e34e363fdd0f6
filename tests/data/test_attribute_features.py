import numpy as np
import polars as pl

from mgformer.data.attribute_features import features_of
from mgformer.data.attributes import Attribute, Attributes


def test_features_of_each_kind():
    about = Attributes(
        {
            "cost": Attribute("number", pl.Series([1, 2, 3, 4]), private=True),
            "brand": Attribute("category", pl.Series(["x", "y", "x", None])),
            "genres": Attribute("categories", pl.Series([["p", "q"], ["q"], None, ["p", "q"]])),
            "year": Attribute("number", pl.Series([0, None, 10, 5])),
            "sold": Attribute("flag", pl.Series([True, None, True, False])),
            "look": Attribute(
                "embedding",
                pl.Series([[3.0, 0.0], None, [0.0, 4.0], None], dtype=pl.Array(pl.Float32, 2)),
            ),
        }
    )
    found = features_of(about, 4).table.toarray()
    assert not features_of(about, 4).doubtful.any()
    scale = np.sqrt(25 / 2)
    expected = np.array(
        [  # ones, x, q, p, knots of the year 0 … 10, true, embedding
            [1, 1, 1, 1, 1, 0, 0, 1, 3 / scale, 0],
            [1, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 1, 1, 0, 4 / scale],
            [1, 0, 1, 1, 0, 1, 0, 0, 0, 0],
        ]
    )
    years = found[:, 4:-3]
    np.testing.assert_allclose(found[:, :4], expected[:, :4])
    np.testing.assert_allclose(found[:, -3:], expected[:, -3:], rtol=1e-6)
    np.testing.assert_allclose(years.sum(1), [1, 0, 1, 1], rtol=1e-6)
    assert years[0, 0] == years[2, -1] == 1
    text = Attributes({"story": Attribute("text", pl.Series(["Tea, tea", "TEA jam", "jam", None]))})
    features = features_of(text, 4)
    assert features.doubtful.tolist() == [False, True, True]
    np.testing.assert_array_equal(
        features.scaled(2).toarray(), features.table.toarray() * [1, 2, 2]
    )
    assert features.scaled(0).toarray().tolist() == [[1]] * 4
    words = features.table.toarray()[:, 1:]
    np.testing.assert_allclose(np.linalg.norm(words, axis=1), [1, 1, 1, 0], rtol=1e-6)
    assert (words > 0).sum(1).tolist() == [1, 2, 1, 0]
