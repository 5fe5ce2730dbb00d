"""Where events come from: MQTT, files that grow, the board itself."""
