"""The state of one partition between source and target. Pure, without a client."""
