# SPDX-License-Identifier: Apache-2.0
"""Agent and scheduler on nodes whose clocks are wrong: nothing that they write, compare or sign depends on it. The programs see
another time by Debian's libfaketime; all others have the right one."""

import calendar
import contextlib
import json
import pathlib
import re
import time

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from kit import SYSTEM, GiB, container, pod
from test_agent_tls import figures, is_answered, page, secure_world, shown, wait_figures
from test_autoscaling import wait_available
from test_dashboards import figures as leader
from test_dashboards import of_pods, of_scheduler
from test_gates import RESERVATIONS, phase_is

PLACE = "/run/other-clock"
# Seconds. Ahead by more than certificates of Aliquot's authority allow for; behind by no more than kube-apiserver's own one does.
OFF = pytest.mark.parametrize("seconds", [7200, -3600], ids=["ahead", "behind"])
SOON = 1800
STEP = 10       # seconds, of the history
CLOSE = 60      # seconds by which two times of one moment may differ
PARTS = {"aliquot-agent": ("daemonsets", "agent"), "aliquot-scheduler": ("deployments", "scheduler")}


@pytest.fixture(scope="module")
def world(build):
    with secure_world(build, "clocks") as installed:
        (library,) = pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        installed.cluster.on_node(["install", "-D", str(library), f"{PLACE}/libfaketime.so.1"])
        yield installed


def change(world, name, env, wait=True, **more):
    kind, own = PARTS[name]
    world.api.patch(f"/apis/apps/v1/namespaces/{SYSTEM}/{kind}/{name}", {"spec": {"template": {"spec": {
        "containers": [{"name": own, "env": env, "volumeMounts": [{"mountPath": PLACE, **more.get("mount", {})}]}],
        "volumes": [{"name": "clock", **more.get("volume", {})}]}}}}, kind=kube.STRATEGIC)
    if wait:
        world.cluster.kubectl("-n", SYSTEM, "rollout", "status", f"{kind}/{name}", "--timeout=120s")


@contextlib.contextmanager
def clock_off(world, name, seconds, wait=True):
    """The part of that name on a node whose clock is so many seconds ahead."""
    env = {"LD_PRELOAD": f"{PLACE}/libfaketime.so.1", "FAKETIME": f"{seconds:+d}s", "DONT_FAKE_MONOTONIC": "1"}
    gone = {"$patch": "delete"}
    change(world, name, [{"name": key, "value": value} for key, value in env.items()], wait, mount={"name": "clock", "readOnly": True},
           volume={"hostPath": {"path": PLACE}})
    try:
        yield
    finally:
        change(world, name, [{"name": key, **gone} for key in env], mount=gone, volume=gone)
        world.wait_tokens(60)


def direction(seconds):
    return "ahead of" if seconds > 0 else "behind"


def says_so(world, part, seconds):
    """The log names the clock, and by how much it is wrong."""
    pattern = rf"the clock of this node is (\d+) s {direction(seconds)} that of the API server"
    told = world.until(lambda: re.search(pattern, part.log()), 30, "the log names the clock")
    assert abs(int(told[1]) - abs(seconds)) < CLOSE


def when(text):
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


def is_now(seconds):
    return abs(seconds - time.time()) < CLOSE


def forget_certificate(world):
    """The agent asks for another one, which both sides, and clients with the right time, take."""
    before = shown(world)
    world.cluster.on_node(["rm", "/run/aliquot/tls.pem"])
    world.agent.wait_restarted(world.agent.kill())
    world.until(lambda: is_answered(world), 60, "another certificate of the authority")
    assert shown(world) != before


def history(world, space):
    status, text = page(world, f"/history?namespace={space.name}", headers={"Authorization": "Bearer " + world.figures_token()})
    assert status == 200, text
    return json.loads(text)["containers"]


def last_event(world, namespace, reason):
    events = world.api.get(kube.core("events", namespace), fieldSelector="reason=" + reason)["items"]
    return max(when(event["lastTimestamp"]) for event in events)


