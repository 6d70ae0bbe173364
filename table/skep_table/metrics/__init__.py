"""What commits and services come to, as Hudi's metrics, in its reporters; steps as spans of OpenTelemetry."""

from skep_table.metrics.observing import observed, traced, unobserved
from skep_table.metrics.options import METRICS_ON

__all__ = ["METRICS_ON", "observed", "traced", "unobserved"]
