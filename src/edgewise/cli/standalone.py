"""Where servers listen and who may ask; commands that run one worker or one gateway by themselves.

Everybody on a machine may read the command lines of its processes, so no secret is an option: secrets come
from files or the environment.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from edgewise import config
from edgewise.cli.commands import verbs
from edgewise.cli.output import note, out
from edgewise.errors import EdgewiseError
from edgewise.model.left_out import not_run
from edgewise.policies import USUAL

app = verbs()
VARIABLE = "EDGEWISE_TOKEN"
Host = Annotated[
    str, typer.Option(help="Address to listen on; others than this machine's own need a token, or --open.")
]
GrpcPort = Annotated[int | None, typer.Option(help="Also serve gRPC; 0 takes a free port.", min=0, max=65535)]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with the token that clients must show, or a line NAME TOKEN for each; or set {VARIABLE}."
    ),
]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate chain, PEM: clients are served with TLS.")]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key, PEM.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--server-name",
        help="Name that clients call this machine by, besides localhost and addresses; repeatable.",
    ),
]
Otlp = Annotated[
    str | None, typer.Option(help="Collector for OpenTelemetry traces, as http://localhost:4318.")
]
Open = Annotated[bool, typer.Option("--open", help="Other machines may ask without a token.")]


def client_token(file: Path | None) -> str | None:
    """The token of a file, else of the environment, which is then forgotten: processes to come see it not.

    Raises:
        EdgewiseError: the file cannot be read, or holds no token.
    """
    found = os.environ.pop(VARIABLE, None)
    return found if file is None else read_tokens(file)


def read_tokens(file: Path) -> str:
    """The tokens of a file: one alone, or a line "NAME TOKEN" for each client.

    Raises:
        EdgewiseError: it cannot be read, or a line is neither.
    """
    lines = [line.split() for line in read_text(file, "--token-file").splitlines() if line.strip()]
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0]
    for number, words in enumerate(lines, 1):
        if len(words) != 2 or not words[0].isprintable():
            raise EdgewiseError(f"--token-file {file}, line {number}: must be a client's name and its token")
    for what, each in (("names", 0), ("tokens", 1)):
        if len({words[each] for words in lines}) != len(lines) or not lines:
            raise EdgewiseError(f"--token-file {file}: must hold {what} that differ, one on each line")
    return "\n".join(map(" ".join, lines))


def read_token(file: Path, option: str) -> str:
    """The token that a file holds, on one line.

    Raises:
        EdgewiseError: it cannot be read, or holds none.
    """
    token = read_text(file, option).strip()
    if not token or len(token.split()) != 1:
        raise EdgewiseError(f"{option} {file}: must hold one token and nothing else")
    return token


def read_text(file: Path, option: str) -> str:
    """What a file holds.

    Raises:
        EdgewiseError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise EdgewiseError(f"{option} {file}: cannot be read: {why}; check the path") from None


@app.command(epilog="Example: edgewise worker my-model.onnx --port 8001")
def worker(
    file: Annotated[Path, typer.Argument(help="An ONNX file.")],
    name: Annotated[str | None, typer.Option(help="Its name in URLs; that of the file by default.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8001,
    host: Host = "127.0.0.1",
    grpc_port: GrpcPort = None,
    max_batch: Annotated[int, typer.Option(min=1)] = 1,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    names: Names = None,
    anyone: Open = False,
    otlp: Otlp = None,
) -> None:
    """Serve one ONNX file, by itself, until Ctrl-C."""
    from edgewise.runtime.process import serving
    from edgewise.runtime.watch import collector, logs
    from edgewise.runtime.worker.onnx_model import OnnxModel
    from edgewise.runtime.worker.worker import LiveWorker

    model = OnnxModel(name or file.stem, file, file.parent)
    where = serving.Listen(
        host, port, grpc_port, token=client_token(token_file), certificate=tls_cert, key=tls_key,
        names=tuple(names or ()), open=anyone,
    )  # fmt: skip
    logs.log_json()
    made = LiveWorker(model, max_batch=max_batch, tracing=collector.tracing_to(otlp, model.name))
    serving.run(serving.run_worker(made, where))


@app.command(
    epilog="Example: edgewise gateway here.yaml --worker my-model-cpu@node=http://127.0.0.1:8001/v2/models/my-model"
)
def gateway(
    scenario: Annotated[str, typer.Argument(help="Describes the workers.")],
    workers: Annotated[
        list[str],
        typer.Option(
            "--worker",
            help="NAME=URL of each worker of the scenario; a URL may end in /v2/models/MODEL, "
            "else the model is called as its variant.",
        ),
    ],
    policy: Annotated[str, typer.Option(help="A name, or file.py:Class.")] = USUAL["dispatch"],
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    host: Host = "127.0.0.1",
    grpc_port: GrpcPort = None,
    token_file: TokenFile = None,
    operator_file: Annotated[
        Path | None,
        typer.Option("--operator-token-file", help="File with the token for /v1/admin; closed without it."),
    ] = None,
    workers_file: Annotated[
        Path | None,
        typer.Option("--workers-token-file", help="File with the token that workers want to see."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="Authority of the workers' certificates, PEM; the system's by default."),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    names: Names = None,
    anyone: Open = False,
    otlp: Otlp = None,
) -> None:
    """Run one gateway, by itself, in front of workers that run already."""
    from edgewise.runtime import http
    from edgewise.runtime.gateway import standalone
    from edgewise.runtime.process import serving
    from edgewise.runtime.watch import collector, logs

    loaded = config.load_scenario(scenario)
    note(not_run(loaded, ("streams",), "edgewise gateway"))
    shown = read_token(workers_file, "--workers-token-file") if workers_file else None
    trust = http.tls_client(tls_ca) if tls_ca else None
    made = standalone.gateway(loaded, policy, workers, shown, trust)
    made.tracing = collector.tracing_to(otlp, "gateway")
    operators = (read_token(operator_file, "--operator-token-file"),) if operator_file else ()
    where = serving.Listen(
        host,
        port,
        grpc_port,
        client_token(token_file),
        operators,
        tls_cert,
        tls_key,
        tuple(names or ()),
        anyone,
        loaded.live.bodies_bytes,
    )
    logs.log_json()
    serving.run(serving.run_gateway(made, where, loaded.telemetry.period_s))


@app.command(epilog="Example: edgewise pod --ask http://edgewise:8000")
def pod(
    folder: Annotated[
        Path | None,
        typer.Option("--make-folder", help="Instead: make a folder of this user's own in a volume, and end."),
    ] = None,
    gateway: Annotated[
        str | None, typer.Option("--ask", help="Instead: send the gateway at a URL one query, and end.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Of that query, or a service; the first by default.")
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            "--probe",
            help="Instead: measure the ways to the other probes, which HOST:PORT stands for, and answer "
            "at this port, until told to end.",
        ),
    ] = None,
    token_file: TokenFile = None,
    anyone: Open = False,
) -> None:
    """Be what a pod's environment names, a worker or a task, until told to end; Kubernetes runs it."""
    if folder is not None:
        from edgewise.runtime.process.pod import make_folder

        return make_folder(folder)
    if gateway is not None:
        from edgewise.runtime import http
        from edgewise.runtime.clients.one_query import answer_of

        found = answer_of(gateway, http.one_token(client_token(token_file)), task)
        return out.print(f"{found.task}: answered, {found.size_bytes} bytes", highlight=False)
    if probes is not None:
        from edgewise.runtime.process.probing import be_probe

        return be_probe(probes, client_token(token_file), anyone)
    from edgewise.runtime.process.pod import main

    return main()
