# SPDX-License-Identifier: Apache-2.0
"""charts/aliquot by the real helm, without a cluster: it renders the objects of the directories below deploy/, each value has
its effect, and what is no value is refused by name."""

import functools
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests"))

from cluster import binaries                            # noqa: E402  (the path comes first)
from test_manifests import PROJECTS                     # noqa: E402

CHART = TOP / "charts/aliquot"
# What the directories have, which know no release.
AS_DIRECTORIES = ["--no-hooks", "--namespace", "aliquot-system", "--set", "crds.keep=false,namespace.create=true"]
CONFIGURATION = "aliquot-kube-scheduler-configuration"
# Directory, version of the API server, mode of the scheduler.
DIRECTORIES = [("base", "v1.36.3", "extender"), ("webhook", "v1.35.0", "extender"),
               ("own-scheduler", "v1.36.3", "own"), ("own-scheduler-webhook", "v1.35.0", "own"),
               ("dra-only", "v1.36.3", "dra")]


@pytest.fixture(scope="session")
def programs():
    binaries.ensure(toolsets=(*binaries.TOOLSETS, binaries.HELM))
    return {name: binaries.find(name) for name in ("helm", "kubectl")}


@pytest.fixture(scope="session")
def helm(programs, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")

    @functools.cache
    def run(*arguments):
        return subprocess.run([programs["helm"], *map(str, arguments)], env={"HOME": str(home)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return run


@pytest.fixture(scope="session")
def render(helm):
    """The objects that the chart makes with these arguments of `helm template`."""
    def run(*arguments):
        made = helm("template", "aliquot", CHART, *arguments)
        assert made.returncode == 0, made.stderr
        return objects(made.stdout)
    return run


def identity(one):
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


@functools.cache
def read(document):
    """What pickle makes the object from, which is much faster: most documents are the same whatever the values are."""
    return pickle.dumps(yaml.load(document, Loader=yaml.CSafeLoader))


def objects(text):
    found = [one for one in (pickle.loads(read(document)) for document in re.split("^---$", text, flags=re.M)) if one]
    named = {identity(one): one for one in found}
    assert len(named) == len(found)
    return named


def of_directory(programs, directory):
    made = subprocess.run([programs["kubectl"], "kustomize", directory], check=True, stdout=subprocess.PIPE, text=True)
    return objects(made.stdout)


def plain(node):
    """Without empty lines in texts: kustomize adds one where a line of a folded text is indented more than the first."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    return re.sub(r"\n+", "\n", node) if isinstance(node, str) else node


def read_files(one):
    """The object with the YAML in a ConfigMap as data: comments differ."""
    data = {key: yaml.safe_load(value) if key.endswith(".yaml") else value for key, value in one.get("data", {}).items()}
    return plain({**one, "data": data} if data else one)


def check_equal(render, programs, directory, base, row, *settings):
    """Object by object, and the file for kube-scheduler, which the chart has in a ConfigMap."""
    _, version, mode = row
    made = render(*AS_DIRECTORIES, "--kube-version", version, "--set", f"scheduler.mode={mode}", *settings)
    rendered = {name: read_files(one) for name, one in made.items()}
    wanted = {name: read_files(one) for name, one in of_directory(programs, directory).items()}
    role = rendered["ClusterRole", "", "aliquot-agent"]
    assert role["metadata"].pop("annotations") == {"elasticgpu.io/release": "aliquot"}
    if mode == "own":   # it starts new containers when the configuration changes
        deployment = rendered["Deployment", "aliquot-system", "aliquot-scheduler"]
        assert deployment["spec"]["template"]["metadata"].pop("annotations").keys() == {"checksum/configuration"}
    elif mode == "extender":
        (configuration,) = rendered.pop(("ConfigMap", "aliquot-system", CONFIGURATION))["data"].values()
        assert configuration == yaml.safe_load((base / "kube-scheduler-configuration.yaml").read_text())
    assert rendered.keys() == wanted.keys()
    for name, one in wanted.items():
        assert rendered[name] == one, name


def test_a_part_of_a_chart_does_not_say_that_it_is_the_release(render, helm, tmp_path):
    """`aliquot uninstall` would remove what helm knows of the other parts."""
    tmp_path.joinpath("Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n")
    shutil.copytree(CHART, tmp_path / "charts/aliquot")
    made = helm("template", "mine", tmp_path)
    assert made.returncode == 0, made.stderr
    assert "annotations" not in objects(made.stdout)["ClusterRole", "", "aliquot-agent"]["metadata"]
    assert render()["ClusterRole", "", "aliquot-agent"]["metadata"]["annotations"] == {"elasticgpu.io/release": "aliquot"}


def test_lint(helm):
    made = helm("lint", "--strict", CHART)
    assert made.returncode == 0 and "[WARNING]" not in made.stdout, made.stdout


@pytest.mark.parametrize("row", DIRECTORIES, ids=lambda row: row[0])
def test_the_directories_are_what_the_chart_makes(row, programs, render):
    check_equal(render, programs, TOP / "deploy" / row[0], TOP / "deploy/base", row)


COMPONENTS = [("metrics-api", "scheduler.metricsApi.enabled"), ("agent-tls", "agent.tls")]
BESIDE_AN_EXTENDER = [("dra", "dra.enabled"), ("dra dra-pods-labelled", "dra.enabled=true,dra.pods")]
BY_CLAIMS_ALONE = [("dra-pods", "dra.pods")]    # dra-only has dra itself


def components_of(row):
    return COMPONENTS + (BY_CLAIMS_ALONE if row[0] == "dra-only" else BESIDE_AN_EXTENDER)


@pytest.mark.parametrize("row, component, value", [
    pytest.param(row, *one, id="-".join([row[0], *one])) for row in DIRECTORIES for one in components_of(row)])
def test_with_a_component(row, component, value, programs, render, tmp_path):
    names = component.split()
    place = os.path.relpath(TOP / "deploy", tmp_path.resolve())
    components = ", ".join(f"{place}/{name}" for name in names)
    (tmp_path / "kustomization.yaml").write_text(
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{place}/{row[0]}]\ncomponents: [{components}]\n")
    check_equal(render, programs, tmp_path, TOP / "deploy/base", row, "--set", f"{value}=true")


def test_with_the_component_of_the_page(programs, render, tmp_path):
    row, place = DIRECTORIES[0], os.path.relpath(TOP / "deploy", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{place}/{row[0]}]\ncomponents: [{place}/web]\n")
    check_equal(render, programs, tmp_path, TOP / "deploy/base", row, "--set", "web.enabled=true")


def test_the_page_has_no_rights(render):
    """No role names its account, and its pods have no token of it."""
    made = render("--set", "web.enabled=true")
    bound = [subject["name"] for (kind, _, _), one in made.items() if kind.endswith("RoleBinding") for subject in one.get("subjects", [])]
    assert bound and "aliquot-web" not in bound
    pod = made["Deployment", "default", "aliquot-web"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False and not any("projected" in volume for volume in pod["volumes"])


@pytest.mark.parametrize("names", [*PROJECTS, ",".join(PROJECTS), "nvidia.com/mig-1g.10gb"])
def test_dialects_are_left_as_scripts_manifests_leaves_them(names, programs, render, tmp_path):
    subprocess.run([TOP / "scripts/manifests", "--served-elsewhere", names, tmp_path], check=True)
    for row in DIRECTORIES:
        check_equal(render, programs, tmp_path / row[0], tmp_path / "base", row, "--set", f"dialects.servedElsewhere={{{names}}}")


@pytest.mark.parametrize("mode, version, policies", [
    ("auto", "v1.36.3", True), ("auto", "v1.35.9", False), ("auto", "v1.36.0-gke.1829001", True),
    ("policies", "v1.35.9", True), ("webhook", "v1.36.3", False)])
def test_admission(mode, version, policies, render):
    kinds = {kind for kind, _, _ in render("--kube-version", version, "--set", f"admission.mode={mode}")}
    assert ("MutatingAdmissionPolicy" in kinds) == policies
    assert ("MutatingWebhookConfiguration" in kinds) == (not policies)


@pytest.mark.parametrize("apis, policies", [
    ("v1/Pod", False), ("v1/Pod,admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", True)])
def test_what_the_api_server_has_decides(apis, policies, render):
    """Not its version: an API can be switched off."""
    kinds = {kind for kind, _, _ in render("--kube-version", "v1.36.3", "--api-versions", apis)}
    assert ("MutatingAdmissionPolicy" in kinds) == policies


@pytest.mark.parametrize("version", ["v1.33.5-eks-3025e55", "v1.34.1-gke.1829001", "v1.33.4+k3s1", "v1.30.0"])
def test_versions_of_providers_are_accepted(version, render):
    assert render("--kube-version", version)


@pytest.mark.parametrize("version, tag", [("v1.33.5-eks-3025e55", "v1.33.5"), ("v1.34.1-gke.1829001", "v1.34.1"),
                                          ("v1.33.4+k3s1", "v1.33.4"), ("v1.36.3", "v1.36.3")])
def test_kube_scheduler_is_of_the_servers_version(version, tag, render):
    made = render("--kube-version", version, "--set", "scheduler.mode=own")[("Deployment", "default", "aliquot-scheduler")]
    assert made["spec"]["template"]["spec"]["containers"][1]["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_a_change_of_the_configuration_starts_new_containers(render):
    template = [render("--set", f"scheduler.mode=own,scheduler.takeOver={{{names}}}")[("Deployment", "default", "aliquot-scheduler")]
                ["spec"]["template"] for names in ("gpu-scheduler", "volcano")]
    assert template[0] != template[1]


def test_older_versions_are_refused(helm):
    made = helm("template", CHART, "--kube-version", "v1.29.9")
    assert made.returncode != 0 and "kubeVersion: >=1.30.0-0" in made.stderr, made.stderr


@pytest.mark.parametrize("setting, reason", [
    ("imgae.tag=x", "imgae"), ("agent.gpuNodeOnly=true", "gpuNodeOnly"), ("agent.gpuNodesOnly=1", "/agent/gpuNodesOnly"),
    ("admission.mode=polices", "/admission/mode"), ("scheduler.mode=both", "/scheduler/mode"),
    ("scheduler.replicas=0", "/scheduler/replicas"), ("webhook.port=0", "/webhook/port"),
    ("kubelet.dir=var/lib/kubelet", "/kubelet/dir"), ("cdi.dir=", "/cdi/dir"), ("driver.root=~/driver", "/driver/root"),
    ("image.tag=a b", "/image/tag"), ("agent.image.digest=sha256:12", "/agent/image/digest"),
    ("image.pullPolicy=Sometimes", "/image/pullPolicy"), ("imagePullSecrets={a}", "/imagePullSecrets/0"),
    ("agent.tolerations[0].operater=Exists", "operater"), ("agent.resources.request.cpu=1", "request"),
    ("agent.updateStrategy.rollingUpdate.maxUnavailble=1", "maxUnavailble"), ("agent.affinity.nodeAfinity.a=b", "nodeAfinity"),
    ("agent.overuseRules.a=kill", "/agent/overuseRules/a"), ("webhook.port=9401", "/webhook/port"),
    ("scheduler.takeOver={volcano}", "scheduler.takeOver has an effect with scheduler.mode=own only"),
    ("scheduler.mode=dra,scheduler.takeOver={volcano}", "scheduler.takeOver has an effect with scheduler.mode=own only"),
    ("scheduler.mode=dra,admission.mode=webhook", "scheduler.mode=dra needs admission by policies"),
    ("dra.pods=true", "dra.pods has an effect where claims are served only"),
    ("dra.enabled=true,dra.namespaces=all", "dra.namespaces and dra.podSchedulers have an effect with dra.pods=true only"),
    ("scheduler.mode=dra,dra.podSchedulers={volcano}", "dra.namespaces and dra.podSchedulers have an effect with dra.pods=true only"),
    ("scheduler.mode=own,admission.mode=webhook,webhook.port=8443,scheduler.kubeScheduler.port=8443",
     "webhook.port and scheduler.kubeScheduler.port are of the same pod"),
    ("scheduler.metricsApi.port=9403", "/scheduler/metricsApi/port"),
    ("scheduler.metricsApi.enabled=true,scheduler.replicas=1", "no namespace of the cluster can be deleted: set scheduler.replicas to 2"),
    ("scheduler.metricsApi.enabled=true,scheduler.metricsApi.port=9500,scheduler.metricsPort=9500",
     "scheduler.metricsApi.port is the port of another server"),
    ("admission.mode=webhook,webhook.port=9500,scheduler.metricsPort=9500", "scheduler.metricsPort is the port of another server"),
    ("scheduler.mode=own,scheduler.kubeScheduler.port=9500,scheduler.metricsPort=9500", "scheduler.metricsPort is the port of another server"),
    ("scheduler.metricsPort=9401", "/scheduler/metricsPort"), ("monitoring.rules=true", "rules"),
    ("agent.onOveruse=kill", "/agent/onOveruse"), ("agent.memoryScaling=half", "/agent/memoryScaling"),
    ("agent.memoryScaling=0.5", "/agent/memoryScaling"), ("agent.metricNames={hamy}", "/agent/metricNames/0"),
    ("agent.extraArgs={verbose}", "/agent/extraArgs/0"),
    ("nameOverride=My_Name", "/nameOverride"), ("scheduler.takeOver={default-scheduler}", "/scheduler/takeOver/0"),
    ("dialects.servedElsewhere={nvidia.com/none}", "nvidia.com/none is no resource that Aliquot serves"),
    ("dialects.servedElsewhere={elasticgpu.io/gpu-core}", "elasticgpu.io/gpu-core cannot be left to others"),
])
def test_what_is_no_value_is_refused_by_name(setting, reason, helm):
    made = helm("template", CHART, "--set", setting)
    assert made.returncode != 0 and (reason if " " in reason else f"'{reason}'") in made.stderr, made.stderr
    assert not made.stdout


def test_the_check_before_uninstalling_has_an_end_and_few_rights(render):
    """An interrupted removal may have taken the scheduler's account."""
    made = render()
    job = made["Job", "default", "aliquot-check-uninstall"]["spec"]
    assert job["activeDeadlineSeconds"] == 120
    assert job["template"]["spec"]["serviceAccountName"] == "aliquot-check-uninstall"
    assert made["ClusterRole", "", "aliquot-check-uninstall"]["rules"] == [
        {"apiGroups": [group], "resources": [kind], "verbs": ["list"]} for group, kind in (("", "pods"), ("resource.k8s.io", "resourceclaims"))]
    binding = made["ClusterRoleBinding", "", "aliquot-check-uninstall"]
    for one in (made["ServiceAccount", "default", "aliquot-check-uninstall"], made["ClusterRole", "", "aliquot-check-uninstall"], binding):
        notes = one["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "pre-delete" and int(notes["helm.sh/hook-weight"]) < 0
    assert binding["roleRef"]["name"] == binding["subjects"][0]["name"] == "aliquot-check-uninstall"


# What the Job that cleans may do to objects of any name.
BROAD = {("", "pods", "list"), ("", "nodes", "list"), ("", "nodes/status", "patch"), ("batch", "jobs", "create"),
         *(("apps", kind, "list") for kind in ("deployments", "statefulsets", "daemonsets", "replicasets")),
         *(("batch", kind, "list") for kind in ("jobs", "cronjobs")),
         *(("elasticgpu.io", kind, verb) for kind in ("elasticgpuclaims", "elasticgpus") for verb in ("list", "patch")),
         *(("elasticgpu.io", "gpus", verb) for verb in ("list", "deletecollection")),
         *(("certificates.k8s.io", "certificatesigningrequests", verb) for verb in ("list", "delete")),
         *(("resource.k8s.io", *right) for right in (
             ("resourceslices", "list"), ("resourceslices", "delete"),
             ("resourceclaimtemplates", "list"), ("resourceclaimtemplates", "delete"), ("resourceclaims", "list"), ("resourceclaims", "patch"),
             ("resourceclaims/status", "patch"), ("resourceclaims/binding", "patch"), ("resourceclaims/binding", "update"),
             ("deviceclasses", "list")))}


def broad_rights(role):
    return {(group, kind, verb) for rule in role["rules"] if "resourceNames" not in rule
            for group in rule["apiGroups"] for kind in rule["resources"] for verb in rule["verbs"]}


def test_what_cleans_has_few_rights_and_loses_them(render):
    made = render()
    job = made["Job", "default", "aliquot-uninstall"]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "aliquot-uninstall"
    assert "app.kubernetes.io/part-of" not in job["metadata"]["labels"]      # by which it removes Jobs
    roles = [made["ClusterRole", "", "aliquot-uninstall"], made["Role", "default", "aliquot-uninstall"]]
    assert set().union(*map(broad_rights, roles)) == BROAD
    assert broad_rights(made["ClusterRole", "", "aliquot-uninstall-nodes"]) == {("", "nodes", "list"), ("", "nodes/status", "patch")}
    (later,) = [json.loads(option.removeprefix("--job=")) for option in job["spec"]["template"]["spec"]["containers"][0]["args"]
                if option.startswith("--job=")]
    assert later["metadata"]["name"] == "aliquot-uninstall-nodes" and later["spec"]["activeDeadlineSeconds"] == 900
    assert later["spec"]["backoffLimit"] == 4 and later["spec"]["ttlSecondsAfterFinished"] == 60
    hooks = [one for (_, _, name), one in made.items() if name == "aliquot-uninstall"]
    assert sorted(one["kind"] for one in hooks) == [
        "ClusterRole", "ClusterRoleBinding", "Job", "Role", "RoleBinding", "ServiceAccount",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert all("hook-succeeded" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for one in hooks)
    later = [one["metadata"]["annotations"] for (_, _, name), one in made.items() if name == "aliquot-uninstall-nodes"]
    assert len(later) == 3 and all(notes["helm.sh/hook-delete-policy"] == "before-hook-creation" for notes in later)


def test_hooks_run_on_control_planes(render):
    """In the mode `extender` the scheduler does. Their taints may be NoExecute, by RKE2 and k3s."""
    made = render()
    for name in ("aliquot-check-uninstall", "aliquot-uninstall"):
        tolerations = made["Job", "default", name]["spec"]["template"]["spec"]["tolerations"]
        for key in ("CriticalAddonsOnly", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd"):
            assert {"key": key, "operator": "Exists"} in tolerations
        assert {"operator": "Exists"} not in tolerations    # of nodes that are not reached


# ---- the files in documents ----

def block(path, begin):
    """The block of YAML in a document that begins with this line."""
    (found,) = re.findall(rf"^```yaml\n({re.escape(begin)}\n.*?)^```$", (TOP / "docs" / path).read_text(), re.M | re.S)
    return found


def test_the_overlay_of_the_installation_names_the_images(programs, tmp_path):
    shutil.copytree(TOP / "deploy", tmp_path / "deploy")
    (tmp_path / "OVERLAY").mkdir()
    (tmp_path / "OVERLAY/kustomization.yaml").write_text(block("install.md", "apiVersion: kustomize.config.k8s.io/v1beta1"))
    made = of_directory(programs, tmp_path / "OVERLAY")
    plain_ones = of_directory(programs, TOP / "deploy/base")
    assert made.keys() == plain_ones.keys()
    for name in (("DaemonSet", "aliquot-system", "aliquot-agent"), ("Deployment", "aliquot-system", "aliquot-scheduler")):
        was, now = (one[name]["spec"]["template"]["spec"]["containers"][0]["image"] for one in (plain_ones, made))
        assert now == f"REGISTRY/{was}"


@pytest.mark.parametrize("row, settings", [(DIRECTORIES[0], "dra.enabled=true,dra.pods=true"), (DIRECTORIES[-1], "dra.pods=true")])
def test_the_kustomizations_of_claims(row, settings, programs, render, tmp_path):
    """They are what the chart makes by values, and kube-scheduler gets the cards by a patch beside them."""
    found = re.findall(r"^```yaml\n(apiVersion: kustomize\S+\n.*?)^```$", (TOP / "docs/dra.md").read_text(), re.M | re.S)
    (given,) = [text for text in found if yaml.safe_load(text)["resources"] == [f"deploy/{row[0]}"]]
    shutil.copytree(TOP / "deploy", tmp_path / "deploy")
    (tmp_path / "kustomization.yaml").write_text(given)
    check_equal(render, programs, tmp_path, TOP / "deploy/base", row, "--set", settings)
    (tmp_path / "kustomization.yaml").write_text(given + block("dra.md", "patches:"))
    agent = of_directory(programs, tmp_path)["DaemonSet", "aliquot-system", "aliquot-agent"]
    assert agent["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--resource-claims=kube-scheduler"


def test_agents_stay_off_the_nodes_of_gpu_manager(render, tmp_path):
    (tmp_path / "values.yaml").write_text(block("coming-from.md", "agent:"))
    agent = render("--values", tmp_path / "values.yaml")[("DaemonSet", "default", "aliquot-agent")]
    terms = agent["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "nvidia-device-enable", "operator": "NotIn", "values": ["enable", "disable"]}]}]


# ---- values ----

# Objects, and places in them.
AGENT, SCHEDULER, DOCTOR = "DaemonSet aliquot-agent", "Deployment aliquot-scheduler", "Pod aliquot-doctor"
CHECK, CLEAN = UNINSTALL = ("Job aliquot-check-uninstall", "Job aliquot-uninstall")
POD = "spec.template.spec."
FIRST, SECOND = POD + "containers.0.", POD + "containers.1."
OPTIONS = FIRST + "args"
WEBHOOK, CONFIGURATION_OWN = "Service aliquot-webhook", "ConfigMap aliquot-kube-scheduler"
MORE = "..."      # other objects may change as well
WEB = "Deployment aliquot-web"
SHA = "sha256:" + "a" * 64


def image(name):
    """An image of that name, of any tag."""
    return re.compile(re.escape(name) + r":[^/:]+")


def option(text):
    """One of a list."""
    return lambda node: text in (node or [])


def is_hook(notes):
    return notes["helm.sh/hook"] == "pre-delete"


def keys(key):
    """A key of the first expressions of a list of terms."""
    return lambda node: any(key == term["matchExpressions"][0]["key"] for term in node)


def in_agent(place, wanted):
    return {AGENT: (place, wanted)}


def in_scheduler(place, wanted):
    return {SCHEDULER: (place, wanted)}


def in_hooks(place, wanted):
    return {name: (place, wanted) for name in UNINSTALL}


def shares_by(operator, value):
    return "spec.matchConstraints.namespaceSelector.matchExpressions.0", {
        "key": "elasticgpu.io/shares-by", "operator": operator, "values": [value]}


# A value other than the default, and the objects that then differ: at this place they have what they have without the value
# in no case.
EFFECTS = {
    "nameOverride": ("mine", {
        "DaemonSet mine-agent": ("metadata.name", "mine-agent"), "Deployment mine-scheduler": ("metadata.name", "mine-scheduler"),
        "Role aliquot-uninstall": ("rules.0.resourceNames", ["mine-agent"]), AGENT: None, SCHEDULER: None}),
    "image.registry": ("example.com/team", {
        AGENT: (FIRST + "image", image("example.com/team/aliquot-agent")),
        SCHEDULER: (FIRST + "image", image("example.com/team/aliquot-scheduler")),
        DOCTOR: ("spec.containers.0.image", image("example.com/team/aliquot-scheduler")),
        **in_hooks(FIRST + "image", image("example.com/team/aliquot-scheduler"))}),
    "image.tag": ("v9", {
        AGENT: (FIRST + "image", "aliquot-agent:v9"), SCHEDULER: (FIRST + "image", "aliquot-scheduler:v9"),
        DOCTOR: ("spec.containers.0.image", "aliquot-scheduler:v9"),
        **in_hooks(FIRST + "image", "aliquot-scheduler:v9")}),
    "image.pullPolicy": ("Always", {
        AGENT: (FIRST + "imagePullPolicy", "Always"), SCHEDULER: (FIRST + "imagePullPolicy", "Always"),
        DOCTOR: ("spec.containers.0.imagePullPolicy", "Always"),
        **in_hooks(FIRST + "imagePullPolicy", "Always")}),
    "imagePullSecrets": ([{"name": "login"}], {
        AGENT: (POD + "imagePullSecrets", [{"name": "login"}]), SCHEDULER: (POD + "imagePullSecrets", [{"name": "login"}]),
        DOCTOR: ("spec.imagePullSecrets", [{"name": "login"}]),
        **in_hooks(POD + "imagePullSecrets", [{"name": "login"}])}),
    "crds.keep": (True, {CLEAN: (OPTIONS, option("--crds=keep")), "ClusterRole aliquot-uninstall": ("rules", lambda rules: not any(
        "elasticgpuquotas" in rule["resources"] for rule in rules)),
        **{f"CustomResourceDefinition {kind}.elasticgpu.io": ("metadata.annotations", {"helm.sh/resource-policy": "keep"})
                         for kind in ("gpus", "elasticgpus", "elasticgpuclaims", "elasticgpuclasses", "elasticgpuquotas",
                                      "elasticgpureservations")}}),
    "namespace.create": (True, {"Namespace default": ("metadata.name", "default")}),
    "admission.mode": ("webhook", {"MutatingWebhookConfiguration aliquot": ("metadata.name", "aliquot"), MORE: None}),
    "dialects.servedElsewhere": (["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"], {
        AGENT: (OPTIONS, option("--served-elsewhere=nvidia.com/gpu,nvidia.com/mig-1g.10gb")),
        SCHEDULER: (OPTIONS, option("--served-elsewhere=nvidia.com/gpu,nvidia.com/mig-1g.10gb")), MORE: None}),
    "driver.root": ("/home/kubernetes/bin/nvidia", in_agent(OPTIONS, option("--driver-root=/home/kubernetes/bin/nvidia"))),
    "driver.devRoot": ("/run/nvidia/driver", in_agent(OPTIONS, option("--dev-root=/run/nvidia/driver"))),
    "cdi.dir": ("/etc/cdi", in_agent(OPTIONS, option("--cdi-dir=/etc/cdi"))),
    "kubelet.dir": ("/data/kubelet", in_agent(OPTIONS, option("--kubelet-dir=/data/kubelet"))),
    "agent.image.registry": ("example.com", in_agent(FIRST + "image", image("example.com/aliquot-agent"))),
    "agent.image.repository": ("gpu/agent", in_agent(FIRST + "image", image("gpu/agent"))),
    "agent.image.tag": ("v9", in_agent(FIRST + "image", "aliquot-agent:v9")),
    "agent.image.digest": (SHA, in_agent(FIRST + "image", "aliquot-agent@" + SHA)),
    "agent.image.pullPolicy": ("Never", in_agent(FIRST + "imagePullPolicy", "Never")),
    "agent.gpuNodesOnly": (True, in_agent(
        POD + "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        keys("cloud.google.com/gke-accelerator"))),
    "agent.nodeSelector": ({"pool": "gpu"}, in_agent(POD + "nodeSelector.pool", "gpu")),
    "agent.affinity": ({"podAntiAffinity": {}}, in_agent(POD + "affinity", {"podAntiAffinity": {}})),
    "agent.tolerations": ([{"key": "mine", "operator": "Exists"}], in_agent(
        POD + "tolerations", [{"key": "mine", "operator": "Exists"}])),
    "agent.resources": ({"requests": {"cpu": "77m"}}, in_agent(FIRST + "resources.requests.cpu", "77m")),
    "agent.priorityClassName": ("mine", in_agent(POD + "priorityClassName", "mine")),
    "agent.podAnnotations": ({"team": "a"}, in_agent("spec.template.metadata.annotations.team", "a")),
    "agent.updateStrategy": ({"type": "OnDelete"}, in_agent("spec.updateStrategy", {"type": "OnDelete"})),
    "agent.onOveruse": ("stop", in_agent(OPTIONS, option("--on-overuse=stop"))),
    "agent.onEscape": ("stop", in_agent(OPTIONS, option("--on-escape=stop"))),
    "agent.overuseRules": ({"a": "stop", "b": "report"}, in_agent(OPTIONS, option("--overuse-rules=a=stop,b=report"))),
    "agent.resourceClaims": ("kube-scheduler", in_agent(OPTIONS, option("--resource-claims=kube-scheduler"))),
    "agent.driverLimits": ("required", in_agent(OPTIONS, option("--driver-limits=required"))),
    "agent.hookDir": ("/opt/aliquot", in_agent(OPTIONS, option("--hook-dir=/opt/aliquot"))),
    "agent.memoryScaling": (1.5, in_agent(OPTIONS, option("--memory-scaling=1.5"))),
    "agent.configMap": ("nodes", in_agent(OPTIONS, option("--config-map=nodes"))),
    "agent.migStrategy": ("mixed", in_agent(OPTIONS, option("--mig-strategy=mixed"))),
    "agent.mpsCards": ("all", in_agent(OPTIONS, option("--mps-cards=all"))),
    "agent.usageAuth": ("none", in_agent(OPTIONS, option("--usage-auth=none"))),
    "agent.metricsAuth": ("token", in_agent(OPTIONS, option("--metrics-auth=token"))),
    "dra.enabled": (True, {AGENT: (OPTIONS, option("--resource-claims=aliquot")), SCHEDULER: (OPTIONS, option("--dra")), MORE: None}),
    "dra.pods": (True, {"MutatingAdmissionPolicy aliquot-dra-pods": ("metadata.name", "aliquot-dra-pods"), MORE: None}),
    "dra.namespaces": ("all", {"MutatingAdmissionPolicy aliquot-dra-pods": shares_by("NotIn", "resource-names")}),
    "dra.podSchedulers": (["volcano"], {"MutatingAdmissionPolicy aliquot-dra-pods": (
        "spec.matchConditions.1.expression", lambda text: "in ['', 'default-scheduler', 'volcano']" in text)}),
    "agent.tls": (True, {AGENT: (OPTIONS, option("--tls")), SCHEDULER: (OPTIONS, option("--agent-tls")), MORE: None}),
    "agent.metricNames": (["aliquot", "hami"], in_agent(OPTIONS, option("--metric-names=aliquot,hami"))),
    "agent.mpsDir": ("/run/nvidia/mps", in_agent(OPTIONS, option("--mps-dir=/run/nvidia/mps"))),
    "agent.extraArgs": (["--log=debug"], in_agent(OPTIONS, option("--log=debug"))),
    "scheduler.mode": ("own", {SCHEDULER: (SECOND + "name", "kube-scheduler"), MORE: None}),
    "scheduler.takeOver": (["hami-scheduler"], {
        CONFIGURATION_OWN: ("data", lambda data: [one["schedulerName"] for one in yaml.safe_load(
            data["configuration.yaml"])["profiles"]] == ["aliquot-scheduler", "hami-scheduler"]),
        MORE: None}),
    "scheduler.kubeScheduler.image.registry": ("example.com", in_scheduler(SECOND + "image", image("example.com/kube-scheduler"))),
    "scheduler.kubeScheduler.image.repository": ("mirror/kube-scheduler", in_scheduler(
        SECOND + "image", image("registry.k8s.io/mirror/kube-scheduler"))),
    "scheduler.kubeScheduler.image.tag": ("v1.30.1", in_scheduler(SECOND + "image", "registry.k8s.io/kube-scheduler:v1.30.1")),
    "scheduler.kubeScheduler.image.digest": (SHA, in_scheduler(SECOND + "image", "registry.k8s.io/kube-scheduler@" + SHA)),
    "scheduler.kubeScheduler.image.pullPolicy": ("Always", in_scheduler(SECOND + "imagePullPolicy", "Always")),
    "scheduler.kubeScheduler.port": (10269, in_scheduler(
        SECOND[:-1], lambda node: "--secure-port=10269" in node["args"] and node["ports"][0]["containerPort"] == 10269)),
    "scheduler.kubeScheduler.resources": ({"requests": {"cpu": "777m"}}, in_scheduler(SECOND + "resources.requests.cpu", "777m")),
    "scheduler.image.registry": ("example.com", {
        SCHEDULER: (FIRST + "image", image("example.com/aliquot-scheduler")),
        DOCTOR: ("spec.containers.0.image", image("example.com/aliquot-scheduler")),
        **in_hooks(FIRST + "image", image("example.com/aliquot-scheduler"))}),
    "scheduler.image.repository": ("gpu/scheduler", {
        SCHEDULER: (FIRST + "image", image("gpu/scheduler")), DOCTOR: ("spec.containers.0.image", image("gpu/scheduler")),
        **in_hooks(FIRST + "image", image("gpu/scheduler"))}),
    "scheduler.image.tag": ("v9", {
        SCHEDULER: (FIRST + "image", "aliquot-scheduler:v9"), DOCTOR: ("spec.containers.0.image", "aliquot-scheduler:v9"),
        **in_hooks(FIRST + "image", "aliquot-scheduler:v9")}),
    "scheduler.image.digest": (SHA, {
        SCHEDULER: (FIRST + "image", "aliquot-scheduler@" + SHA), DOCTOR: ("spec.containers.0.image", "aliquot-scheduler@" + SHA),
        **in_hooks(FIRST + "image", "aliquot-scheduler@" + SHA)}),
    "scheduler.image.pullPolicy": ("Never", {
        SCHEDULER: (FIRST + "imagePullPolicy", "Never"), DOCTOR: ("spec.containers.0.imagePullPolicy", "Never"),
        **in_hooks(FIRST + "imagePullPolicy", "Never")}),
    "scheduler.replicas": (3, in_scheduler("spec.replicas", 3)),
    "scheduler.nodeSelector": ({"pool": "control"}, {
        SCHEDULER: (POD + "nodeSelector", {"pool": "control"}), DOCTOR: ("spec.nodeSelector", {"pool": "control"}),
        **in_hooks(POD + "nodeSelector", {"pool": "control", "kubernetes.io/os": "linux"})}),
    "scheduler.affinity": ({"podAntiAffinity": {}}, in_scheduler(POD + "affinity", {"podAntiAffinity": {}})),
    "scheduler.tolerations": ([{"key": "mine", "operator": "Exists"}], {
        SCHEDULER: (POD + "tolerations", [{"key": "mine", "operator": "Exists"}]),
        **in_hooks(POD + "tolerations", [{"key": "mine", "operator": "Exists"}])}),
    "scheduler.resources": ({"limits": {"memory": "777Mi"}}, in_scheduler(FIRST + "resources.limits.memory", "777Mi")),
    "scheduler.priorityClassName": ("mine", in_scheduler(POD + "priorityClassName", "mine")),
    "scheduler.podAnnotations": ({"team": "a"}, in_scheduler("spec.template.metadata.annotations.team", "a")),
    "scheduler.updateStrategy": ({"type": "Recreate"}, in_scheduler("spec.strategy", {"type": "Recreate"})),
    "scheduler.metricsApi.enabled": (True, {
        SCHEDULER: (OPTIONS, option("--metrics-api-listen=:9404")), "APIService v1beta2.custom.metrics.k8s.io": (
            "spec.service.name", "aliquot-metrics-api"), MORE: None}),
    "scheduler.metricsApi.custom": (False, {"APIService v1beta2.custom.metrics.k8s.io": None}),
    "scheduler.metricsApi.external": (False, {"APIService v1beta1.external.metrics.k8s.io": None}),
    "scheduler.metricsApi.port": (9500, {SCHEDULER: (OPTIONS, option("--metrics-api-listen=:9500")), "Service aliquot-metrics-api": (
        "spec.ports.0.targetPort", 9500)}),
    "scheduler.metricsPort": (9500, in_scheduler(OPTIONS, option("--metrics-listen=:9500"))),
    "scheduler.extraArgs": (["--placement-policy=esc"], in_scheduler(OPTIONS, option("--placement-policy=esc"))),
    "monitoring.podMonitor": (True, {f"PodMonitor aliquot-{part}": ("spec.podMetricsEndpoints.0.honorLabels", True)
                                     for part in ("agent", "scheduler")}),
    "monitoring.prometheusRule": (True, {"PrometheusRule aliquot": ("spec.groups.0.name", "aliquot")}),
    "monitoring.dashboards": (True, {f"ConfigMap aliquot-dashboard-{name}": ("metadata.labels.grafana_dashboard", "1")
                                     for name in ("cluster", "node", "namespace", "pod", "scheduler")}),
    "monitoring.labels": ({"release": "prometheus"}, {name: ("metadata.labels.release", "prometheus") for name in (
        "PodMonitor aliquot-agent", "PodMonitor aliquot-scheduler", "PrometheusRule aliquot")}),
    "web.enabled": (True, {WEB: (OPTIONS, option("--in-cluster")), "Service aliquot-web": ("spec.ports.0.port", 80), "ServiceAccount aliquot-web": (
        "automountServiceAccountToken", False)}),
    "web.replicas": (3, {WEB: ("spec.replicas", 3)}),
    "web.hosts": (["gpus.example.org", "inner:8080"], {WEB: (OPTIONS, option("--host=gpus.example.org,inner:8080"))}),
    "web.tlsSecret": ("page", {
        WEB: ("spec.template.spec", lambda pod: [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == ["page"]
              and "--tls-cert=/etc/aliquot/tls/tls.crt" in pod["containers"][0]["args"]
              and {pod["containers"][0][probe]["httpGet"].get("scheme") for probe in ("readinessProbe", "livenessProbe")} == {"HTTPS"}),
        "Service aliquot-web": ("spec.ports.0.port", 443)}),
    "web.nodeSelector": ({"pool": "web"}, {WEB: (POD + "nodeSelector.pool", "web")}),
    "web.tolerations": ([{"key": "mine", "operator": "Exists"}], {WEB: (POD + "tolerations", [{"key": "mine", "operator": "Exists"}])}),
    "web.resources": ({"limits": {"memory": "777Mi"}}, {WEB: (FIRST + "resources.limits.memory", "777Mi")}),
    "webhook.port": (8443, {SCHEDULER: (OPTIONS, option("--webhook-listen=:8443")), WEBHOOK: (
        "spec.ports.0.targetPort", 8443)}),
    "webhook.hostNetwork": (True, in_scheduler(POD + "hostNetwork", True)),
    "uninstall.check": (True, {CHECK: ("metadata.annotations", is_hook), CLEAN: (OPTIONS, lambda node: "--force" not in node), MORE: None}),
    "uninstall.clean": (True, {CLEAN: ("metadata.annotations", is_hook), MORE: None}),
    "uninstall.timeout": (7, {CLEAN: (OPTIONS, option("--timeout=7"))}),
}
# The default says the same; what the sample is compared with has another value.
OTHERWISE = {"crds.keep": False, "uninstall.check": False, "uninstall.clean": False}
# Without which the value has no effect.
OWN = {"scheduler.mode": "own"}
SERVED = {"scheduler.metricsApi.enabled": True}
SHOWN = {"web.enabled": True}
BESIDES = {**{f"web.{name}": SHOWN for name in ("replicas", "hosts", "tlsSecret", "nodeSelector", "tolerations", "resources")},
           "scheduler.metricsApi.custom": SERVED, "scheduler.metricsApi.external": SERVED, "scheduler.metricsApi.port": SERVED,
           "webhook.port": {"admission.mode": "webhook"}, "webhook.hostNetwork": OWN, "scheduler.takeOver": OWN,
           "dra.pods": {"dra.enabled": True}, "dra.namespaces": {"dra.enabled": True, "dra.pods": True}, "dra.podSchedulers": {"dra.enabled": True, "dra.pods": True},
           "monitoring.labels": {"monitoring.podMonitor": True, "monitoring.prometheusRule": True},
           **{name: OWN for name in EFFECTS if name.startswith("scheduler.kubeScheduler.")}}


def leaves(node, path=()):
    """The values of values.yaml that are documented there one by one."""
    known = {tuple(name.split(".")) for name in EFFECTS}
    for key, value in node.items():
        if (*path, key) not in known and isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key))


def test_each_value_has_its_effect_tested():
    assert set(leaves(yaml.safe_load((CHART / "values.yaml").read_text()))) == EFFECTS.keys()


def at(node, place):
    """What is there; None: nothing."""
    for part in place.split("."):
        if isinstance(node, list):
            node = node[int(part)] if int(part) < len(node) else None
        else:
            node = (node or {}).get(part)
    return node


def is_as(node, wanted):
    if isinstance(wanted, re.Pattern):
        return bool(wanted.fullmatch(str(node)))
    return wanted(node) if callable(wanted) else node == wanted


@pytest.mark.parametrize("name", EFFECTS)
def test_a_value_has_its_effect(name, render):
    """On the objects it is about, and on no other."""
    def rendered(**settings):
        given = [f"{key}={json.dumps(value)}" for key, value in {**BESIDES.get(name, {}), **settings}.items()]
        made = render(*(word for one in given for word in ("--set-json", one)))
        return {f"{kind} {called}": one for (kind, _, called), one in made.items()}
    value, effects = EFFECTS[name]
    before = rendered(**({name: OTHERWISE[name]} if name in OTHERWISE else {}))
    after = rendered(**{name: value})
    for one, (place, wanted) in ((key, effect) for key, effect in effects.items() if effect):
        assert is_as(at(after[one], place), wanted), at(after[one], place)
        assert one not in before or not is_as(at(before[one], place), wanted), at(before[one], place)
    differing = {one for one in {*before, *after} if before.get(one) != after.get(one)}
    assert differing == effects.keys() or MORE in effects and differing > effects.keys() - {MORE}


@pytest.mark.parametrize("admission", ["policies", "webhook"])
def test_all_namespaces_but_those_by_names(admission, render):
    """What gives claims leaves out those whose pods are sent to the own kube-scheduler. The slot is for pods of all."""
    made = render("--set", f"scheduler.mode=own,admission.mode={admission},dra.enabled=true,dra.pods=true,dra.namespaces=all")
    selectors = {name: one["spec"]["matchConstraints"].get("namespaceSelector") for (kind, _, name), one in made.items()
                 if kind == "MutatingAdmissionPolicy"}
    labels = {operator: {"matchExpressions": [shares_by(operator, "resource-names")[1]]} for operator in ("In", "NotIn")}
    assert selectors["aliquot-dra-pods"] == labels["NotIn"]
    if admission == "policies":
        assert (selectors["aliquot-scheduler-name"], selectors["aliquot-slot"]) == (labels["In"], None)
    else:
        assert "namespaceSelector" not in made["MutatingWebhookConfiguration", "", "aliquot"]["webhooks"][0]


@pytest.mark.parametrize("settings, text", [
    ("dra.enabled=true", "ResourceClaims of the DeviceClass gpu.elasticgpu.io, too (docs/dra.md).\n\nThen"),
    ("dra.enabled=true,dra.pods=true", "in namespaces with the label elasticgpu.io/shares-by=resource-claims."),
    ("dra.enabled=true,dra.pods=true,dra.namespaces=all", "but in namespaces with the label elasticgpu.io/shares-by=resource-names."),
    ("scheduler.mode=own,dra.enabled=true", "ResourceClaims of the DeviceClass gpu.elasticgpu.io, too"),
    ("scheduler.mode=dra", "with dra.pods=true these pods get"),
    ("scheduler.mode=dra,dra.pods=true", "get ResourceClaims in their place.")])
def test_notes_of_claims(settings, text, helm, tmp_path):
    """`helm template` prints none: an object of a copy has them."""
    shutil.copytree(CHART, tmp_path / "aliquot")
    (tmp_path / "aliquot/templates/notes.yaml").write_text(
        'kind: ConfigMap\nmetadata: {name: notes}\ndata:\n  notes: |\n'
        '    {{- include (print .Template.BasePath "/NOTES.txt") . | nindent 4 }}\n')
    made = helm("template", tmp_path / "aliquot", "--kube-version", "v1.36.3", "--set", settings)
    assert made.returncode == 0, made.stderr
    assert text in objects(made.stdout)["ConfigMap", "", "notes"]["data"]["notes"]


MONITORING = "monitoring.podMonitor=true,monitoring.prometheusRule=true,monitoring.dashboards=true"


def test_monitoring_is_what_the_chart_makes(programs, render):
    """What Prometheus and Grafana fill in is not filled in by helm. The directory has the alerts of all parts."""
    wanted = of_directory(programs, TOP / "deploy/monitoring")
    all_parts = "scheduler.metricsApi.enabled=true"
    made = render(*AS_DIRECTORIES, "--set", f"{MONITORING},{all_parts}")
    assert len(wanted) == 8
    for name, one in wanted.items():
        assert made[name] == one, name
    assert made.keys() - wanted.keys() == render(*AS_DIRECTORIES, "--set", all_parts).keys()


def test_monitoring_with_a_token(render):
    """As the example of the directory, which replaces a PodMonitor of it."""
    made = render(*AS_DIRECTORIES, "--set", f"{MONITORING},agent.metricsAuth=token")
    path = TOP / "deploy/monitoring/examples/metrics-token.yaml"
    secret, monitor = yaml.safe_load_all(path.read_text())
    assert made["Secret", "aliquot-system", "aliquot-figures-token"] == secret
    assert made["PodMonitor", "aliquot-system", "aliquot-agent"] == monitor
    without = render(*AS_DIRECTORIES, "--set", "agent.metricsAuth=token")
    assert not [kind for kind, _, _ in without if kind == "Secret" or kind == "PodMonitor"]


def test_monitoring_of_agents_that_serve_https(render):
    """As the example of the directory."""
    made = render(*AS_DIRECTORIES, "--set", f"{MONITORING},agent.tls=true")
    path = TOP / "deploy/monitoring/examples/agent-tls.yaml"
    assert made["PodMonitor", "aliquot-system", "aliquot-agent"] == yaml.safe_load(path.read_text())


def test_monitoring_of_another_port_and_namespace(render):
    made = render("--namespace", "gpus", "--set", f"{MONITORING},scheduler.metricsPort=9500")
    rules = made["PodMonitor", "gpus", "aliquot-scheduler"]["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert [rule["replacement"] for rule in rules if "replacement" in rule] == ["$1:9500", "[$1]:9500"]
    assert "aliquot-system" not in json.dumps(list(made.values()))


def test_monitoring_of_a_scheduler_without_metrics(render):
    """What is not served can be neither scraped nor an alert."""
    def alerts(port):
        made = render("--namespace", "gpus", "--set", f"{MONITORING},scheduler.metricsPort={port}")
        assert (("PodMonitor", "gpus", "aliquot-scheduler") in made) == (port > 0)
        (group,) = made["PrometheusRule", "gpus", "aliquot"]["spec"]["groups"]
        return [rule["alert"] for rule in group["rules"]]
    assert [alert for alert in alerts(9403) if alert not in alerts(0)] == ["AliquotSchedulerDoesNotAct"]


def test_the_alert_of_the_metrics_apis(render):
    """Where they are not served they are none of Aliquot's."""
    def alerts(served):
        made = render("--set", f"{MONITORING},scheduler.metricsApi.enabled={served}")
        return [rule["alert"] for rule in made["PrometheusRule", "default", "aliquot"]["spec"]["groups"][0]["rules"]]
    assert [alert for alert in alerts("true") if alert not in alerts("false")] == ["AliquotMetricsApiDown"]


def test_any_namespace(render):
    for _, version, mode in DIRECTORIES:
        rendered = render("--no-hooks", "--namespace", "gpus", "--kube-version", version, "--set", f"scheduler.mode={mode}")
        assert {namespace for _, namespace, _ in rendered} == {"", "gpus", "kube-system"}
        assert "aliquot-system" not in json.dumps(list(rendered.values()))


def test_agents_only_where_gpus_are(render):
    """Each label alone is enough, and the label that keeps agents off holds beside each."""
    made = render("--set", "agent.gpuNodesOnly=true")[("DaemonSet", "default", "aliquot-agent")]
    required = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["matchExpressions"] for term in required["nodeSelectorTerms"]]
    assert {term[0]["key"] for term in terms} >= {
        "feature.node.kubernetes.io/pci-0302_10de.present", "nvidia.com/gpu.present", "cloud.google.com/gke-accelerator",
        "k8s.amazonaws.com/accelerator", "kubernetes.azure.com/accelerator"}
    assert all(term[1:] == [{"key": "nvidia-device-enable", "operator": "NotIn", "values": ["disable"]}] for term in terms)


@pytest.mark.parametrize("file", sorted(CHART.glob("values-*.yaml")), ids=lambda file: file.name)
def test_files_of_values(file, helm, render):
    """Each of them is accepted, and has a section in the page about them."""
    assert helm("lint", "--strict", CHART, "--values", file).returncode == 0
    assert render("--values", file)
    assert re.search(rf"^## .*\n(?:(?!## ).*\n)*.*{re.escape(file.name)}", (TOP / "docs/install-clusters.md").read_text(), re.M)


def test_values_are_up_to_date():
    """values.yaml and the table of docs/values.md are what the schema says."""
    made = subprocess.run([TOP / "scripts/values", "--check"], stdout=subprocess.PIPE, text=True)
    assert (made.returncode, made.stdout) == (0, "")
