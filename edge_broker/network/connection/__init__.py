"""One client connection: frames, order, memory."""
