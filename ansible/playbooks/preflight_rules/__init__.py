"""What preflight looks for, a module for each kind of thing; ../action_plugins/preflight.py runs them all."""
