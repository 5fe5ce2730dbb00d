"""One end of an audit: a cluster, a file, or the output of a command."""
