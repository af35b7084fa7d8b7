# SPDX-License-Identifier: Apache-2.0
"""`aliquot mig` on simulated cards: mig-parted's commands, beside instances in use."""

import json
import os
import re
import subprocess
import sys

import pynvml
import pytest
from sim_kit import ALIQUOT, GIB
from test_sim_inject import NVML_CLIENT
from test_sim_mig import parts


def mig(node, *words, text=None, **variables):
    """This process lets go of the cards meanwhile: a client of NVML is in the way of a mode change. `variables`: of
    MIG_PARTED_, in the environment."""
    named = {f"MIG_PARTED_{name}": str(value) for name, value in variables.items()}
    pynvml.nvmlShutdown()
    try:
        return subprocess.run([ALIQUOT, "mig", *words], env=node.env(**named), input=text, text=True,
                              capture_output=True, timeout=60, check=False)
    finally:
        pynvml.nvmlInit()


def config(devices, enabled=True):
    return json.dumps({"version": "v1", "mig-configs": {"wanted": [
        {"devices": "all", "mig-enabled": enabled, "mig-devices": devices}]}})


def apply(node, devices, *options, enabled=True, also=()):
    return mig(node, *options, "apply", "-f", "-", *also, text=config(devices, enabled))


def exported(node):
    r = mig(node, "export", "-o", "json")
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)["mig-configs"]["current"]


def uuids(nvml, gpu):
    return {nvml.nvmlDeviceGetUUID(p): nvml.nvmlDeviceGetName(p).split(" MIG ")[1]
            for p in parts(nvml, gpu)}


def hold(node, uuid):
    p = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=uuid)
    assert p.stdout.readline().split()[0] == "0"
    return p


def end(process):
    process.kill()
    process.wait()


def test_beside_one_in_use(on):
    """What mig-parted 0.15 fails at, with the idle instance gone."""
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert apply(node, {"3g.40gb": 1, "2g.20gb": 1}).returncode == 0
    used = next(u for u, name in uuids(nvml, gpu).items() if name == "3g.40gb")
    process = hold(node, used)
    r = apply(node, {"3g.40gb": 1, "1g.10gb": 2})
    assert (r.returncode, r.stdout) == (0, "wanted is applied\n"), r.stderr
    now = uuids(nvml, gpu)
    assert now[used] == "3g.40gb" and sorted(now.values()) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    assert process.poll() is None
    end(process)


def test_pending_names_the_process_and_changes_nothing(on):
    node, nvml = on("--machine", "mig")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    before = exported(node), uuids(nvml, gpu)
    process = hold(node, next(u for u, name in before[1].items() if name == "2g.20gb"))
    wanted = json.dumps({"version": "v1", "mig-configs": {"seven": [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}]}})
    r = mig(node, "apply", "-f", "-", text=wanted)
    assert r.returncode == 1
    assert re.search(rf"GPU 0: pending: in use: instance \d \(2g.20gb at \d\) of "
                     rf"process {process.pid} \(sim-hold\)\n", r.stderr), r.stderr
    assert (exported(node), uuids(nvml, gpu)) == before
    end(process)
    assert mig(node, "apply", "-f", "-", text=wanted).returncode == 0
    assert list(uuids(nvml, gpu).values()) == ["7g.80gb"]


@pytest.fixture
def kubelet(tmp_path):
    """Its directory, and a function that gives a device to a pod."""
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "pods").mkdir()
    entries = []

    def give(uuid, pod_uid):
        entries.append({"PodUID": pod_uid, "ContainerName": "c", "ResourceName": "nvidia.com/mig",
                        "DeviceIDs": {"-1": [uuid]}, "AllocResp": ""})
        (tmp_path / "pods" / pod_uid).mkdir()
        (tmp_path / "device-plugins/kubelet_internal_checkpoint").write_text(
            json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}},
                        "Checksum": 1}))

    give.options = ["--kubelet-dir", str(tmp_path), "--pod-logs", str(tmp_path / "logs")]
    give.dir = tmp_path
    return give


