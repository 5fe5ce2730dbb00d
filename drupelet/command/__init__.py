"""The command line of every part: arguments, interrupts, checks of a configuration."""
