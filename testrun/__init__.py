"""How the suite is run: which cases, by which worker, in which order, and what a run prints of it. A pytest plugin."""
