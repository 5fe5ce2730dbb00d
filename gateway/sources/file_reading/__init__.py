"""One open file: lines, compression, rotation."""
