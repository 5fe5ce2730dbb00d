"""Who somebody is and what he may do: log-ins and rights as values, without a socket, a file, a clock or chance."""
