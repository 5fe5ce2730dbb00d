"""One file per Kafka API, and nothing else: a request comes in, an outcome goes out; nothing here ever awaits."""
