"""The Java runtime, the jars of the connector, and a standalone cluster."""
