"""The split models of a scenario as what is planned and simulated: networks are read and contracted."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgewise.errors import EdgewiseError, ProfileError
from edgewise.model.grammar.pipelines import GraphSpec
from edgewise.model.graphs import graph_of
from edgewise.model.scenario import Scenario
from edgewise.policies.split import Contraction, QueryClass, SplitProgram, contract, limit_branches
from edgewise.policies.split.layout import LayoutProgram, program_of

if TYPE_CHECKING:
    import onnx

    from edgewise.model.grammar.scenario import TelemetrySpec
    from edgewise.model.work import TaskGraph


@dataclass(frozen=True, slots=True)
class Splitting:
    """What is split.

    Attributes:
        program: job classes, servers and links.
        models: of each graph the network, where it is read from one.
        contracted: of each graph its operators, contracted.
    """

    program: SplitProgram | LayoutProgram
    models: "tuple[onnx.ModelProto | None, ...]"
    contracted: tuple[Contraction, ...]

    @property
    def overload(self) -> str:
        """What to change where equal servers are always busy, else nothing."""
        of = self.program
        if isinstance(of, LayoutProgram):
            return ""
        rates = zip(of.rates_qps, of.classes, strict=True)
        work_ops = sum(float(rate) * sum(task.work_ops for task in each.graph.tasks) for rate, each in rates)
        if work_ops < of.power_ops * of.servers:
            return ""
        return (
            f"{sum(of.rates_qps):g} queries/s need {work_ops / of.power_ops:.3g} servers and there are "
            f"{of.servers}: lower graphs.rate_qps, or give more nodes or speed_ops"
        )


class GraphsToRun(NamedTuple):
    """What is split, how many queries come, and how news of servers come, if they do."""

    program: SplitProgram | LayoutProgram
    queries: int
    telemetry: "TelemetrySpec | None"


def splitting(scenario: Scenario) -> Splitting:
    """Read and contract the graphs of a scenario, and see its servers as split policies do.

    Raises:
        EdgewiseError: a network cannot be read, or servers and links cannot be seen this way.
    """
    read = [_contracted(each) for each in scenario.graphs]
    rates = [each.rate_qps for each in scenario.graphs]
    classes = [QueryClass(small.graph, rate) for (_, small), rate in zip(read, rates, strict=True)]
    program = program_of(scenario.topology, classes)
    return Splitting(program, tuple(model for model, _ in read), tuple(small for _, small in read))


def _contracted(split_model: GraphSpec) -> "tuple[onnx.ModelProto | None, Contraction]":
    """The network, where there is one, and its operators, contracted."""
    model, graph = (None, graph_of(split_model)) if split_model.operators else _graph(split_model)
    small = contract(graph)
    return model, small if split_model.branches is None else limit_branches(small, split_model.branches)


def _graph(split_model: GraphSpec) -> "tuple[onnx.ModelProto, TaskGraph]":
    """The network and its operators."""
    try:
        from edgewise.profiling.dags import LIGHT, light_file, task_graph
        from edgewise.profiling.gpt2 import gpt2
        from edgewise.profiling.operators import read
    except ImportError as error:
        raise EdgewiseError(f"reading networks needs {error.name}: pip install 'edgewise[live]'") from error
    network = str(split_model.network)
    file = light_file(network) if network in LIGHT else Path(network)
    if network != "gpt2" and not file.is_file():
        names = ", ".join(LIGHT)
        raise EdgewiseError(f"graphs: network {network!r}: no such file; known by name: gpt2, {names}")
    model = gpt2() if network == "gpt2" else read(file)
    try:
        shapes = {name: list(sizes) for name, sizes in split_model.shapes.items()}
        return model, task_graph(model, Path(network).stem, shapes)
    except ProfileError as error:
        hint = " in graphs.shapes, as shapes: {x: [1, 3, 224, 224]}"
        said = f"{error}{hint if str(error).endswith('give its shape') else ''}"
        raise ProfileError(f"{network}: {said}") from error
