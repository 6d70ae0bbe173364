"""What commits and files of a table come to, as plain values: for commands and for procedures."""
