"""Matches both ends of an audit and accounts for what differs. Pure."""
