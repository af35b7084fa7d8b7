# SPDX-License-Identifier: Apache-2.0
"""Every command of the documents, and what becomes of it in the tests. `python3 tests/doc_commands.py` prints the table.

Commands are the blocks marked sh, the lines after "$ " of those marked console, and indented blocks, which begin with a
program. Files and output are in blocks marked so."""

import functools
import pathlib
import re
import subprocess
from typing import NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").glob("*.md"))]
PROGRAMS = {"aliquot", "aliquot-agent", "aliquot-scheduler", "apt-get", "cp", "ctr", "docker", "for", "git", "gpu-kit/run", "helm",
            "kind", "kubectl", "make", "mount", "openssl", "rm", "rpm", "dpkg", "skopeo", "sleep"}
LANGUAGES = {"sh", "console", "yaml", "text", "json"}
FENCE = re.compile(r"(\s*)```(\S*)\s*$")


class Command(NamedTuple):
    path: str
    line: int
    text: str
    before: tuple   # assignments of variables above it in its block


class Rule(NamedTuple):
    pattern: str    # of a whole command, or of its beginning
    how: str        # a key of HOWS
    detail: str = ""
    path: str = ""  # of the only document that it is for
    without: tuple = ()     # with "by", the options that the other test does not give


HOWS = {
    "here": "runs in a clean directory (tests/cli/test_doc_commands.py)",
    "simulated": "runs on simulated GPUs (tests/cli/test_doc_commands.py)",
    "cluster": "runs on the test cluster; what changes something there with --dry-run=server (tests/e2e/test_look.py)",
    "tutorial": "runs on the test cluster as it is, in order (tests/e2e/test_look.py)",
    "by": "is run by another test, with the same options",
    "not": "is not run: the reason",
}
REASONS = {
    "CI itself": "CI runs it (.ci/run)",
    "build": "builds the programs that the tests run",
    "PATH": "is for the reader's shell; the tests have a PATH of their own",
    "another cluster": "needs a cluster of another kind",
    "GPU": "needs a GPU",
    "hours": "measures or searches for long; its target is checked",
    "example": "names objects of its example",
    "other versions": "needs binaries of another Kubernetes",
    "waits": "waits for the clock and does nothing else",
}
HELM = "tests/e2e/test_helm.py::test_install_upgrade_rollback_uninstall"
RULES = [
    Rule("kubectl|aliquot (explain|gpus|doctor)", "tutorial", path="docs/tutorial.md"),
    Rule("kubectl -n aliquot-system delete secret aliquot-webhook", "by", "tests/e2e/test_agent_tls.py::test_revocation"),
    Rule("make demo", "by", "tests/cluster/test_demo.py::test_twice"),
    Rule("KEEP=1 make demo", "by", "tests/cluster/test_demo.py::test_twice"),
    Rule("kubectl apply -[kf] deploy/monitoring", "not", "another cluster"),
    Rule("make test$", "not", "CI itself"),
    Rule("make$", "not", "build"),
    Rule("export PATH=", "not", "PATH"),
    Rule("make test-gpu", "not", "GPU"),
    Rule("make gpu-kit", "by", "tests/gpu/test_kit.py::test_packed_folder_runs_on_older_machines"),
    Rule("make (bench|chaos)|OPENB=DIRECTORY make bench-packing", "not", "hours"),
    Rule("gpu-kit/run --simulated", "by", "tests/gpu/test_kit.py::test_in_a_bare_container_without_network"),
    Rule("gpu-kit/run --out DIR", "not", "GPU"),
    Rule("aliquot sim --gpus 8 --model H100 -- nvidia-smi", "by", "tests/sim/test_sim_readers.py::test_nvidia_smi_without_a_daemon", without=("--gpus", "--model")),
    Rule("aliquot sim --listen", "by", "tests/sim/test_sim_capabilities.py::test_a_killed_daemon_leaves_nothing"),
    Rule("aliquot sim (inject|show)", "simulated"),
    Rule("aliquot sim ", "here"),
    Rule("aliquot mig ", "simulated"),
    Rule("aliquot replay ", "here"),
    Rule("aliquot-agent --check-config", "here"),
    Rule("aliquot explain large", "not", "example"),
    Rule("aliquot (gpus|inspect|explain|defrag|plan|recommend|doctor|top)", "cluster"),
    Rule("scripts/manifests --served-elsewhere", "here"),
    Rule("ALIQUOT_BUILD=", "not", "hours"),
    Rule("ALIQUOT_KUBERNETES=DIR", "not", "other versions"),
    Rule("aliquot web", "by", "tests/cli/test_web.py::test_end"),
    Rule("aliquot uninstall", "by", "tests/e2e/test_uninstall.py::test_nothing_is_left"),
    Rule("helm install", "by", HELM),     # the files: tests/cli/test_chart.py
    Rule("helm upgrade", "by", HELM),
    Rule("helm rollback", "by", HELM),
    Rule("helm test", "by", HELM),
    Rule("helm uninstall", "by", HELM),
    Rule("kind load", "not", "another cluster"),
    Rule("cp deploy/base/kube-scheduler-configuration.yaml", "by", "tests/e2e/test_good_days.py::test_three_pods_share_one_card"),
    Rule("openssl pkey", "here"),
    Rule("sleep", "not", "waits"),
    Rule("kubectl -n kube-system patch daemonset nvidia-device-plugin-daemonset", "not", "example"),
    Rule(r"kubectl|for kind in|agent=\$\(kubectl|pem=\$\(kubectl", "cluster"),
]


