"""What anybody can do to a broker without a log-in or rights, and that it goes on for the others (`make abuse`)."""
