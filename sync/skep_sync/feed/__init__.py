"""The changes of a table, commit by commit, to a receiver: a stream, a folder, an HTTP service or a Kafka topic."""

from skep_sync.feed.deliver import Fed, feed
from skep_sync.feed.receivers import Receiver, receiver_of

__all__ = ["Fed", "Receiver", "feed", "receiver_of"]