def is_command(line):
    line = line.strip()
    return line.split(" ")[0] in PROGRAMS or line.startswith("scripts/") or re.match(r"[A-Za-z_]+=\S* *\S", line)


def blocks(path):
    """(number of the first line, lines) of each block of commands. What is no language that is known is an error."""
    lines = path.read_text().split("\n")
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        indented = lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip())
        end = at + 1
        if fence:
            assert fence[2] in LANGUAGES, f"{path.name}:{at + 1}: a block of {fence[2] or 'no language'}: one of {sorted(LANGUAGES)}"
            while not FENCE.match(lines[end]):
                end += 1
            body = [line.removeprefix(fence[1]) for line in lines[at + 1:end]]
            if fence[2] == "sh":
                yield at + 2, body
            elif fence[2] == "console":
                assert any(line.startswith("$ ") for line in body), f"{path.name}:{at + 1}: console without a line of \"$ \""
                yield from ((at + 2 + i, [line[2:]]) for i, line in enumerate(body) if line.startswith("$ "))
            end += 1
        elif indented:
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            width = len(lines[at]) - len(lines[at].lstrip())
            body = [line[width:] for line in lines[at:end]]
            assert is_command(body[0]), (f"{path.name}:{at + 1}: begins with no program of PROGRAMS: {body[0]} "
                                         "(a file or output is in a block of ```)")
            yield at + 1, body
        at = end


def is_whole(text):
    """Whether the shell waits for nothing more: the end of a string, a loop or a text for a program."""
    done = subprocess.run(["bash", "-n"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode == 0 and not done.stdout and not text.endswith(("\\", "|"))


def commands_of(path):
    for start, body in blocks(path):
        pending, begun, before = [], start, []
        for number, line in enumerate(body, start):
            if not pending and (not line.strip() or line.startswith("#")):
                continue
            begun = begun if pending else number
            pending.append(line)
            text = "\n".join(pending)
            if is_whole(text):
                yield Command(str(path.relative_to(TOP)), begun, text.rstrip(), tuple(before))
                if re.match(r"\w+=\$\(", text):
                    before.append(text)
                pending = []
        assert not pending, f"{path.name}:{begun}: no whole command: {pending[0]}"


@functools.cache
def commands():
    return [command for path in DOCUMENTS for command in commands_of(path)]


def rule_of(command):
    """The first one that fits, or None."""
    text = without_comment(command.text)
    return next((rule for rule in RULES if re.match(rule.pattern, text) and rule.path in ("", command.path)), None)


def without_comment(text):
    return re.sub(r"\s+#[^\n'\"]*$", "", text)


def of_kind(how):
    return [command for command in commands() if (rule := rule_of(command)) and rule.how == how]


def main():
    for command in commands():
        rule = rule_of(command)
        what = f"{rule.how}: {REASONS.get(rule.detail, rule.detail) or HOWS[rule.how]}" if rule else "NO RULE"
        print(f"{command.path}:{command.line}: {command.text.splitlines()[0]}\n    {what}")


if __name__ == "__main__":
    main()
