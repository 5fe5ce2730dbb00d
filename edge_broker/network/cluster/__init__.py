"""The runtime of a cluster member: ZooKeeper, links to other brokers, jobs of replicas."""
