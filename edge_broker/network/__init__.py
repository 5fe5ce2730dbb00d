"""The shell: sockets, timers, threads and metrics around synchronous, deterministic handlers and their store."""
