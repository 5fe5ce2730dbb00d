"""edge_broker: a light broker that speaks the Kafka protocol; DESIGN.md says how a produce and a fetch travel."""
