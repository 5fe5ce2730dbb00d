"""The only folder of storage that touches the operating system; small state files."""
