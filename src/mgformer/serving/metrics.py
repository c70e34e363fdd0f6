"""Counters and latencies of the service for Prometheus.

Each worker counts its own requests and labels them with its process id. With several workers, one
of them answers each scrape, and the label keeps their counters apart.
"""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram, in seconds."""


class Metrics:
    """The figures of one worker."""

    def __init__(self) -> None:
        self.worker, self.registry = str(os.getpid()), CollectorRegistry()
        self._requests = Counter(
            "mgformer_requests_total",
            "Requests answered.",
            ["worker", "method", "path", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "mgformer_request_seconds",
            "Time to answer a request.",
            ["worker", "path"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._reloads = Counter(
            "mgformer_reloads_total",
            "Attempts to load another bundle, by result.",
            ["worker", "result"],
            registry=self.registry,
        )
        self._waiting = Gauge(
            "mgformer_waiting", "Requests in the queue.", ["worker"], registry=self.registry
        )
        self._loaded = Gauge(
            "mgformer_loaded_timestamp_seconds",
            "When the bundle in service was loaded.",
            ["worker"],
            registry=self.registry,
        )

    def count_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. The path is that of the route, which keeps the labels few."""
        self._requests.labels(self.worker, method, path, status).inc()
        self._seconds.labels(self.worker, path).observe(seconds)

    def count_reload(self, result: str) -> None:
        """Count a reload: loaded, unchanged or failed."""
        self._reloads.labels(self.worker, result).inc()

    def text(self, waiting: int, loaded_at: float) -> bytes:
        """Return all figures in the text format of Prometheus."""
        self._waiting.labels(self.worker).set(waiting)
        self._loaded.labels(self.worker).set(loaded_at)
        return generate_latest(self.registry)
