"""The manifests for Kubernetes: their commands are those of the command line, and their names fit together."""

import inspect
import shlex
from importlib import import_module
from typing import Any, Final

import pytest

from holdfast import Worker
from holdfast.hosts.http.table import OPERATIONS
from holdfast.hosts.metrics import status_server
from tests.integration.examples.pages import DOCS, blocks
from tests.integration.examples.test_command_lines import check

PAGE: Final = DOCS / "howto" / "kubernetes.md"
_AT_A_WORKER: Final = ("/health", "/livez")
_yaml: Any = import_module("yaml")  # it has no types here
MANIFESTS: Final[list[dict[str, Any]]] = [
    manifest
    for block in blocks(PAGE)
    if block.language == "yaml"
    for manifest in _yaml.safe_load_all(block.code)
]
PODS: Final[dict[str, dict[str, Any]]] = {
    manifest["metadata"]["name"]: manifest["spec"]["template"]["spec"]
    for manifest in MANIFESTS
    if "template" in manifest["spec"]
}


def container(pod: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = PODS[pod]["containers"]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("pod", PODS)
def test_the_command_of_a_container_is_one_that_the_command_line_takes(pod: str) -> None:
    check(shlex.join(container(pod)["args"]), whole=True)


@pytest.mark.parametrize("pod", PODS)
def test_a_container_has_the_store_from_the_secret_that_is_created(pod: str) -> None:
    (variable,) = container(pod)["env"]
    (created,) = (block.code for block in blocks(PAGE) if "create secret" in block.code)
    key = variable["valueFrom"]["secretKeyRef"]

    assert f"secret generic {key['name']} --from-literal={key['key']}=" in created
    assert any(f'os.environ["{variable["name"]}"]' in block.code for block in blocks(PAGE))


def test_the_probes_read_what_is_served_at_a_port_of_the_container() -> None:
    served = {one.path for one in OPERATIONS}
    for pod in ("shop-worker", "shop-server"):
        found = container(pod)
        ports = {port["name"]: str(port["containerPort"]) for port in found["ports"]}
        for probe in ("readinessProbe", "livenessProbe"):
            if probe in found:
                request = found[probe]["httpGet"]
                assert ports[request["port"]] in found["args"]
                is_worker = pod == "shop-worker"
                assert request["path"] in (set(_AT_A_WORKER) if is_worker else served)
    assert all(f'"{path}"' in inspect.getsource(status_server) for path in _AT_A_WORKER)


def test_a_worker_may_drain_before_it_is_killed() -> None:
    drain_grace = inspect.signature(Worker).parameters["drain_grace"].default
    assert PODS["shop-worker"]["terminationGracePeriodSeconds"] > drain_grace + 2


def test_the_labels_select_the_pods() -> None:
    for manifest in MANIFESTS:
        if manifest["kind"] == "Deployment":
            spec = manifest["spec"]
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (service,) = (one["spec"] for one in MANIFESTS if one["kind"] == "Service")
    assert service["selector"]["app"] in PODS
    assert service["ports"][0]["targetPort"] in {port["name"] for port in container("shop-server")["ports"]}
