"""A broker in this process, for tests of what is built on it: simulated disk, clock, loop and workers.

Nothing runs by itself: no thread, no socket, no time that passes. So every interleaving can be made, and made again.

    from edge_broker.protocol import api
    from edge_broker.protocol.messages.metadata import MetadataRequest
    from edge_broker.testing.site import Site

    site = Site({"num.partitions": 3})          # broker keys as in broker.toml
    site.topic("readings")
    client = site.client()
    answer = client.ask(api.METADATA, MetadataRequest(topics=None))
    site = site.reopen("cut")                   # the power goes; "kill" ends the process alone, "stop" is clean

| to do | call |
|---|---|
| ask and let everything work that can without time passing | `client.ask(key, request)` |
| send, without anybody working on it | `client.send(key, request)`, later `client.answers()` |
| the loop's callback, a worker's job, a report | `site.loop.step()`, `site.workers["disk"].work()`, `.report_done()` |
| let time pass | `site.loop.advance(ms)` |
| a disk that fails, is cold, is full, loses power at a step | `site.disk.fault`, `.cold`, `.fill()`, `.crash_at` |
| look at the data directory as `edge-broker log check` does | `edge_broker.testing.checked.findings(site.disk)` |

Contains: the fakes, each of the shape that the product asks for, and what puts them together. Does not contain:
anything that `serve` imports from here, or a test. The seeded programs that drive them are tests/simulation.
"""
