"""Honest numbers: claims with intervals, test seeds kept apart, every look at them recorded.

seeds       which seeds are for training, validation and testing
claims      a finding and a criterion make a claim that holds, fails or is inconclusive
frozen      scenarios whose content may not change any more
looks       the log of every look at test seeds
robustness  the same comparison at ±20 % capacity, network delay and load
run         what a reproduction receives, the registry, and how one is carried out
cases       the reproductions, one file each

Forbidden here: scheduling and simulating. A reproduction calls `edgewise.api` or a simulator.
"""
