"""Commit callbacks: each commit is sent to an HTTP service, a Kafka topic or a function, at least once."""

from skep_sync.callbacks.deliver import CallbackWarning, Delivery, callback_hook, deliver, undelivered
from skep_sync.callbacks.senders import CallbackMessage

__all__ = ["CallbackMessage", "CallbackWarning", "Delivery", "callback_hook", "deliver", "undelivered"]
