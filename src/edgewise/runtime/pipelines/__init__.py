"""The data-flow runtime of pipelines (ENTS), on a backend that gives nodes and shaped links.

task      a process for each task: frames in over TCP, the user's function, frames out
live      a pipeline that can run
running   one that does, and what its tasks say
processes the processes of all that run, and their flows
rates     what they do beside the plan
meta      the database of nodes, links, pipelines, tasks and flows, and the monitor that fills it
session   the compute controller: tells the core what happened, starts processes, applies flows, measures

What tasks pass on: `edgewise.workloads.payloads`. Profiler: `edgewise.workloads.pipeline_profiler`.
Network manager: `edgewise.runtime.testbeds.netns`.
Forbidden here: simulating.
"""
