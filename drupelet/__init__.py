"""What every part writes again, once. All parts import it; it imports none, and the standard library alone."""
