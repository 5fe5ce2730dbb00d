"""Values of a partition and a cluster: states, their lines, replicas, ISR."""
