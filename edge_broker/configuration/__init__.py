"""The broker's configuration: keys, listeners, settings of topics, the ensemble."""
