# SPDX-License-Identifier: Apache-2.0
"""GPU time between pods of one card, measured by the card: what the simulator says each process has had of it."""

import contextlib
import re
import time

import pytest

from kit import GROUP, OUT_OF_MEMORY, GiB, assignment_of, container, holders, pod

POLICY, WEIGHT, CEILING, LIMIT = (f"{GROUP}/{n}" for n in ("compute-policy", "compute-weight", "compute-ceiling",
                                                          "memory-limit"))
MS = 1_000_000


def spinner(name, core, kernel_ns=MS, **annotations):
    """A pod whose program keeps the card busy as well as it can."""
    return pod(name, container(core=core, memory=4 * GiB, argv=["gpu-spin", str(kernel_ns)]),
               annotations={f"{GROUP}/{k.replace('_', '-')}": v for k, v in annotations.items()})


def card_time(world):
    """({pod UID: nanoseconds of GPU}, {card: nanoseconds in which it could have worked}). Both as the card has them at
    one moment, so that no part of them is how long it took to ask. What it needs to change from one process to the other
    is used by no container."""
    script = "; ".join([
        f"{world.build}/src/cli/aliquot sim show > /tmp/show",
        "sed -n 's/^process=\\([0-9]*\\).*/\\1/p' /tmp/show | while read pid; do"
        " echo \"$pid $(cat /proc/$pid/cgroup)\"; done",
        "cat /tmp/show"])
    text = world.cluster.on_node(["sh", "-c", script]).stdout
    pods = {m[1]: m[2].replace("_", "-") for m in
            re.finditer(r"^(\d+) .*?pod([0-9a-f]{8}[-_][0-9a-f_-]{27})", text, re.M)}
    found = {}
    for pid, busy in re.findall(r"^process=(\d+) .*busy_ns=(\d+)", text, re.M):
        if pid in pods:
            found[pods[pid]] = found.get(pods[pid], 0) + int(busy)
    whole = {uuid: int(clock) - int(switching) for uuid, switching, clock in
             re.findall(r"^gpu=\d+ uuid=(\S+) .*switching_ns=(\d+) clock_ns=(\d+)", text, re.M)}
    return found, whole


def parts(world, pods, seconds=2.0):
    """Which part of the card's time each pod has had during the next seconds."""
    uids = [p["metadata"]["uid"] for p in pods]
    (card,) = {d["uuid"] for p in pods for d in assignment_of(p)["main"]}
    first, start = card_time(world)
    time.sleep(seconds)         # the measurement itself
    last, end = card_time(world)
    return [(last.get(u, 0) - first.get(u, 0)) / (end[card] - start[card]) for u in uids]     # 0: it has not begun yet


def settle(world, pods, check, what, timeout=40):
    """Until the parts over half a second are as they should be: pods start one after the other."""
    return world.until(lambda: check(*parts(world, pods, 0.5)), timeout, what)


def same_card(*pods):
    return len({d["uuid"] for p in pods for d in assignment_of(p)["main"]}) == 1


@pytest.mark.parametrize("policy", ["fixed", "burst"])
def test_thirty_to_seventy(world, space, policy):
    three, seven = space.start_all([spinner("three", 30, compute_policy=policy),
                                    spinner("seven", 70, compute_policy=policy)])
    assert same_card(three, seven)
    seen = []

    def exact():
        a, b = parts(world, (three, seven), 2)
        seen.append((a, b))
        return abs(a - 0.30) <= 0.02 and abs(b - 0.70) <= 0.02 and 0.41 <= a / b <= 0.45
    # A machine that is busy otherwise keeps programs from launching, which only ever takes: two quiet seconds will do.
    settle(world, (three, seven), lambda a, b: b > 0.5, "both at work")
    world.until(exact, 80, "30:70 within two points")
    if policy == "fixed":       # more than the share: never
        assert all(a <= 0.32 and b <= 0.72 for a, b in seen), seen
    figures = holders(world.usage())
    for name in ("three", "seven"):
        (told,) = figures[name, "main"]
        assert told["computePolicy"] == policy and told["gpuWanted"] and told["gpuTimeNs"] > 2e8


