"""The command line. `main` lists the commands of each module; a command imports what is heavy when it needs it."""
