"""The shell: sockets, timers, threads and metrics around pure handlers and a synchronous store."""
