"""`make bench-mirror`: edge-mirror beside MirrorMaker 2 over emulated links.

| module | what it is |
|---|---|
| cells, levels, data | data: what is measured, what it should come to, what is moved |
| sums, table, plot | pure: arithmetic, the table, the drawing |
| lab, subjects, ends | brokers and link, the two that are compared, what goes in and comes out |
| bulk, trickle, faults | the measurements |
| results, __main__ | the file of figures; the command line and the order |

edge-mirror is driven by its command line, and asked by its HTTP port: nothing of it may be imported here.
"""
