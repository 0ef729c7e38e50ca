"""Metrics for Prometheus: `Metrics(engine)`.

It needs the extra `metrics`, which `server` includes.
"""

try:
    from holdfast.hosts.metrics.metrics import Exposition, Metrics
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    raise ModuleNotFoundError(
        'metrics need prometheus-client: pip install "holdfast[metrics]"', name=error.name
    ) from None

__all__ = ["Exposition", "Metrics"]
