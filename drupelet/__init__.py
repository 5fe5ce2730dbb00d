"""Code that all parts share. All parts import it; it imports no part, and only the standard library."""
