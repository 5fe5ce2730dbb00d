"""Which message goes to which topic, and the state of each route."""
