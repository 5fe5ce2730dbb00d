"""FROM-A-BARE-CARD.md followed literally on fresh hosts, `make page`: half an hour, so no part of `make test`."""
