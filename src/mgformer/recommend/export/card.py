"""A description of a recommender for those who use it."""

import json
from pathlib import Path

from mgformer.recommend.export.parts import Export
from mgformer.runs.bundle import Bundle
from mgformer.runs.record import Refreshed


def model_card(bundle: Bundle) -> str:
    """Return a description of the recommender for its users, in Markdown."""
    record = bundle.record
    ks = record.config.get("evaluation", {}).get("ks", [20])
    names = [f"{metric}@{k}" for metric in ("recall", "ndcg", "coverage") for k in ks]
    parts = {"test": record.test, "popularity, test": record.popularity, "validation": record.valid}
    rows = [
        [name, *(f"{part[name]:.4f}" if name in part else "–" for part in parts.values())]
        for name in names
        if name in record.test
    ]
    table = [["metric", *parts], ["---"] * (1 + len(parts)), *rows]
    facts = {
        "model": record.model,
        "dataset": f"{record.dataset} ({record.fingerprint})",
        "size": f"{len(bundle.users):,} users, {len(bundle.items):,} items,"
        f" {len(bundle.train):,} interactions in the training set",
        "protocol": record.protocol,
        "trained on": "all pairs, after these figures were measured" if record.refit else None,
        "refreshed": _refreshed_text(record.refreshed),
        "seed": record.seed,
        "epochs": record.epochs or None,  # 0 if the model is not trained step by step
        "library, commit": f"{record.library}, {record.commit}",
    }
    template = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    return template.format(
        title=f"{record.model} on {record.dataset}",
        facts="\n".join(f"- {name}: {value}" for name, value in facts.items() if value is not None),
        table="\n".join(f"| {' | '.join(cells)} |" for cells in table),
        config=json.dumps(record.config, indent=2),
    )


def _refreshed_text(done: Refreshed | None) -> str | None:
    if done is None:
        return None
    return (
        f"{done.pairs - done.trained_pairs:,} of {done.pairs:,} interactions were added without"
        " training, after these figures were measured"
    )


def to_card(bundle: Bundle) -> Export:
    """Return the model card."""
    card = model_card(bundle)
    return {"MODEL_CARD.md": lambda draft: draft.write_text(card, encoding="utf-8")}, {}
