"""What starts, runs and ends the processes of a live system."""
