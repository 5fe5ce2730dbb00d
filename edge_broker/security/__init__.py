"""Authentication and permissions as values, without a socket, a file, a clock or randomness."""
