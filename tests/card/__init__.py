"""A card made, flashed and booted in an emulator: `make card`. Minutes long, so no part of `make test`."""
