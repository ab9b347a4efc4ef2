"""The commands, a file for each kind; loaded when run."""
