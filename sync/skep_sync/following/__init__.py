"""Metastores that follow other writers: timelines watched, callbacks received, what is pending worked off."""
