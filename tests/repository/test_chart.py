"""The chart: what it renders is committed, valid Kubernetes, and what it cannot be is refused.

Helm and kubeconform are built from their Go modules, once; schemas come from the description of the API that
Kubernetes' own module holds.
"""

import json
import subprocess

import pytest
import yaml

from beds.go import built, go_module
from beds.processes import REPOSITORY, BedError

CHART, DEPLOY = REPOSITORY / "charts/edgewise", REPOSITORY / "deploy"
KUBERNETES = ("k8s.io/kubernetes", "v1.36.3")
RELEASE = KUBERNETES[1].removeprefix("v")
SPACE = "edgewise"
SCHEMAS = "{{.ResourceKind}}{{.KindSuffix}}.json"


def had(make):
    """What Go makes, or a skip with the reason."""
    try:
        return make()
    except BedError as error:
        pytest.skip(str(error)[-500:])


@pytest.fixture(scope="module")
def helm():
    """Runs helm; what it said, and whether it was content."""
    program = had(lambda: built("helm.sh/helm/v3", "v3.22.0", "cmd/helm"))

    def run(*arguments):
        done = subprocess.run(
            [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr, done.returncode == 0

    return run


@pytest.fixture(scope="module")
def rendered(helm):
    """What the chart makes of the values of `deploy/`, changed by options."""

    def render(*options, tests=False):
        more = () if tests else ("--skip-tests",)
        where = ("-n", SPACE, "--kube-version", RELEASE, "-f", DEPLOY / "values.yaml")
        return helm("template", "edgewise", CHART, *where, *more, *options)

    return render


def test_helm_finds_nothing_wrong(helm):
    said, fine = helm("lint", CHART, "--strict", "-f", DEPLOY / "values.yaml")
    assert fine, said


def test_the_plain_manifests_are_what_the_chart_renders(rendered):
    """To renew: helm template edgewise charts/edgewise -n edgewise --kube-version 1.36.3 --skip-tests \
    -f deploy/values.yaml > deploy/edgewise.yaml."""
    said, fine = rendered()
    assert fine and said == (DEPLOY / "edgewise.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("image=",), "at '/image'"),
        (("scenario=",), "at '/scenario'"),
        (("token.existingSecret=",), "at '/token/existingSecret'"),
        (("port=80",), "at '/port': minimum"),
        (("gateways=0",), "at '/gateways': minimum"),
        (("pullPolicy=Sometimes",), "at '/pullPolicy'"),
        (("policies.dispach=closest",), "dispach"),
        (("controllers=0",), "at '/controllers': minimum"),
        (("gatewayProcesses=0",), "at '/gatewayProcesses': minimum"),
        (("probes.port=80",), "at '/probes/port': minimum"),
        (("tokn.existingSecret=a",), "additional properties 'tokn' not allowed"),
    ],
)
def test_wrong_values_are_refused_by_name(rendered, options, words):
    said, fine = rendered(*(part for each in options for part in ("--set", each)))
    assert not fine and words in said


def test_every_value_has_a_schema_and_every_schema_a_value():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema) - set(values) == {"global"} and set(values) <= set(schema)
    for name, value in values.items():
        if isinstance(value, dict) and "properties" in schema[name]:
            assert set(value) == set(schema[name]["properties"]), name


