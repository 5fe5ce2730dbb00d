"""Connections of all parts to Kafka: properties, TLS, SASL, connection errors."""