@pytest.fixture
def share(world, space):
    """The name of a pod that computes."""
    seen = pod("load", container(core=50, memory=GiB, argv=["gpu-spin", "1000000"]))
    seen["metadata"]["labels"] = {"app": "load"}
    space.start(seen)
    world.until(lambda: history(world, space), 40, "a step of its history")
    return "load"


@OFF
def test_agent(world, space, share, seconds):
    (before,) = history(world, space)
    with clock_off(world, "aliquot-agent", seconds):
        says_so(world, world.agent, seconds)
        forget_certificate(world)
        wait_figures(world, space)
        (found,) = figures(world, space)
        assert is_now(when(found["timestamp"]))
        (now,) = history(world, space)
        steps = len(before["memoryUsed"])
        assert now["memoryUsed"][:steps] == before["memoryUsed"] and now["agoMs"] < CLOSE * 1000
        at = time.strftime("%H:%M:%S", time.gmtime(time.time() - now["agoMs"] / 1000 - STEP))
        assert f"{space.name}/{share}" in world.aliquot("top", "--once", "--view", "containers", "--at", at)
        metrics = kit.parse_metrics(page(world, "/metrics")[1])
        (launched,) = of_pods(metrics, "aliquot_container_last_launch_timestamp_seconds", "pod").values()
        assert is_now(launched)
        world.until(lambda: is_now(last_event(world, "default", "CertificateIssued")), 10, "an Event of now")
        ready = kit.condition(world.api.get(kube.core("nodes", name=world.cluster.node)), "AliquotAgentReady")
        assert is_now(when(ready["lastTransitionTime"]))
        space.start(pod("other", container(core=20, memory=GiB)))
        assert not [line for line in world.doctor().get(("nodes", "wrong"), []) if "NoCertificate" in line]


def agents_log(world):
    """While its pod is replaced, too."""
    return world.cluster.kubectl("-n", SYSTEM, "logs", "daemonset/aliquot-agent", check=False) or ""


def test_before_the_certificate_of_the_api_server(world):
    """The agent cannot know the time then. It says what may be wrong, and goes on when that is mended."""
    with clock_off(world, "aliquot-agent", -10 * 365 * 86400, wait=False):
        world.until(lambda: "Is the clock of this machine right?" in agents_log(world), 60, "the log names the clock")
    world.until(lambda: is_answered(world), 60, "the agent answers")


def reserve(world, **times):
    name = kit.new_name("r")
    stamps = {key: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds)) for key, seconds in times.items()}
    world.api.create(RESERVATIONS, {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUReservation", "metadata": {"name": name},
        "spec": {"resources": {kit.CORE: "10"}, "owners": [{"namespace": "default"}], **stamps}})
    return name


def bound(world):
    """(number, seconds) of the times from creation to Binding."""
    metrics = leader(world)
    return [of_scheduler(metrics, "time_to_bind_seconds_" + what)[()] for what in ("count", "sum")]


@OFF
def test_scheduler(world, space, seconds):
    with clock_off(world, "aliquot-scheduler", seconds):
        says_so(world, world.scheduler, seconds)
        wait_available(world, 60)
        phases = {reserve(world, starts=SOON): "Pending", reserve(world, expires=SOON): "Held",
                  reserve(world, expires=-SOON): "Expired"}
        for name, phase in phases.items():
            world.api.wait(RESERVATIONS, name, phase_is(phase), 30)
            world.api.delete(f"{RESERVATIONS}/{name}")
        before = bound(world)
        seen = pod("load", container(core=50, memory=GiB))
        seen["metadata"]["labels"] = {"app": "load"}
        space.start(seen)
        # A page can be a second old.
        world.until(lambda: bound(world)[0] > before[0], 10, "the Binding is counted")
        count, took = (now - then for now, then in zip(bound(world), before))
        assert count == 1 and took < CLOSE
        wait_figures(world, space)
        assert is_now(when(figures(world, space)[0]["timestamp"]))
        space.create(pod("waits", container(core=200)))
        space.unschedulable("waits")
        forget_certificate(world)
        wait_figures(world, space)
        told = world.doctor()
        assert re.search(f"{direction(seconds)} that of the API server", " ".join(told["clocks", "wrong"])), told
        assert ("scheduler", "ok") in told, told
