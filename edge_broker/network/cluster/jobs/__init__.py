"""Jobs on the logs of a cluster member: topics, followers, truncations, and the space that they have."""
