"""Kafka's messages, a module per API, each declared once with its versions. Only declarations live here."""
