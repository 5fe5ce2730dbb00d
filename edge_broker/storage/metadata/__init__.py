"""Formats of topics, configs, registrations, users and losses on disk."""
