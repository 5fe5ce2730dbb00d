"""One file per Kafka API: a request comes in, a `Reply`, `Wait`, `Park` or `Do` goes out; nothing here ever awaits."""
