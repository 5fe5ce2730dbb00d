"""A small synchronous client of any Kafka broker: what the tools of the command line ask, nothing that changes it."""
