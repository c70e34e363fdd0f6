import numpy as np
import polars as pl
import pytest
from scipy import stats

from mgformer.errors import DataError
from mgformer.experiments.summary import figure
from mgformer.experiments.tables import Table, paired_tests, significance_json


def users(values: list[float], names: str = "abcd") -> pl.DataFrame:
    return pl.DataFrame(
        {"user": list(names), "ndcg@20": values, "recall@20": [v / 2 for v in values]}
    )


def test_a_figure_has_a_deviation_where_there_are_several() -> None:
    assert str(figure([0.12345])) == "0.1235"
    assert str(figure([0.1, 0.2, 0.3])) == "0.2000 ± 0.1000"  # of a sample: n − 1


def test_markdown() -> None:
    assert Table(["a", "b"], [["x", "1"]]).markdown() == "| a | b |\n| --- | ---: |\n| x | 1 |\n"


def test_latex() -> None:
    lines = Table(["a", "b_c"], [["5 % & more", "1"]]).latex().splitlines()
    assert lines == [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"a & b\_c \\",
        r"\midrule",
        r"5 \% \& more & 1 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_marks_the_best_the_second_and_what_differs() -> None:
    figures = ["0.2000 ± 0.0100*", "0.3000", "–", "0.2500", "0.3000"]
    table = Table(
        ["", "NDCG@20", "p"], [[n, f, "0.5"] for n, f in zip("abcde", figures, strict=True)]
    )
    *_, note = lines = table.latex(["NDCG@20"], "* differs, p < 0.05").splitlines()
    assert lines[5:10] == [
        r"a & 0.2000 $\pm$ 0.0100$^{*}$ & 0.5 \\",
        r"b & \textbf{0.3000} & 0.5 \\",
        r"c & -- & 0.5 \\",
        r"d & \underline{0.2500} & 0.5 \\",
        r"e & \textbf{0.3000} & 0.5 \\",
    ]
    assert note == r"\par\smallskip{\footnotesize $^{*}$ differs, p $<$ 0.05\par}"


def test_paired_tests_equal_those_of_scipy() -> None:
    ours, theirs = [0.1, 0.5, 0.9, 0.3], [0.2, 0.3, 0.5, 0.3]
    found = paired_tests([users(ours)], [users(theirs)])
    expected = stats.ttest_rel(ours, theirs)
    assert found["ndcg@20"].p_value == pytest.approx(expected.pvalue)
    assert found["ndcg@20"].difference == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert found["recall@20"].difference == pytest.approx(found["ndcg@20"].difference / 2)
    assert significance_json(found)["users"] == 4
    assert significance_json(found)["metrics"]["ndcg@20"]["p_value"] == found["ndcg@20"].p_value


def test_a_user_counts_once_whatever_the_number_of_seeds() -> None:
    """By hand: the t statistic of four differences, each the mean of a user's over the seeds."""
    ours = [users([0.1, 0.5, 0.9, 0.3]), users([0.3, 0.8, 0.1], "bad")]
    theirs = [users([0.2, 0.3, 0.5, 0.3]), users([0.1, 0.4, 0.2], "bad")]
    gaps = np.array([(-0.1 + 0.4) / 2, (0.2 + 0.2) / 2, 0.4, (0.0 - 0.1) / 2])
    t = gaps.mean() / (gaps.std(ddof=1) / 2)
    found = paired_tests(ours, theirs, ["ndcg@20"])["ndcg@20"]
    assert found.difference == pytest.approx(gaps.mean())
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(t), 3))
    assert found.num_users == 4


def test_runs_on_different_users_are_refused() -> None:
    one = users([0.1, 0.2, 0.3, 0.4])
    with pytest.raises(DataError, match="tested on different users"):
        paired_tests([one], [one.reverse()])
