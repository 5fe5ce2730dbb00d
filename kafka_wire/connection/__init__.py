"""One connection to a broker: TCP, log-in, frames, reconnecting."""
