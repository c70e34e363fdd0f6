"""Counters and latencies for Prometheus, and the log: one JSON object per line.

Each worker counts its own requests and labels them with its process id. With several workers, one
of them answers each scrape, and the label keeps their counters apart.
"""

import json
import logging
import os
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram, in seconds."""
MODEL = "model"
"""Where the scope of a request and a log record name the model that answers."""


class Metrics:
    """The figures of one worker."""

    def __init__(self) -> None:
        self.worker, self._registry = str(os.getpid()), CollectorRegistry()
        own: dict[str, Any] = {"namespace": "mgformer", "registry": self._registry}
        labels = ["worker", "method", "path", "status", MODEL]
        self._requests = Counter("requests", "Requests answered.", labels, **own)
        about, labels = "Time to answer a request.", ["worker", "path", MODEL]
        self._seconds = Histogram("request_seconds", about, labels, buckets=BUCKETS, **own)
        self._counted: dict[tuple[str, str, int, str], tuple[Counter, Histogram]] = {}
        labels = ["worker", MODEL, "result"]
        self._reloads = Counter("reloads", "Reloads, by result.", labels, **own)
        about = "Interactions accepted as feedback."
        self._feedback = Counter("feedback", about, ["worker"], **own)
        labels = ["worker", MODEL]
        self._waiting = Gauge("waiting", "Requests in the queue.", labels, **own)
        about = "When the bundle in service was loaded."
        self._loaded = Gauge("loaded_timestamp_seconds", about, labels, **own)
        about = "Recall@20 of the index against exact lists; only with an index."
        self._recall = Gauge("index_recall", about, labels, **own)

    def count_request(
        self, method: str, path: str, status: int, seconds: float, model: str = ""
    ) -> None:
        """Count a request. The path is that of the route, which keeps the labels few.

        The model is empty for requests that no model answers.
        """
        # Finding the figures by their labels takes longer than changing them.
        key = method, path, status, model
        if key not in self._counted:
            self._counted[key] = (
                self._requests.labels(self.worker, method, path, status, model),
                self._seconds.labels(self.worker, path, model),
            )
        requests, latency = self._counted[key]
        requests.inc()
        latency.observe(seconds)

    def count_reload(self, model: str, result: str) -> None:
        """Count a reload: loaded, unchanged or failed."""
        self._reloads.labels(self.worker, model, result).inc()

    def count_feedback(self, number: int) -> None:
        """Count accepted interactions."""
        self._feedback.labels(self.worker).inc(number)

    def show_state(
        self, model: str, waiting: int, loaded_at: float, recall: float | None = None
    ) -> None:
        """Set how many requests of a model wait, when it was loaded, and how good its index is."""
        self._waiting.labels(self.worker, model).set(waiting)
        self._loaded.labels(self.worker, model).set(loaded_at)
        if recall is None:
            with suppress(KeyError):  # of earlier releases, if the bundle before had no index
                self._recall.remove(self.worker, model)
        else:
            self._recall.labels(self.worker, model).set(recall)

    def text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        return generate_latest(self._registry)


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON."""

    FIELDS = ("request_id", "method", "path", "status", "milliseconds", MODEL, "bundle")

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in self.FIELDS if hasattr(record, name)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        # Characters such as U+2028 end a line for some readers: all but ASCII is escaped.
        return json.dumps(entry)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": "mgformer.serving.monitoring.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"mgformer.serving": {"level": "INFO"}},
}
"""For `logging.config.dictConfig` in every process of the service and of its server."""
