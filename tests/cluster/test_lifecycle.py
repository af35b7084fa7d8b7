# SPDX-License-Identifier: Apache-2.0
"""Whatever way a cluster ends, nothing of it is left, and nothing of the machine is changed."""

import concurrent.futures
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time

import pytest

from cluster import Cluster, ClusterError, aliquot, api as kube, binaries, images, linux, names
from cluster.cluster import HERE, REPOSITORY, check_machine
from cluster.estimate import Estimate

sys.path.append(os.path.join(REPOSITORY, "demo"))

import parts                                            # noqa: E402  (the path comes first)

PROGRAM = [sys.executable, HERE]


@pytest.fixture(scope="module")
def new_name():
    """Makes names of clusters that are gone when the module ends."""
    made = []

    def new():
        made.append("life-" + secrets.token_hex(2))
        return made[-1]
    yield new
    for name in made:
        Cluster(name).down()


def until(check, timeout=20):
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def left_overs(cluster):
    found = [p for p in (cluster.state, cluster.lock) if os.path.exists(p)]
    for root, directories, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(root, d) for d in directories if d == cluster.cgroup]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if cluster.state.encode() in f.read():
                    found.append(f"process {pid}")
        except OSError:
            pass
    with open("/proc/self/mountinfo") as f:
        found += [line for line in f if cluster.state in line]
    return found


def known(cluster, which):
    with open(os.path.join(cluster.state, which + ".json")) as f:
        return json.load(f)["pid"]


def start(name, *options):
    return subprocess.Popen([*PROGRAM, "up", *options, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_up_by_command_line_use_and_down(new_name):
    name = new_name()
    cluster = Cluster(name)
    done = start(name)
    assert done.wait(120) == 0, done.stdout.read()
    assert (name, True) in names()
    assert "Ready" in subprocess.run([cluster.state + "/kubectl", "get", "nodes"], stdout=subprocess.PIPE, text=True,
                                     check=True).stdout
    again = subprocess.run([*PROGRAM, "up", name], stderr=subprocess.PIPE, text=True)
    assert again.returncode != 0 and "runs already" in again.stderr
    subprocess.run([*PROGRAM, "down", name], check=True)
    assert left_overs(cluster) == []
    subprocess.run([*PROGRAM, "down", name], check=True)
    assert left_overs(cluster) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_starter_ended_half_way(new_name, how):
    """The keeper sees its end of the pipe close and clears up by itself."""
    name = new_name()
    cluster = Cluster(name)
    starter = start(name)
    until(lambda: os.path.exists(os.path.join(cluster.state, "logs", "kube-apiserver.log")))
    starter.send_signal(how)
    assert starter.wait(30) != 0
    until(lambda: left_overs(cluster) == [])


def test_keeper_killed(new_name):
    """Then no keeper cleans up: the processes end, and the next `up` removes the rest."""
    name = new_name()
    cluster = Cluster(name)
    assert start(name).wait(120) == 0
    init = os.pidfd_open(known(cluster, "init"))
    os.kill(known(cluster, "keeper"), signal.SIGKILL)
    until(lambda: _ended(init))
    os.close(init)
    assert (name, False) in names()
    with Cluster(name) as again:
        again.up()
        assert "Ready" in again.kubectl("get", "nodes")
    assert left_overs(cluster) == []


def _ended(pidfd):
    return bool(select.select([pidfd], [], [], 0)[0])


def test_init_killed(new_name):
    name = new_name()
    cluster = Cluster(name)
    assert start(name).wait(120) == 0
    os.kill(known(cluster, "init"), signal.SIGKILL)
    until(lambda: left_overs(cluster) == [])


def test_second_node_ends_with_its_cluster(new_name):
    """Killed as in test_keeper_killed, with pods on it."""
    cluster = Cluster(new_name(), second_node=True)
    done = start(cluster.name, "--second-node")
    assert done.wait(120) == 0, done.stdout.read()
    run_pod(cluster, "sleeper", "exec sleep 1000", nodeSelector={"kubernetes.io/hostname": "node-b"})
    cluster.api.wait(kube.pods(), "sleeper", phase("Running"), 60)
    marker = cluster.second.host_pid(cluster.second.spawn("marker", ["sleep", "4321"]))
    with open(f"/proc/{marker}/cmdline", "rb") as f:
        assert f.read() == b"sleep\x004321\x00"
    ended = [os.pidfd_open(pid) for pid in (known(cluster, "init"), cluster.second.init_pid)]
    os.kill(known(cluster, "keeper"), signal.SIGKILL)
    until(lambda: all(map(_ended, ended)))
    list(map(os.close, ended))
    Cluster(cluster.name).down()
    assert left_overs(cluster) == []


def test_stale_files_name_a_foreign_process(new_name):
    """A PID in the state of a dead cluster may belong to another process by now: it must not be killed."""
    name = new_name()
    cluster = Cluster(name)
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        os.makedirs(cluster.state)
        for which in ("keeper", "init"):
            with open(os.path.join(cluster.state, which + ".json"), "w") as f:
                json.dump({"pid": bystander.pid, "start": "1"}, f)
        cluster.down()
        assert bystander.poll() is None
        assert left_overs(cluster) == []
    finally:
        bystander.kill()
        bystander.wait()


@pytest.fixture(scope="module")
def pair():
    """Two clusters at once."""
    first, second = (Cluster(f"pair-{secrets.token_hex(2)}") for _ in range(2))
    with first, second:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(Cluster.up, (first, second)))
        yield first, second
    assert left_overs(first) == [] and left_overs(second) == []


def run_pod(cluster, name, command, image=images.WORKLOAD, **spec):
    if image == images.WORKLOAD:
        cluster.load_image(images.workload([], cluster.state))
    cluster.api.create(kube.pods(), {"metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": image, "imagePullPolicy": "Never", "command": ["sh", "-c", command]}]} | spec})


