"""`edge-broker cluster rebuild`: make new znodes of a cluster from its brokers' disks.

Contains: options, printing the plan, the session with ZooKeeper. Does not contain: the plan and its order of writing
(cluster/rebuild/rebuild_plan.py, cluster/rebuild/rebuild.py).
"""
