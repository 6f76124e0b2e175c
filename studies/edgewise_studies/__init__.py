"""Honest numbers: the papers' experiments and trainers, on what edgewise offers to anyone.

claims      a finding and a criterion make a claim that holds, fails or is inconclusive
frozen      scenarios whose content may not change any more, and the log of every look at test seeds
robustness  the same comparison at ±20 % capacity, network delay and load
run         what a reproduction receives, the registry, and how one is carried out
papers      the reproductions, one file each
training    the papers' trainers, beside the general one of `edgewise.learn`
cli         `edgewise reproduce`, `looks`, `freeze`, and what `edgewise train` trains

edgewise imports nothing of this. A reproduction calls `edgewise.api` or a simulator.
"""
