"""What commits and services come to, as Hudi's metrics, in its reporters; steps as spans of OpenTelemetry."""

from skep_table.metrics.observing import observed as observed
from skep_table.metrics.observing import traced as traced
from skep_table.metrics.observing import unobserved as unobserved
from skep_table.metrics.options import METRICS_ON as METRICS_ON
