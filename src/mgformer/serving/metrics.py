"""Counters and latencies of the service, as text that Prometheus reads.

A process counts what it has answered itself, and labels it with its id: with several workers, each
scrape is answered by one of them, and their counters must not be taken for one.
"""

import os
from bisect import bisect_left
from collections import defaultdict

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram, in seconds."""


class Metrics:
    """What a process has been asked and how long it took."""

    def __init__(self) -> None:
        self.worker = os.getpid()
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.latencies: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self.seconds: dict[str, float] = defaultdict(float)
        self.reloads: dict[str, int] = defaultdict(int)

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request; the path is that of the route, so that names stay few."""
        self.requests[method, path, status] += 1
        self.latencies[path][bisect_left(BUCKETS, seconds)] += 1
        self.seconds[path] += seconds

    def text(self, waiting: int, loaded_at: float) -> str:
        """Return all figures in the exposition format."""
        lines = [
            "# HELP mgformer_requests_total Requests answered.",
            "# TYPE mgformer_requests_total counter",
        ]
        for (method, path, status), count in sorted(self.requests.items()):
            labels = self._labels(method=method, path=path, status=status)
            lines.append(f"mgformer_requests_total{labels} {count}")
        lines += [
            "# HELP mgformer_request_seconds Time to answer.",
            "# TYPE mgformer_request_seconds histogram",
        ]
        for path, counts in sorted(self.latencies.items()):
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                labels = self._labels(path=path, le=bound)
                lines.append(f"mgformer_request_seconds_bucket{labels} {total}")
            labels = self._labels(path=path)
            lines.append(f"mgformer_request_seconds_sum{labels} {self.seconds[path]:.6f}")
            lines.append(f"mgformer_request_seconds_count{labels} {total}")
        lines += [
            "# HELP mgformer_reloads_total Attempts to take up a bundle, by how they ended.",
            "# TYPE mgformer_reloads_total counter",
            *(
                f"mgformer_reloads_total{self._labels(result=result)} {count}"
                for result, count in sorted(self.reloads.items())
            ),
            "# HELP mgformer_waiting Requests that wait to be computed.",
            "# TYPE mgformer_waiting gauge",
            f"mgformer_waiting{self._labels()} {waiting}",
            "# HELP mgformer_loaded_timestamp_seconds When the bundle in service was loaded.",
            "# TYPE mgformer_loaded_timestamp_seconds gauge",
            f"mgformer_loaded_timestamp_seconds{self._labels()} {loaded_at:.3f}",
        ]
        return "\n".join([*lines, ""])

    def _labels(self, **labels: object) -> str:
        named = {"worker": self.worker, **labels}
        return "{" + ",".join(f'{name}="{value}"' for name, value in named.items()) + "}"
