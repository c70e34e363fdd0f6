"""The log of a run for MLflow. MLFLOW_TRACKING_URI says where it goes; MLflow has a default."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgformer.data.formats.values import first_line
from mgformer.errors import ConfigError

EXPERIMENT = "mgformer"
FOLDER_TAG = "mgformer.folder"
LONGEST_VALUE = 500
"""Characters of an option that MLflow stores."""
logger = logging.getLogger("mgformer")


class MlflowWriter:
    """Sends figures to a run of MLflow. If the server fails, it says so once and goes on."""

    def __init__(self, client: Any, run: str) -> None:
        """Write to a run that exists."""
        self._client, self._run, self._failed = client, run, False

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Log a metric; MLflow allows no @ in names."""
        if not self._failed:
            self._try(
                self._client.log_metric, self._run, tag.replace("@", "_at_"), value, step=step
            )

    def close(self) -> None:
        """Mark the run as finished."""
        if not self._failed:
            self._try(self._client.set_terminated, self._run)

    def _try(self, send: Any, *values: Any, **named: Any) -> None:
        try:
            send(*values, **named)
        except Exception as error:  # a server may fail in any way, and training must go on
            self._failed = True
            logger.warning("MLflow gets no more figures: %s; going on", first_line(error))


def mlflow_writer(folder: Path, about: Mapping[str, str], *, resume: bool) -> MlflowWriter:
    """Start a run in MLflow for the run in `folder`, or continue the one of an interrupted run."""
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise ConfigError(
            "train.mlflow: the package mlflow is not installed; pip install 'mgformer[mlflow]'"
        ) from None
    place = str(folder.resolve())
    try:
        client = MlflowClient()
        experiment = client.get_experiment_by_name(EXPERIMENT)
        number = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
        if resume:
            for run in client.search_runs([number]):  # the latest first
                if run.data.tags.get(FOLDER_TAG) == place:
                    client.update_run(run.info.run_id, status="RUNNING")
                    return MlflowWriter(client, run.info.run_id)
        run = client.create_run(number, tags={FOLDER_TAG: place}, run_name=folder.name)
        for name, value in about.items():
            client.log_param(run.info.run_id, name, value[:LONGEST_VALUE])
    except Exception as error:  # before training: refuse in one line
        raise ConfigError(
            f"train.mlflow: MLflow cannot start a run ({first_line(error)}); check"
            " MLFLOW_TRACKING_URI"
        ) from None
    return MlflowWriter(client, run.info.run_id)
