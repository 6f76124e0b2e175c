"""Records to tables, statistics, plots and HTML; the same for simulated and live runs.

schema      the columns of the two tables
records     run folders: write, read
summary     shares per policy, seed and application
statistics  paired comparisons
use         who used what: nodes, links, workers; quantiles of delays
figures     plots
timeline    who held what over time
style       of all figures
site        a picture of the places, with their loads
over_time   lateness, refusals, jobs
words       what a run was and what came of it, in sentences
sections    rows of the tables of a page
html        one self-contained page
beside      one page of two runs

Forbidden here: running anything. Reports read records only.
"""
