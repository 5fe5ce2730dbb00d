"""Checks of preflight, a module for each kind of finding; ../action_plugins/preflight.py runs them all."""
