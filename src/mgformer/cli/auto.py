"""What `train` shows of the choice of a model, and of a model that is no better than popularity."""

from typing import TYPE_CHECKING

from mgformer.cli.console import out, print_table

if TYPE_CHECKING:
    from mgformer.runs.record import Auto, Contestant, Record


def show_auto(auto: "Auto", winner: str) -> None:
    """Print what was tried, the best first, and why the winner was taken."""
    tried = [one for one in auto.contestants if one.skipped is None]
    tried.sort(key=lambda one: -one.valid["ndcg@20"])
    skipped = [one for one in auto.contestants if one.skipped is not None]
    rows = [_row(one, one.model == winner) for one in (*tried, *skipped)]
    has_earlier = any(one.earlier is not None for one in tried)
    columns = ["model", "", "NDCG@20", "Recall@20", "earlier NDCG@20", "seconds"]
    if not has_earlier:
        columns, rows = columns[:4] + columns[5:], [row[:4] + row[5:] for row in rows]
    if tried:
        print_table(columns, rows, "models on validation", num_text=2)
    spent = f"{auto.seconds:.0f} of {auto.budget:.0f} s"
    out.print(f"chosen: {winner}, {auto.reason} ({auto.users:,} users; {spent})")
    for one in skipped:
        out.print(f"{one.model} was skipped: {one.skipped}", style="dim")
    out.print()


def _row(one: "Contestant", won: bool) -> list[str]:
    note = "chosen" if won else "skipped" if one.skipped else ""
    if one.stopped:
        note = f"{note} stopped at epoch {one.epochs} by the budget".strip()
    figures = [one.valid.get("ndcg@20"), one.valid.get("recall@20"), one.earlier]
    shown = ["–" if figure is None else f"{figure:.4f}" for figure in figures]
    return [one.model, note, *shown, "–" if one.skipped else f"{one.seconds:.1f}"]


def warn_if_poor(record: "Record") -> None:
    """Say loudly if the most popular items are as good as the model, and what to try."""
    if not record.is_poor:
        return
    ours, theirs = record.test["ndcg@20"], record.popularity["ndcg@20"]
    out.print()
    if record.model == "popularity":
        problem = "everyone gets the same list: the most popular items"
    else:
        problem = (
            f"{record.model} is not better than the most popular items on test"
            f" (NDCG@20 {ours:.4f} against {theirs:.4f})"
        )
    out.print(f"WARNING: {problem}.", style="bold red")
    out.print(
        "Try: more interactions, or fewer users and items with little data (--set data.k_core=5);\n"
        "     ratings that mean liking only (--set data.min_rating=4);\n"
        "     other models and more time (mgformer train DATA --budget 10m);\n"
        "     a test on more users (--set split.kind=ratio), if few were ranked."
    )
