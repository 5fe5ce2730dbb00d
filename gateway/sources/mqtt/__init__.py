"""MQTT: sessions, messages, and mosquitto's own reports of losses."""
