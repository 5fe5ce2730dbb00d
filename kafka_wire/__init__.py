"""A small asyncio client of any Kafka broker that keeps several requests under way, and what is done to record batches.

For who carries records: the mirror's hot path, the gateway's producer. Decides nothing of what is sent or read.
"""