def test_a_fixed_share_is_never_more_even_alone(world, space):
    alone = space.start(spinner("alone", 40))
    settle(world, (alone,), lambda a: abs(a - 0.4) < 0.05, "40 percent")
    world.until(lambda: abs(parts(world, (alone,), 2)[0] - 0.4) <= 0.02, 80, "40 percent within two points")
    (told,) = holders(world.usage())["alone", "main"]
    assert told["throttledNs"] > 1e9 and told["computePolicy"] == "fixed"


def test_what_a_program_hides_from_measurements_is_paid(world, space):
    """20 kernels of 20 ms after 1,000 short ones of the same kind: by the account alone it has most of the card, and with
    a rate that the driver's figures cut to a quarter at most still 80 percent at a share of 20."""
    hides = space.start(pod("hides", container(core=20, memory=4 * GiB, argv=["gpu-spin", str(20 * MS), "0", "10000"])))
    settle(world, (hides,), lambda a: a > 0.2, "at work")
    # In turns: 2 s of GPU time, of which the driver then tells, and 10 s in which they are paid.
    (part,) = parts(world, (hides,), 24)
    assert part <= 0.4, part


def test_what_is_lent_is_given_back_and_lent_again(world, space):
    lender = space.start(spinner("lender", 30, compute_policy="burst"))
    settle(world, (lender,), lambda a: a > 0.95, "the whole idle card")
    owner = space.start(spinner("owner", 70, compute_policy="burst"))
    assert same_card(lender, owner)
    settle(world, (lender, owner), lambda a, b: abs(a - 0.3) < 0.05 and b > 0.65, "given back")
    space.delete("owner", grace=0)
    settle(world, (lender,), lambda a: a > 0.95, "lent again")


@contextlib.contextmanager
def agent_stopped(world):
    """The agent hangs: not gone, so that no other one is started."""
    task = world.agent.status()["containerID"].partition("://")[2]
    world.ctr("tasks", "kill", "-s", "SIGSTOP", task)
    try:
        yield
    finally:
        world.ctr("tasks", "kill", "-s", "SIGCONT", task)


def test_limits_hold_without_an_agent(world, space):
    three, six = space.start_all([spinner("three", 30), spinner("six", 60, compute_policy="burst")])
    assert same_card(three, six)
    settle(world, (three, six), lambda a, b: abs(a - 0.3) < 0.05 and b > 0.6, "30 and what is left")
    with agent_stopped(world):
        # Each container keeps to its own share: nothing is borrowed any more.
        settle(world, (three, six), lambda a, b: abs(a - 0.3) < 0.04 and abs(b - 0.6) < 0.05, "own shares")
    before = world.agent.kill()
    a, b = parts(world, (three, six), 2)        # who bursts has what the other leaves, once the agent is there
    assert a <= 0.32, (a, b)
    world.agent.wait_restarted(before)
    # A new agent takes over, and the fixed share has not jumped.
    settle(world, (three, six), lambda a, b: abs(a - 0.3) < 0.03 and b > 0.65, "the new agent lends again")


def test_terms_change_while_pods_run(world, space):
    one, two = space.start_all([spinner("one", 30), spinner("two", 30)])
    assert same_card(one, two)
    settle(world, (one, two), lambda a, b: abs(a - 0.3) < 0.04 and abs(b - 0.3) < 0.04, "30:30")

    def say(name, **annotations):
        world.api.patch(f"{space.path}/{name}", {"metadata": {"annotations": {
            f"{GROUP}/{k.replace('_', '-')}": v for k, v in annotations.items()}}})
    say("one", compute_policy="burst")
    settle(world, (one, two), lambda a, b: a > 0.65 and abs(b - 0.3) < 0.04, "one bursts")
    say("one", compute_ceiling="50")
    settle(world, (one, two), lambda a, b: abs(a - 0.5) < 0.04 and abs(b - 0.3) < 0.04, "up to its ceiling")
    say("one", compute_policy=None, compute_ceiling=None)
    settle(world, (one, two), lambda a, b: abs(a - 0.3) < 0.04 and abs(b - 0.3) < 0.04, "30:30 again")
    say("two", compute_policy="best-effort")
    say("one", compute_policy="online")
    settle(world, (one, two), lambda a, b: a > 0.9 and b < 0.1, "online takes all that it needs")


