"""The data-flow runtime of pipelines (ENTS), on a backend that gives nodes and shaped links.

task      a process for each task: frames in over TCP, the user's function, frames out
wire      frames with their length before them, counters, and the token bucket of the `local` backend
live      a pipeline that can run: its model, its code and its frames
meta      the database of nodes, links, pipelines, tasks and flows; survives every process
monitor   the device and task monitors: once a second into that database
rates     a pipeline that runs, measured beside the plan
session   the scheduler and compute controller: decides, starts processes, applies flows, measures

Profiler: `edgewise.workloads.pipeline_profiler`. Network manager: `edgewise.runtime.testbeds.shaping`.
Forbidden here: simulating.
"""
