"""Compares a source with its target, record by record, and accounts for each difference: the `audit` command."""