VARIANTS = {
    "as it is": (),
    "open": ("token.existingSecret=", "open=true"),
    "bare": ("priorityClasses.create=false", "networkPolicies.create=false"),
    "of three sites": ("gateways=3", "gatewayProcesses=2", "service.type=NodePort"),
    "by name": (
        "policies.dispatch=closest", "nodeSelector.zone=a", "tolerations[0].operator=Exists",
        "test.task=score", "imagePullSecrets[0].name=pull",
        "networkPolicies.clients[0].podSelector.matchLabels.app=camera",
    ),
    "with probes": (
        "probes.create=true", "tolerations[0].operator=Exists", "imagePullSecrets[0].name=pull",
        "probes.readers[0].podSelector.matchLabels.app=prometheus",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS)
def objects(request, rendered):
    """What the chart makes in one of its variants, as text and as objects."""
    said, fine = rendered(*(part for each in request.param for part in ("--set", each)), tests=True)
    assert fine, said
    return said, list(yaml.safe_load_all(said))


@pytest.fixture(scope="module")
def schemas(tmp_path_factory):
    """Kubernetes' own description of its API, as kubeconform takes it: unknown fields are refused."""
    module = had(lambda: go_module(*KUBERNETES))
    with open(f"{module['Dir']}/api/openapi-spec/swagger.json") as file:
        found = json.load(file)["definitions"]
    folder = tmp_path_factory.mktemp("schemas")
    for definition in found.values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    either = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    found["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = either
    found["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    }
    (folder / "_definitions.json").write_text(json.dumps({"definitions": found}))
    for name, definition in found.items():
        for each in definition.get("x-kubernetes-group-version-kind", ()):
            group = each["group"].partition(".")[0]
            file = "-".join(part for part in (each["kind"], group, each["version"]) if part).lower()
            (folder / f"{file}.json").write_text(
                json.dumps({"$ref": f"_definitions.json#/definitions/{name}"})
            )
    return folder


def conforms(text, folder):
    program = had(lambda: built("github.com/yannh/kubeconform", "v0.8.0", "cmd/kubeconform"))
    command = [program, "-strict", "-summary", "-schema-location", f"{folder}/{SCHEMAS}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr, done.returncode == 0


def test_objects_are_those_of_kubernetes(objects, schemas):
    said, fine = conforms(objects[0], schemas)
    assert fine, said
    assert f"{len(objects[1])} resources" in said and "Skipped: 0" in said


def test_what_is_no_field_of_kubernetes_is_seen(objects, schemas):
    said, fine = conforms(objects[0].replace("terminationGracePeriodSeconds", "graceSeconds"), schemas)
    assert not fine and "graceSeconds" in said


RUN = ("Deployment", "DaemonSet")


def specs(objects):
    return [
        each["spec"]["template"]["spec"] if each["kind"] in RUN else each["spec"]
        for each in objects
        if each["kind"] in (*RUN, "Pod")
    ]


def test_every_pod_keeps_to_pod_security_restricted(objects):
    found = specs(objects[1])
    assert len(found) == 2 + any(each["kind"] == "DaemonSet" for each in objects[1])
    for spec in found:
        inside = [*spec.get("initContainers", ()), *spec["containers"]]
        context = spec["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in inside:
            rights = each["securityContext"]
            assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"] == {"drop": ["ALL"]}
        kinds = {kind for volume in spec["volumes"] for kind in volume} - {"name"}
        assert kinds <= {"configMap", "emptyDir", "secret"}


def test_what_pods_name_is_there(objects):
    """Service account, ConfigMap and priority are made by the chart or named in its values."""
    made = {(each["kind"], each["metadata"]["name"]) for each in objects[1]}
    made |= {("Secret", "edgewise-clients")}
    (spec,) = [each for each in specs(objects[1]) if "serviceAccountName" in each]
    wanted = {("ServiceAccount", spec["serviceAccountName"])}
    if "priorityClassName" in spec:
        wanted.add(("PriorityClass", spec["priorityClassName"]))
    for volume in spec["volumes"]:
        if "configMap" in volume:
            wanted.add(("ConfigMap", volume["configMap"]["name"]))
        if "secret" in volume:
            wanted.add(("Secret", volume["secret"]["secretName"]))
    assert wanted <= made


def test_options_that_the_pod_is_started_with_are_those_of_edgewise_up(objects):
    import typer
    from typer.main import get_command

    from edgewise.cli.live import app

    (up,) = [each for name, each in get_command(app).commands.items() if name == "up"]
    assert isinstance(up, typer.core.TyperCommand)
    known = {name for each in up.params for name in each.opts}
    (spec,) = [each for each in specs(objects[1]) if "serviceAccountName" in each]
    said = {each.partition("=")[0] for each in spec["containers"][0]["args"] if each.startswith("--")}
    assert said <= known and "--on" in said
