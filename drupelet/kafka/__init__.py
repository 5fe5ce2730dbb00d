"""How every part connects to Kafka: properties, TLS, SASL, errors of connections."""
