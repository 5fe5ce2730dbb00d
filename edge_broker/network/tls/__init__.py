"""TLS contexts, handshakes and transport."""
