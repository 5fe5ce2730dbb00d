"""Checks of the Kafka broker and of mosquitto, for `check --connect`."""