def test_memory_limits_change_while_a_pod_runs(world, space):
    seen = space.start(pod("pod", container(core=20, memory=4 * GiB)))

    def limit(value):
        world.api.patch(f"{space.path}/pod", {"metadata": {"annotations": {LIMIT: value}}})
    with space.tenant(seen) as tenant:
        assert tenant.alloc(2 * GiB) == 0
        for value, total, result in (("1Gi", 1, OUT_OF_MEMORY), ("3Gi", 3, 0), ("main=1536Mi", 1.5, OUT_OF_MEMORY),
                                     ("64Gi", 4, 0), (None, 4, 0)):
            limit(value)
            world.until(lambda t=total: tenant.info()["total"] == int(t * GiB), 10, f"limit {value}")
            assert tenant.alloc(1 << 20) == result, value
            (told,) = holders(world.usage())["pod", "main"]
            assert told["memoryLimit"] == int(total * GiB) and told["memory"] == 4 * GiB
            assert tenant.ask("pid")["pid"] > 0         # nothing was killed
        limit("1Gi")
        world.until(lambda: holders(world.usage())["pod", "main"][0]["memoryState"] == "Lowered", 10, "the state")
        assert "Lowered" in world.aliquot("gpus")


def test_what_makes_no_sense_is_said_on_the_pod(world, space):
    """Admission would refuse it; here it is away, and the agent says it."""
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/aliquot-terms"
    stored = world.api.get(policy)
    world.api.delete(policy)
    try:
        world.until(lambda: space.create(spinner("odd", 30, compute_policy="greedy")), 20, "admission is away")
    finally:
        world.api.create(policy.rpartition("/")[0], {k: stored[k] for k in ("apiVersion", "kind", "spec")}
                         | {"metadata": {"name": "aliquot-terms"}})
    odd = space.running("odd")
    assert "compute-policy: 'greedy'" in space.event("odd", "InvalidGPUAnnotation")
    settle(world, (odd,), lambda a: abs(a - 0.3) < 0.05, "the node's policy")


def test_annotations_without_effect_are_one_event(world, space):
    space.start(pod("hinted", container(core=10, memory=GiB),
                    annotations={"nvidia.com/vgpu-mode": "mig", "volcano.sh/vgpu-mode": "mig"}))
    text = space.event("hinted", "UnservedGPUAnnotation")
    assert "nvidia.com/vgpu-mode has no effect" in text and "volcano.sh/vgpu-mode has no effect" in text


def test_the_accounts_files(world, space):
    seen = space.start(pod("pod", container(core=20, memory=4 * GiB)))
    with space.tenant(seen) as tenant:
        share = "/dev/aliquot/"
        assert tenant.ask("write", share + "compute")["errno"] == 0
        assert tenant.ask("write", share + "grants")["errno"] != 0
        # A tenant that destroys its own is reported and harms no other.
        assert tenant.ask("truncate", share + "compute", 0)["errno"] == 0
    world.until(lambda: holders(world.usage())["pod", "main"][0]["accountDamaged"], 10, "the damage is seen")
    assert world.metrics()["process_resident_memory_bytes", ()] > 0


def test_the_agent_itself(world, space):
    """Neither its memory nor its time grows with what it arbitrates."""
    space.start_all([spinner("a", 30), spinner("b", 30)])
    name = "aliquot_agent_arbiter_cpu_seconds_total", ()
    first, start = world.metrics()[name], time.monotonic()
    time.sleep(2)               # the measurement itself
    last, end = world.metrics()[name], time.monotonic()
    assert (last - first) / (end - start) < 0.01
    resident = world.metrics()["process_resident_memory_bytes", ()]
    assert resident < 9 * (1 << 20), resident
    print(f"arbiter: {(last - first) / (end - start):.2%} of a CPU; agent: {resident / (1 << 20):.1f} MiB")
