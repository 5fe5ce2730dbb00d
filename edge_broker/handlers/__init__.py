"""One file per Kafka API, and nothing else: a request comes in, an outcome goes out; nothing here ever awaits.

To serve another API, add its file here and its messages to `protocol/messages/`: `APIS` and `HANDLERS` have it then.
"""

from importlib import import_module
from pkgutil import iter_modules

from edge_broker.broker.api import APIS, HANDLERS

__all__ = ["APIS", "HANDLERS"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
