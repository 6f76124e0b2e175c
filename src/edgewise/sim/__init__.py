"""Simulation: the truth that policies never see, and the loop that drives the core."""
