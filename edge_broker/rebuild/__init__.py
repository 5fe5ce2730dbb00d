"""`edge-broker cluster rebuild`: the znodes of a cluster anew, from what its boards' disks have.

Contains: options, printing the plan, the session with ZooKeeper. Does not contain: the plan and its order of writing
(cluster/rebuild/rebuild_plan.py, cluster/rebuild/rebuild.py).
"""