def test_what_a_pod_holds_waits(on, kubelet):
    """Also where none of its processes has begun to compute."""
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert apply(node, {"3g.40gb": 1, "2g.20gb": 1}).returncode == 0
    before = uuids(nvml, gpu)
    held = next(u for u, name in before.items() if name == "3g.40gb")
    kubelet(held, "11-22")
    kubelet("MIG-of-another-card", "33-44")
    (kubelet.dir / "logs" / "team-a_note-book_11-22").mkdir(parents=True)
    wanted = config({"7g.80gb": 1})
    r = mig(node, "apply", *kubelet.options, "-f", "-", text=wanted)
    assert r.returncode == 1 and uuids(nvml, gpu) == before
    assert re.search(r"pending: in use: instance \d \(3g.40gb at \d\) of pod team-a/note-book\n",
                     r.stderr), r.stderr
    r = mig(node, "apply", *kubelet.options, "-f", "-", text=config({"3g.40gb": 1, "1g.10gb": 1}))
    assert r.returncode == 0 and held in uuids(nvml, gpu), r.stderr
    (kubelet.dir / "pods/11-22").rmdir()
    # Kubelet makes the directory after the entry: for seconds the pod may be about to begin.
    kubelet("MIG-of-another-card", "55-66")
    r = mig(node, "apply", *kubelet.options, "-f", "-", text=wanted)
    assert r.returncode == 1 and "pending" in r.stderr, r.stderr
    os.utime(kubelet.dir / "device-plugins/kubelet_internal_checkpoint", (0, 0))
    assert mig(node, "apply", *kubelet.options, "-f", "-", text=wanted).returncode == 0
    assert list(uuids(nvml, gpu).values()) == ["7g.80gb"]


def test_the_mode_of_a_card_that_a_pod_holds(on, kubelet):
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    kubelet(nvml.nvmlDeviceGetUUID(gpu) + "::3", "11-22")
    r = mig(node, "apply", *kubelet.options, "-c", "all-balanced")
    assert r.returncode == 1 and "the card by pod 11-22" in r.stderr, r.stderr
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]


@pytest.mark.parametrize("text", ["{", "[]", '{"Data": 1}', '{"Data": {"PodDeviceEntries": [{}]}}'])
def test_a_damaged_checkpoint_stops_it(on, kubelet, text):
    node, nvml = on("--model", "A100")
    (kubelet.dir / "device-plugins/kubelet_internal_checkpoint").write_text(text)
    r = mig(node, "apply", *kubelet.options, "-c", "all-balanced")
    assert r.returncode == 1 and "kubelet_internal_checkpoint" in r.stderr
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0)) == [0, 0]


def test_a_missing_checkpoint(on, kubelet):
    """A wrong --kubelet-dir would make what pods hold look idle."""
    node, nvml = on("--model", "A100")
    r = mig(node, "apply", *kubelet.options, "-c", "all-balanced")
    assert r.returncode == 1 and "kubelet_internal_checkpoint" in r.stderr, r.stderr
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0)) == [0, 0]
    if not os.path.exists("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"):
        r = mig(node, "apply", "-c", "all-enabled")
        assert "warning: no /var/lib/kubelet" in r.stderr, r.stderr


def test_other_cards_do_not_wait(on):
    node, nvml = on("--machine", "mig")
    seven = nvml.nvmlDeviceGetHandleByIndex(1)
    process = hold(node, next(iter(uuids(nvml, seven))))
    r = apply(node, {"3g.40gb": 2})
    assert r.returncode == 1 and "GPU 1: pending" in r.stderr and "GPU 0" not in r.stderr
    assert [len(parts(nvml, nvml.nvmlDeviceGetHandleByIndex(i))) for i in range(3)] == [2, 7, 2]
    end(process)


def test_export_is_applied_elsewhere(on):
    node, _ = on("--machine", "mig")
    file = mig(node, "export", "-l", "there").stdout
    assert mig(node, "apply", "-f", "-", text=config({}, enabled=False)).returncode == 0
    assert exported(node) == [{"devices": "all", "mig-enabled": False, "mig-devices": {}}]
    assert mig(node, "assert", "-f", "-", text=file).returncode == 1
    assert mig(node, "apply", "-f", "-", "-c", "there", text=file).returncode == 0
    assert mig(node, "assert", "-f", "-", text=file).returncode == 0
    again = mig(node, "-d", "apply", "-f", "-", text=file)
    assert again.returncode == 0 and again.stderr.count(": 0 changes in") == 3
    assert mig(node, "export", "-l", "there").stdout == file


