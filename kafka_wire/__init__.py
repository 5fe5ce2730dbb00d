"""An asyncio client of any Kafka broker, with several requests in flight per connection, and operations on batches.

The mirror's hot path and links between brokers use it. Does not contain: decisions on what is sent or read.
"""
