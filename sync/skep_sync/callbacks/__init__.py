"""Commit callbacks: each commit is sent to an HTTP service, a Kafka topic or a function, at least once."""

from skep_sync.callbacks.deliver import CallbackWarning as CallbackWarning
from skep_sync.callbacks.deliver import Delivery as Delivery
from skep_sync.callbacks.deliver import callback_hook as callback_hook
from skep_sync.callbacks.deliver import deliver as deliver
from skep_sync.callbacks.deliver import undelivered as undelivered
from skep_sync.callbacks.senders import CallbackMessage as CallbackMessage
