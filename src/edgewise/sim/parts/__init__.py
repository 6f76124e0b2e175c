"""One file for each kind of work on the joint clock."""
