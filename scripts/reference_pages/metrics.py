"""Write the page of the metrics from their table."""

from __future__ import annotations

from collections.abc import Iterable

from compatgate.web.metric_table import GATE, WORKER, MetricSpec

HEAD = """# Metrics

`make docs` writes this page from the table of metrics. [Monitor](../how-to/monitor.md) says how to
scrape them, and the [runbook](../how-to/runbook.md) what to do about each alert.

Several worker processes of one gate add up their counters and histograms. A scrape waits for no
database: what the database keeps is read in the background, and the metric
`compatgate_stored_figures_age_seconds` says how old it is. It has no sample before the first
reading.

The labels are bounded. `target` names the first targets by name (`serve --metrics-targets`, 100
unless set), the others are `other`, and `none` is a question about a pool. `namespace` names the
first 50 of each process. Rules, routes and reasons are fixed lists.
"""
_KINDS = (("Counters", "counter"), ("Histograms", "histogram"), ("Gauges", "gauge"))


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for title, kind in _KINDS:
        specs = [spec for spec in GATE if spec.type == kind]
        parts.append(f"## {title} of a gate\n\n{_table(specs)}")
    about = "`compatgate worker --metrics-port` serves these."
    parts.append(f"## Metrics of a worker\n\n{about}\n\n{_table(WORKER)}")
    return "\n".join(parts)


def _table(specs: Iterable[MetricSpec]) -> str:
    rows = ["| metric | labels | meaning |", "|---|---|---|"]
    for spec in specs:
        name = spec.exported[0].removesuffix("_bucket")
        labels = ", ".join(f"`{label}`" for label in spec.labels) or "-"
        stored = " Kept by the database." if spec.stored else ""
        rows.append(f"| `{name}` | {labels} | {spec.meaning}{stored} |")
    return "\n".join(rows) + "\n"
