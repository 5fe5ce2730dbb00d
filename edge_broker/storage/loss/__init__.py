"""Records a loss, then quarantines the range."""
