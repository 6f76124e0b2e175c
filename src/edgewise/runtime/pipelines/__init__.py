"""The data-flow runtime of pipelines (ENTS), on a backend that gives nodes and shaped links.

task      a process for each task: frames in over TCP, the user's function, frames out
live      a pipeline that can run
running   one that does, and what its tasks say
processes the processes of all that run, and their flows
rates     what they do beside the plan

Who decides, keeps and watches them: `edgewise.runtime.controller.pipelines`.
What tasks pass on: `edgewise.workloads.payloads`. Profiler: `edgewise.workloads.pipeline_profiler`.
Network manager: `edgewise.runtime.testbeds.flows`.
Forbidden here: simulating.
"""
