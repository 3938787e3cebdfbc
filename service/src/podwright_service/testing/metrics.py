"""The metrics of a service, by name and labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from podwright.data.text import did_you_mean


class Metrics:
    """One scrape of a service.

    Args:
        text: The body of `/metrics` in the Prometheus text format.
    """

    def __init__(self, text: str) -> None:
        self.samples: list[Sample] = []
        """All samples, with their `name`, `labels` and `value`."""
        self._names: set[str] = set()
        for family in text_string_to_metric_families(text):
            self.samples += family.samples
            self._names |= {sample.name for sample in family.samples}
            # a counter without labels in use has no sample yet
            if family.type == "counter":
                self._names.add(f"{family.name}_total")
            else:
                self._names.add(family.name)

    def get(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name and these labels; 0 if there are none.

        Args:
            name: The name as in a query: `podwright_runs_total`, `podwright_run_duration_seconds_count`.
            **labels: Some or all of the labels, such as `status="ok"`.

        Raises:
            AssertionError: The service exports no metric of this name.
        """
        if name not in self._names:
            own = sorted(
                each for each in self._names if each.startswith("podwright_")
            )
            raise AssertionError(
                f"Unknown metric '{name}'. {did_you_mean(name, own)}"
            )
        total = 0.0
        for sample in self.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                total += sample.value
        return total
