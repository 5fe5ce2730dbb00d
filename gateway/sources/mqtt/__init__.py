"""MQTT: sessions, messages, what mosquitto says of its losses."""
