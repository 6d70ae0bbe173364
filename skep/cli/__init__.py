"""The command line. Each module registers its commands; what is heavy is imported by the command that needs it."""
