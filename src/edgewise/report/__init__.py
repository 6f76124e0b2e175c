"""Records to tables, statistics, plots and HTML; the same for simulated and live runs.

schema      the columns of the two tables
records     run folders: write, read
summary     shares per policy, seed and application
statistics  paired comparisons
figures     plots
html        one self-contained page

Forbidden here: running anything. Reports read records only.
"""
