"""Metrics for Prometheus under TensorFlow Serving's names, so that the same dashboards fit both."""

import threading
from collections import Counter
from collections.abc import Iterator

import prometheus_client
from prometheus_client.core import Metric

_PREFIX = ":tensorflow:serving:"
_MICROSECONDS = [10 * 1.8**power for power in range(33)]  # as the server's, up to 20 minutes
_EXAMPLES = [2**power for power in range(15)]


class Metrics:
    """Counts and durations of requests, and the process' resources; each server has its own."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()
        self._registry = prometheus_client.CollectorRegistry()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._latency = prometheus_client.Histogram(
            f"{_PREFIX}request_latency",
            "Distribution of wall time (in microseconds) of requests.",
            ["model_name", "API", "entrypoint"],
            buckets=_MICROSECONDS,
            registry=self._registry,
        )
        self._examples = prometheus_client.Histogram(
            f"{_PREFIX}request_example_counts",
            "The number of rows of a request.",
            ["model"],
            buckets=_EXAMPLES,
            registry=self._registry,
        )
        self._registry.register(self)
        prometheus_client.ProcessCollector(registry=self._registry)
        prometheus_client.GCCollector(registry=self._registry)

    def add(self, model: str, entrypoint: str, status: str, seconds: float, rows: int) -> None:
        """Counts a request to a served model; `rows` is 0 if it was refused."""
        with self._lock:
            self._requests[model, status] += 1
        if status == "OK":
            self._latency.labels(model, "predict", entrypoint).observe(1e6 * seconds)
            self._examples.labels(model).observe(rows)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics. (The library's own counters would add `_total` to the names.)"""
        metric = Metric(f"{_PREFIX}request_count", "The total number of requests.", "unknown")
        with self._lock:
            for (model, status), count in self._requests.items():
                metric.add_sample(metric.name, {"model_name": model, "status": status}, count)
        yield metric

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self._registry)
