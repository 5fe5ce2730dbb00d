"""`python -m edge_broker` is `edge-broker`."""

import sys

from edge_broker.cli import main

sys.exit(main())