def test_generated_configurations(on):
    node, _ = on("--gpus", "2", "--model", "H100,A30")
    names = json.loads(mig(node, "generate-config", "-o", "json").stdout)["mig-configs"]
    assert {"all-disabled", "all-enabled", "all-balanced", "all-1g.10gb", "all-1g.10gb.me",
            "all-1g.6gb", "all-4g.24gb", "all-7g.80gb"} <= set(names)
    assert len(names["all-balanced"]) == 2 and all("device-filter" in e for e in names["all-balanced"])
    for name in names:      # every one of them can be made, whatever there was
        assert mig(node, "apply", "-c", name).returncode == 0, name
        r = mig(node, "assert", "-c", name)
        everywhere = {e.get("device-filter") for e in names[name]}
        assert r.returncode == (0 if None in everywhere or len(names[name]) == 2 else 1), name


def test_mode_only(on):
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert apply(node, {"1g.10gb": 1}, enabled=True).returncode == 0
    on_file = config({"3g.40gb": 1})
    assert mig(node, "apply", "-m", "-f", "-", text=on_file).returncode == 0
    assert list(uuids(nvml, gpu).values()) == ["1g.10gb"]
    assert mig(node, "assert", "-m", "-f", "-", text=on_file).returncode == 0
    assert mig(node, "assert", "-f", "-", text=on_file).returncode == 1


def test_a_mode_change_waits_for_an_idle_card(on):
    node, nvml = on("--model", "A100")
    process, _, _ = node.hold(GIB)
    r = apply(node, {"3g.40gb": 1})
    assert r.returncode == 1 and f"the card by process {process.pid}" in r.stderr
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0)) == [0, 0]
    end(process)
    assert apply(node, {"3g.40gb": 1}).returncode == 0