def phase(wanted):
    return lambda pod: pod and pod["status"].get("phase") == wanted


def tree(cluster):
    return cluster.on_node(["ps", "-e", "-o", "args="]).stdout


def test_two_clusters_do_not_see_each_other(pair):
    for cluster in pair:
        run_pod(cluster, "sleeper", "exec sleep 1000")
    for cluster in pair:
        cluster.api.wait(kube.pods(), "sleeper", phase("Running"), 60)
        until(lambda c=cluster: "sleep 1000" in tree(c))        # runs a moment before its shell does
    for cluster in pair:
        seen = tree(cluster)
        assert seen.count("sleep 1000") == 1 and seen.count("kubelet --config") == 1, seen
        cluster.api.delete(kube.pods(name="sleeper"), gracePeriodSeconds=0)


def test_containerd_takes_its_image_from_an_oci_layout(pair, tmp_path):
    """Of a layout with images for two processors, that for the machine's own."""
    own, other = images.workload_image([]), images.workload_image([])
    own.tag = other.tag = "localhost/layout:1"
    other.machine = ({"x86_64", "aarch64"} - {own.machine}).pop()
    other.entries.clear()
    pair[0].load_image(images.oci_layout.save([other, own], str(tmp_path / "layout.oci.tar")))
    run_pod(pair[0], "layout", "echo it runs", own.tag)
    pair[0].api.wait(kube.pods(), "layout", phase("Succeeded"), 60)


def test_pod_reaches_the_api_server_with_its_token(pair):
    cluster = pair[0]
    run_pod(cluster, "client", """
        dir=/var/run/secrets/kubernetes.io/serviceaccount
        test -s $dir/ca.crt && test -s $dir/token &&
        nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached""")
    cluster.api.wait(kube.pods(), "client", phase("Succeeded"), 60)
    assert cluster.kubectl("logs", "client").strip() == "reached"
    token = cluster.kubectl("create", "token", "default").strip()
    with pytest.raises(kube.ApiError) as refused:
        cluster.api.with_token(token).get(kube.core("nodes"))
    assert refused.value.code == 403 and "system:serviceaccount:default:default" in refused.value.message


def test_pod_outlives_restarts_of_the_parts(pair):
    cluster = pair[1]
    run_pod(cluster, "steady", "echo started; exec sleep 1000")
    before = cluster.api.wait(kube.pods(), "steady", phase("Running"), 60)
    for part in ("kubelet", "containerd", "kube-apiserver"):
        cluster.restart(part, signal.SIGKILL)
        cluster.wait_node_ready()
    run_pod(cluster, "later", "exit 0")
    cluster.api.wait(kube.pods(), "later", phase("Succeeded"), 60)
    after = cluster.api.get(kube.pods(name="steady"))["status"]["containerStatuses"][0]
    assert after["restartCount"] == 0
    assert after["containerID"] == before["status"]["containerStatuses"][0]["containerID"]


