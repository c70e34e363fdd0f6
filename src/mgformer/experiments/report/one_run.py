"""The report on one run."""

from collections.abc import Callable

from mgformer.experiments.report import inside, measured
from mgformer.experiments.report.attention_section import attention
from mgformer.experiments.report.blocks import Page, Section
from mgformer.runs.bundle import Bundle
from mgformer.runs.folder import Run
from mgformer.runs.train import popularity_of

INSIDE: tuple[Callable[[Bundle], Section | None], ...] = (
    inside.coverage,
    attention,
    inside.embedding_map,
    inside.people,
)
"""Sections that need the trained recommender itself."""


def run_page(run: Run) -> Page:
    """Return the report on a run; one of which only figures were kept has fewer sections."""
    bundle = run.bundle()
    if bundle is not None:
        run = run._replace(record=bundle.record)
        if not run.record.popularity:
            floor = popularity_of(bundle, run.record.run_config().evaluation)
            run = run._replace(record=run.record.model_copy(update={"popularity": floor}))
    record = run.record
    sections = [
        measured.headline(run, bundle),
        measured.learning(run),
        measured.metrics(record),
        measured.groups(record, bundle),
        *(section(bundle) for section in INSIDE if bundle is not None),
        measured.config(record),
    ]
    title = f"{record.model} on {record.dataset}"
    return Page(
        title,
        f"seed {record.seed}, {record.fingerprint}",
        [section for section in sections if section],
    )
