"""The peers: other implementations of Hudi, which judge what skep writes and reads and which it is measured beside."""
