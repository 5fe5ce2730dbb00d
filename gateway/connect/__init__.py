"""Checks that the ends answer, for `check --connect`."""
