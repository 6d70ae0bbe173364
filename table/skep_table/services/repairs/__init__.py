"""Repairs by name, those of Hudi's shell: each returns what it found, and with `plan` changes nothing."""
