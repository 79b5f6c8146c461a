"""What Prometheus is told: counts of the decoder, and how long requests wait and take."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specdec.runtime.serving.batch_decoder import BatchDecoder

__all__ = ["Metrics"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class _Totals(Collector):
    """Reads the decoder's own counters when they are asked for."""

    def __init__(self, decoder: BatchDecoder) -> None:
        self._decoder = decoder

    def collect(self) -> Iterator[Metric]:
        """The counters and the present load."""
        decoder, counters = self._decoder, self._decoder.counters
        requests = CounterMetricFamily(
            "specdec_requests", "Requests that have ended, by how.", labels=["finish_reason"]
        )
        for reason, count in sorted(counters.finished.items()):
            requests.add_metric([reason], count)
        yield requests
        for name, value, text in (
            ("prompt_tokens", counters.prompt_tokens, "Tokens of prompts."),
            ("new_tokens", counters.new_tokens, "Tokens generated."),
            ("drafted_tokens", counters.drafted, "Tokens proposed to the target."),
            ("accepted_tokens", counters.accepted, "Drafted tokens that became output."),
            ("rounds", counters.rounds, "Rounds of all requests."),
            ("target_passes", counters.target_passes, "Passes of the target."),
            ("draft_passes", counters.draft_passes, "Passes of the draft model."),
            ("target_rows", counters.target_rows, "Rows of all passes of the target."),
        ):
            yield CounterMetricFamily(f"specdec_{name}", text, value=value)
        running = decoder.num_running
        yield GaugeMetricFamily("specdec_running_requests", "Requests with a slot.", value=running)
        waiting = decoder.num_waiting
        yield GaugeMetricFamily("specdec_waiting_requests", "Requests queued.", value=waiting)


class Metrics:
    """One registry for each server."""

    def __init__(self, decoder: BatchDecoder) -> None:
        """Register the decoder's totals and the histograms."""
        self.registry = CollectorRegistry()
        self.registry.register(_Totals(decoder))
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first text.", _SECONDS
        )
        self.between_tokens = self._histogram(
            "time_per_token_seconds", "Mean time of a token after the first.", _TOKEN_SECONDS
        )
        self.request = self._histogram("request_seconds", "From arrival to end.", _SECONDS)
        self.tokens_per_round = self._histogram(
            "tokens_per_round", "Tokens that a round committed, by request.", (1, 2, 3, 4, 6, 8, 12)
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"specdec_{name}", text, buckets=buckets, registry=self.registry)
