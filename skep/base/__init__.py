"""What everything above shares: names, settings, arguments of calls, texts for people."""
