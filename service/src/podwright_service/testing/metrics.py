"""What `/metrics` says, looked up by name and labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from podwright.text import did_you_mean


class Metrics:
    """One scrape of a service.

    Args:
        text: What it answered, in Prometheus' text format.
    """

    def __init__(self, text: str) -> None:
        self.samples: list[Sample] = []
        """All of them, with their `name`, `labels` and `value`."""
        self._names: set[str] = set()
        for family in text_string_to_metric_families(text):
            self.samples += family.samples
            self._names |= {sample.name for sample in family.samples}
            # a counter that nothing was counted in has no sample yet
            self._names |= {f"{family.name}_total"} if family.type == "counter" else {family.name}

    def get(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that have these labels; 0 if there are none.

        Args:
            name: As a query would have it: `podwright_runs_total`, `podwright_run_duration_seconds_count`.
            **labels: Those that matter, such as `status="ok"`.

        Raises:
            AssertionError: The service exports nothing of this name.
        """
        if name not in self._names:
            ours = sorted(one for one in self._names if one.startswith("podwright_"))
            raise AssertionError(f"There is no metric '{name}'. {did_you_mean(name, ours)}")
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
        )
