"""From the wanted entry, the present one and the timeline to the steps of a plan."""
