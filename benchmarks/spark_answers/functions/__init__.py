"""Which functions Sail answers exactly as Spark does for arguments of which types, found over hostile values."""
