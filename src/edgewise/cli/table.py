"""Which commands there are: the panels of `--help`, and of each command its module and what it does.

No module is imported before one of its commands is called, so that help, completion and short questions to a
live system take no time. A test holds each line beside the command's own first sentence.
"""

from typing import NamedTuple


class Verb(NamedTuple):
    """A command: the module of `edgewise.cli` that brings it, and what it does."""

    module: str
    about: str


PANELS: dict[str, dict[str, Verb]] = {
    "Simulate": {
        "init": Verb("init", "Write a scenario to begin with, explained in comments."),
        "scenarios": Verb("verbs", "List the shipped scenarios, by the work that they hold."),
        "check": Verb(
            "check",
            "Say what a scenario has and what is asked of it, who can serve whom, and what nobody can serve.",
        ),
        "policies": Verb("verbs", "List every policy that can be named, by what it decides."),
        "simulate": Verb(
            "verbs",
            "Simulate a scenario under one policy for each decision, and write records, figures and a "
            "report.",
        ),
        "compare": Verb(
            "verbs", "Compare policies of one decision on the same arrivals and noise, paired by seed."
        ),
        "benchmark": Verb(
            "benchmark",
            "Score policies on the scenarios and seeds of their decision, with all it takes to do so again.",
        ),
        "sweep": Verb("sweeps", "Run a scenario at many values of its keys, and say how far it carries."),
        "size": Verb(
            "sweeps",
            "Find the cheapest hardware that surely meets targets: by bisection, or the frontier of two "
            "keys.",
        ),
        "replay": Verb(
            "traffic",
            "Play what was recorded again: in simulation under any policy of any decision, or streams live.",
        ),
        "report": Verb(
            "verbs", "Write figures and report.html of a run folder anew; of two, one page with both."
        ),
        "schema": Verb("verbs", "Print the JSON Schema of scenario files."),
    },
    "Train and reproduce": {
        "train": Verb("train", "Train a policy and export it as ONNX with its card."),
        "reproduce": Verb("", "Measure the claims of a paper, each with its interval and status."),
    },
    "Run live": {
        "up": Verb(
            "live",
            "Run a scenario live here until Ctrl-C: workers, gateways, and a controller that keeps them.",
        ),
        "down": Verb(
            "live", "End everything, and wait for it: workers and gateways finish what they accepted."
        ),
        "status": Verb("state", "Show processes, policy and number of streams."),
        "load": Verb(
            "traffic",
            "Send requests to the live system that is up, or all work of its scenario, and say what became "
            "of it.",
        ),
        "record": Verb(
            "traffic",
            "Write what came, to the live system or to another one, as a scenario with traces, to replay it.",
        ),
        "policy": Verb("switch", "Who decides in the live system."),
        "shadow": Verb("switch", "A second policy that only watches."),
        "streams": Verb("state", "List the streams and what became of their queries."),
        "workers": Verb(
            "state",
            "List workers with the load that each gateway has on them, and replicas with their requests.",
        ),
        "drain": Verb(
            "state",
            "Take a worker out of service: its streams move, it finishes what it accepted, and ends.",
        ),
        "resume": Verb("state", "Start a worker that was drained."),
        "pipelines": Verb(
            "nodes",
            "List the pipelines of the live system, and the nodes of their tasks; show one, or end one.",
        ),
        "nodes": Verb(
            "nodes",
            "Show the ledger: what each node has, and who holds it; and links that flows of pipelines take.",
        ),
        "fail": Verb(
            "nodes",
            "Fail a node: what runs there is killed at once, and all kinds of work hear of it; or cut a "
            "link.",
        ),
        "repair": Verb(
            "nodes",
            "Have a node or link back that failed: its workers and replicas start again, others may take of "
            "it.",
        ),
        "token": Verb(
            "state",
            "Print the operator's token, for other clients of the REST interfaces; the commands here need "
            "none.",
        ),
    },
    "Deferrable jobs, live": {
        "submit": Verb(
            "jobs",
            "Keep a job that starts once, between earliest and latest, where inference leaves room.",
        ),
        "jobs": Verb("jobs", "List deferrable jobs."),
        "job": Verb("jobs", "One deferrable job."),
    },
    "Try on this machine": {
        "demo": Verb(
            "live",
            "Run three tiers live under three policies in turn, and set them beside their simulation.",
        ),
        "clean": Verb("live", "Remove namespaces that a killed system has left, with all that is in them."),
        "profile": Verb(
            "profile", "Measure delay, memory and sustained rate of an ONNX network on this machine."
        ),
        "catalog": Verb(
            "profile",
            "List the variants of a catalog: delay, capacity, accuracy, and whether measured or scaled.",
        ),
    },
    "Parts of a live system": {
        "worker": Verb("standalone", "Serve one ONNX file, by itself, until Ctrl-C."),
        "gateway": Verb("standalone", "Run one gateway, by itself, in front of workers that run already."),
        "pod": Verb(
            "standalone",
            "Be what a pod's environment names, a worker or a task, until told to end; Kubernetes runs it.",
        ),
    },
    "For who develops edgewise": {
        "dev": Verb("dev", "Commands for who develops edgewise, or packs it."),
    },
}
DEV: dict[str, Verb] = {
    "kernels": Verb(
        "dev",
        "Compile beforehand what simulated and live runs use, for a container image or a read-only machine.",
    ),
    "openapi": Verb("dev", "Print the OpenAPI document of an interface."),
    "looks": Verb(
        "", "List every use of test seeds so far, those that are published and those noted in runs."
    ),
    "freeze": Verb(
        "",
        "Fix a scenario, or the setting of a reproduction, for good, before anything is tuned on it.",
    ),
}
"""What stands under `edgewise dev`; without a module: another package brings it."""
VERBS: dict[str, Verb] = {name: verb for verbs in PANELS.values() for name, verb in verbs.items()}
