"""Writing the metadata table in step with the data table: made, changed with each action, compacted, dropped.

For the holder of the data table's lock, but for `roll_back_delta_commit` and `write_below` (format guide 7 and 16).
"""
