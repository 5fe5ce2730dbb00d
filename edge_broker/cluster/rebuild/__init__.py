"""Makes the znodes of a cluster again from the disks of its boards."""
