"""The peers: independent implementations of Hudi that judge what skep writes and reads, and that it is measured beside."""