def test_machine_is_untouched(pair):
    for directory in ("/etc", "/opt", "/run", "/var/lib", "/var/log"):
        pair[0].on_node(["touch", f"{directory}/{pair[0].name}"])
        assert not os.path.exists(f"{directory}/{pair[0].name}")
    for path in ("/etc/kubernetes", "/etc/cni/net.d/10-aliquot.conflist", "/var/lib/kubelet/pods",
                 "/run/containerd/containerd.sock", "/usr/libexec/kubernetes/kubelet-plugins"):
        assert not os.path.exists(path), path
    with open("/proc/net/dev") as f:
        assert "br0:" not in f.read()


def test_start_of_a_part_that_dies_says_why(pair):
    cluster = pair[0]
    with pytest.raises(ClusterError) as error:
        cluster.spawn("broken", ["sh", "-c", "echo this is why; exit 3"], notify=True)
    assert "this is why" in str(error.value) and "ended with 3" in str(error.value)


def test_pids_of_the_node_are_found_on_the_machine(pair):
    inside = pair[0].spawn("marker", ["sleep", "4321"])
    with open(f"/proc/{pair[0].host_pid(inside)}/cmdline", "rb") as f:
        assert f.read() == b"sleep\x004321\x00"
    pair[0].stop("marker")


def test_images_are_the_same_bytes_each_time(tmp_path):
    made = [images.workload(["/bin/ls"], str(tmp_path / d)) for d in ("a", "b")]
    first, second = (open(p, "rb").read() for p in made)
    assert first == second


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ClusterError, match="apt-get install .*runc"):
        check_machine()


def test_new_go_is_taken_as_it_is(monkeypatch):
    monkeypatch.setattr(binaries, "go_version", lambda: binaries.GO_WANTED)
    assert binaries.find_go(lambda _: None) == binaries.local_go()


def test_old_go_fetches_a_new_one(monkeypatch):
    monkeypatch.setattr(binaries, "go_version", lambda: (1, 19))
    said = []
    go = binaries.find_go(said.append)
    assert "1.19" in said[0]
    assert binaries.GO_FETCHED in subprocess.run([go, "version"], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_missing_go_is_told_with_a_remedy(monkeypatch):
    monkeypatch.setattr(binaries, "go_version", lambda: None)
    with pytest.raises(binaries.BuildError, match="apt-get install .*golang-go"):
        binaries.find_go(lambda _: None)


def test_failed_build_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("ALIQUOT_CACHE", str(tmp_path))
    tools = binaries.Toolset("containerd", ("containerd",), ["-no-such-flag"], 1)
    monkeypatch.setattr(binaries, "TOOLSETS", (tools,))
    with pytest.raises(binaries.BuildError):
        binaries.ensure(lambda _: None)
    assert not tools.complete()
    assert [e for e in os.listdir(tmp_path / "bin") if not e.endswith(".lock")] == []


def test_given_binaries_are_not_built(monkeypatch, tmp_path):
    monkeypatch.setenv("ALIQUOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ALIQUOT_KUBERNETES", str(tmp_path))
    for toolset in binaries.TOOLSETS:
        for binary in toolset.binaries:
            (tmp_path / binary).touch(mode=0o755)
    binaries.ensure(pytest.fail)
    assert binaries.missing() == {}
    assert binaries.find("kubelet") == str(tmp_path / "kubelet")
    (tmp_path / "kubelet").unlink()
    assert list(binaries.missing()) == ["kubernetes"]


def test_one_estimate_for_all_that_is_built():
    clock = [0.0]
    estimate = Estimate({"first": 100, "second": 300}, now=lambda: clock[0])
    assert estimate.at("first", 0) == "0 % of all, about 7 min left"
    clock[0] = 100      # half as fast as expected
    assert estimate.at("first", 0.5) == "12 % of all, about 12 min left"
    assert estimate.at("first", 0.4).startswith("12 %")
    clock[0] = 200
    assert estimate.at("second", 0) == "25 % of all, about 10 min left"
    assert estimate.at("second", 1) == "100 % of all, about 0 s left"


def test_the_demo_builds_what_it_runs():
    build = os.environ["ALIQUOT_BUILD"]
    files = parts.targets(build, aliquot.WORKLOADS)
    assert {"src/agent/aliquot-agent", "src/intercept/node/libaliquot.so", *aliquot.WORKLOADS} <= set(files)
    assert not [name for name in files if name.startswith("tests/") and name not in aliquot.WORKLOADS]
    assert parts.is_built(build, files)
    with pytest.raises(parts.PartsError, match="no-such-target"):
        parts.build(build, ["no-such-target"], lambda _: None)


def test_start_time_tells_processes_apart():
    assert linux.start_time(os.getpid()) is not None
    assert linux.start_time(2 ** 22 + 1) is None
