"""What measures skep beside others. `benchmarks.peers` runs the others, for the tests too."""
