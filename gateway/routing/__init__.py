"""Routes from MQTT topics to Kafka topics, and the state of each route."""
