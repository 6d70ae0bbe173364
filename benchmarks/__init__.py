"""What measures skep beside others. `./dev bench upsert | read`; `benchmarks.peers` runs the others, for the tests too."""