def test_a_client_of_nvml_is_in_the_way_of_a_mode_change(on):
    """As the agent is. Instances change beside it, and no mode is left pending."""
    node, nvml = on("--model", "A100")
    client = subprocess.Popen([sys.executable, "-c", NVML_CLIENT], env=node.env(), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    node.children.append(client)

    def tell(line):
        client.stdin.write(f"{line}\n")
        client.stdin.flush()
        assert client.stdout.readline() == "done\n"

    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    tell(0)
    r = apply(node, {"3g.40gb": 1})
    assert r.returncode == 1 and "pending: in use" in r.stderr, r.stderr
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    tell("close")
    assert apply(node, {"3g.40gb": 1}).returncode == 0
    tell("open")
    tell(0)
    assert apply(node, {"2g.20gb": 1}).returncode == 0
    assert list(uuids(nvml, gpu).values()) == ["2g.20gb"]


def test_a_mode_that_needs_a_reset(machine_of):
    node, nvml = machine_of("[machine]\nmig-change = reset\n[gpu 0]\nmodel = A100\n")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    r = apply(node, {"3g.40gb": 1})
    assert r.returncode == 1 and "MIG mode is pending until the card is reset" in r.stderr
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
    node.inject("reset", "--force", "--gpu", 0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert apply(node, {"3g.40gb": 1}).returncode == 0
    assert list(uuids(nvml, gpu).values()) == ["3g.40gb"]


@pytest.mark.parametrize("words, text, cause", [
    (["apply", "-f", "-"], "version: v1\nmig-configs:\n  a:\n  - devices: all\n    mig-enable: true\n",
     "line 5"),
    (["apply", "-f", "-", "-c", "b"], config({}), "no configuration 'b'; there are: wanted"),
    (["apply", "-f", "/nonexistent"], "", "/nonexistent"),
    (["apply", "-f", "-"], config({"1g.5gb": 1}), "GPU 0: the card has no profile 1g.5gb"),
    (["apply", "-f", "-"], config({"4g.40gb": 1, "3g.40gb": 1, "1g.10gb": 1}), "do not fit"),
    (["apply", "-x"], "", "--help"),
    (["nonsense"], "", "no command 'nonsense'"),
    ([], "", "no command"),
    (["export", "-o", "xml"], "", "expected yaml or json"),
    (["assert"], "", "must be selected"),
])
def test_refused(on, words, text, cause):
    node, nvml = on("--model", "A100")
    assert apply(node, {"2g.20gb": 1}).returncode == 0
    r = mig(node, *words, text=text)
    assert r.returncode == 1 and cause in r.stderr and not r.stdout, r.stderr
    assert list(uuids(nvml, nvml.nvmlDeviceGetHandleByIndex(0)).values()) == ["2g.20gb"]


def hooks_of(path, **scripts):
    """A hooks file whose hooks add their name and the configuration to path / "log"."""
    names = ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")
    (path / "hooks").write_text(json.dumps({"version": "v1", "hooks": {name: [
        {"command": "sh", "workdir": str(path), "envs": {"WHO": name, "MIG_PARTED_SELECTED_CONFIG": "is ours"},
         "args": ["-c", scripts.get(name.replace("-", "_"), "") + "echo $WHO $MIG_PARTED_SELECTED_CONFIG >>log"]}]
        for name in names}}))
    return str(path / "hooks")


def lines(path):
    found = (path / "log").read_text().splitlines()
    (path / "log").unlink()
    return found


def test_hooks(on, tmp_path):
    """The first and the last one always, those before a change only where there is one, as with mig-parted."""
    node, nvml = on("--model", "A100")
    file = hooks_of(tmp_path)
    assert apply(node, {"2g.20gb": 1}, also=("-k", file)).returncode == 0
    assert lines(tmp_path) == [f"{name} wanted" for name in
                               ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")]
    assert apply(node, {"2g.20gb": 1}, also=("--hooks-file", file)).returncode == 0
    assert lines(tmp_path) == ["apply-start wanted", "apply-exit wanted"]
    file = hooks_of(tmp_path, pre_apply_config="echo no >&2; exit 2; ")
    r = apply(node, {"3g.40gb": 1}, also=("-k", file))
    assert r.returncode == 1 and "hook pre-apply-config: sh ended with status 2: no\n" in r.stderr, r.stderr
    assert lines(tmp_path) == ["apply-start wanted", "apply-exit wanted"]
    assert list(uuids(nvml, nvml.nvmlDeviceGetHandleByIndex(0)).values()) == ["2g.20gb"]
    r = apply(node, {"3g.40gb": 1}, also=("-k", hooks_of(tmp_path, apply_exit="exit 3; ")))
    assert r.returncode == 1 and "hook apply-exit: sh ended with status 3\n" in r.stderr, r.stderr
    assert list(uuids(nvml, nvml.nvmlDeviceGetHandleByIndex(0)).values()) == ["3g.40gb"]
    (tmp_path / "hooks").write_text("hooks: {pre-apply: []}")
    r = apply(node, {"2g.20gb": 1}, also=("-k", file))
    assert r.returncode == 1 and "line 1" in r.stderr, r.stderr
    assert list(uuids(nvml, nvml.nvmlDeviceGetHandleByIndex(0)).values()) == ["3g.40gb"]


def test_options_by_the_environment(on, tmp_path):
    """mig-parted's names; an option takes precedence."""
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    file = tmp_path / "config"
    made = {name: [{"devices": "all", "mig-enabled": True, "mig-devices": {name: 1}}] for name in ("2g.20gb", "3g.40gb")}
    file.write_text(json.dumps({"version": "v1", "mig-configs": made}))

    def selected(name, *words, **more):
        return mig(node, *words, **{"CONFIG_FILE": file, "SELECTED_CONFIG": name, **more})
    assert selected("2g.20gb", "apply", MODE_CHANGE_ONLY="true").returncode == 0
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1] and not uuids(nvml, gpu)
    hooks = hooks_of(tmp_path)
    r = selected("2g.20gb", "apply", HOOKS_FILE=hooks, DEBUG="true")
    assert r.returncode == 0 and " changes in " in r.stderr, r.stderr
    assert lines(tmp_path) == [f"{name} 2g.20gb" for name in ("apply-start", "pre-apply-config", "apply-exit")]
    r = selected("2g.20gb", "apply", "-c", "3g.40gb", "-f", str(file), CONFIG_FILE="/nonexistent")
    assert r.returncode == 0 and list(uuids(nvml, gpu).values()) == ["3g.40gb"], r.stderr
    assert selected("3g.40gb", "assert").returncode == 0
    assert selected("2g.20gb", "assert").returncode == 1
    assert selected("2g.20gb", "assert", MODE_CHANGE_ONLY="true").returncode == 0
    assert selected("2g.20gb", "assert", VALID_CONFIG="true").stdout == "2g.20gb is valid\n"
    r = mig(node, "export", OUTPUT_FORMAT="json", CONFIG_LABEL="here")
    assert list(json.loads(r.stdout)["mig-configs"]) == ["here"]
    r = mig(node, "generate-config", OUTPUT_FORMAT="json", OUTPUT_FILE=tmp_path / "made")
    assert (r.returncode, r.stdout) == (0, "") and "all-balanced" in json.loads((tmp_path / "made").read_text())["mig-configs"]


@pytest.mark.parametrize("skip", [{"also": ("-s",)}, {"SKIP_RESET": "true"}], ids=["option", "variable"])
def test_a_mode_whose_reset_is_left_to_others(machine_of, skip):
    """It is no failure; the instances are made when the card has been reset."""
    node, nvml = machine_of("[machine]\nmig-change = reset\n[gpu 0]\nmodel = A100\n")
    also = skip.pop("also", ())
    r = mig(node, "apply", "-f", "-", *also, text=config({"3g.40gb": 1}), **skip)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert r.returncode == 0 and nvml.nvmlDeviceGetMigMode(gpu) == [0, 1], r.stderr
    assert not uuids(nvml, gpu)
    node.inject("reset", "--force", "--gpu", 0)
    assert apply(node, {"3g.40gb": 1}).returncode == 0
    assert list(uuids(nvml, gpu).values()) == ["3g.40gb"]


@pytest.mark.parametrize("fault", [("lose",), ("xid", 48)])
def test_a_card_that_cannot_be_read(on, fault):
    """It is named, and the other cards are processed."""
    node, nvml = on("--gpus", "2", "--model", "A100")
    node.inject(*fault, "--gpu", 1)
    r = apply(node, {"2g.20gb": 1})
    assert r.returncode == 1 and "GPU 1: " in r.stderr and not r.stdout, r.stderr
    assert list(uuids(nvml, nvml.nvmlDeviceGetHandleByIndex(0)).values()) == ["2g.20gb"]
    r = mig(node, "assert", "-f", "-", text=config({"2g.20gb": 1}))
    assert r.returncode == 1 and "GPU 1: " in r.stderr and not r.stdout, r.stderr
    r = mig(node, "export", "-o", "json")
    assert r.returncode == 1 and "GPU 1: " in r.stderr and "2g.20gb" in r.stdout, r.stderr


def test_a_card_without_mig(on):
    node, _ = on("--gpus", "2", "--model", "A100,T4")
    assert apply(node, {"1g.10gb": 7}).returncode == 0      # "all" are those that can
    named = json.dumps({"version": "v1", "mig-configs": {"x": [
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]}})
    r = mig(node, "apply", "-f", "-", text=named)
    assert r.returncode == 1 and "GPU 1 has no MIG" in r.stderr
    assert exported(node)[1] == {"device-filter": "0x1EB810DE", "devices": "all",
                                 "mig-enabled": False, "mig-devices": {}}


def test_valid_config_needs_no_driver(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(config({"1g.10gb": 7}))
    r = subprocess.run([ALIQUOT, "mig", "assert", "-a", "-f", file], capture_output=True, text=True,
                       env={"LD_LIBRARY_PATH": "/nonexistent"}, check=False)
    assert (r.returncode, r.stdout) == (0, "wanted is valid\n"), r.stderr


def test_one_instance_beside_six_busy_ones(on):
    """The goal is one second beyond the driver's own time."""
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert apply(node, {"1g.10gb": 7}).returncode == 0
    before = list(uuids(nvml, gpu))
    busy = [hold(node, u) for u in before[:6]]
    r = apply(node, {"1g.10gb": 6, "1g.10gb+me": 1}, "-d")
    assert r.returncode == 0, r.stderr
    changes, total, driver = map(int, re.search(
        r"(\d+) changes in (\d+) us, of them in the driver (\d+) us", r.stderr).groups())
    print(f"{changes} changes in {total} us, of them in the driver {driver} us")
    assert changes == 4 and total - driver < 1_000_000
    assert set(before[:6]) < set(uuids(nvml, gpu))
    for p in busy:
        end(p)
