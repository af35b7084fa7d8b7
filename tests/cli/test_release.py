# SPDX-License-Identifier: Apache-2.0
"""scripts/release in a repository of its own. What `make images packages` builds is stood in for: it takes minutes, and
test_packages.py and test_image_builds.py are about it."""

import hashlib
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
NEXT = "9.8.7"
URL = f"https://example.com/team/aliquot/releases/download/v{NEXT}"
BUILT = """\
images packages:
\ttest ! -e $(BUILD)-broken
\tmkdir -p $(BUILD)-images $(BUILD)-packages $(BUILD)-release/src/cli
\tversion=$$(sed -n "s/^  version: '\\(.*\\)',/\\1/p" meson.build); \\
\techo image >$(BUILD)-images/aliquot-agent-$$version.tar; \\
\techo chart >$(BUILD)-packages/aliquot-$$version.tgz; \\
\tfor architecture in amd64 arm64; do \\
\t    echo $$architecture >$(BUILD)-packages/kubectl-aliquot_$${version}_linux_$$architecture.tar.gz; done; \\
\tprintf '#!/bin/sh\\necho aliquot %s\\n' $$version >$(BUILD)-release/src/cli/aliquot
\tchmod +x $(BUILD)-release/src/cli/aliquot

"""


class Repository:
    def __init__(self, path):
        self.path = path
        self.out = path / "dist"

    def run(self, *command):
        return subprocess.run(command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def git(self, *arguments):
        done = self.run("git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")

    def release(self, version=NEXT, url=URL, *options):
        return self.without_traceback("scripts/release", version, "--url", url, *options)

    def make_release(self):
        return self.without_traceback("make", "-o", "setup", "release", f"VERSION={NEXT}", f"URL={URL}")

    def without_traceback(self, *command):
        done = self.run(*command)
        assert "Traceback (most recent call last)" not in done.stdout, done.stdout
        return done

    def edit(self, path, pattern, replacement):
        text = (self.path / path).read_text()
        assert re.search(pattern, text, re.M | re.S)
        (self.path / path).write_text(re.sub(pattern, replacement, text, count=1, flags=re.M | re.S))
        self.commit()


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A repository with one commit of the files that are here."""
    here = tmp_path_factory.mktemp("sources")
    listed = subprocess.run(["git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, here / name, follow_symlinks=False)
    made = Repository(here)
    made.git("init", "--quiet")
    for key, value in (("user.name", "A"), ("user.email", "a@example.com")):
        made.git("config", key, value)
    changelog = re.sub(r"^## Unreleased\n.*?(?=^## )", "", (here / "CHANGELOG.md").read_text(), flags=re.M | re.S)
    (here / "CHANGELOG.md").write_text(changelog.replace("\n## ", "\n## Unreleased\n\n- News.\n\n## ", 1))
    made.edit("Makefile", r"^optimized-arm64: .*?(?=^install:)", BUILT.replace("\\", "\\\\"))
    return here


@pytest.fixture
def repository(sources, tmp_path):
    shutil.copytree(sources, tmp_path / "repository", symlinks=True)
    return Repository(tmp_path / "repository")


def test_a_release_is_whole(repository):
    before = repository.git("rev-parse", "HEAD")
    done = repository.make_release()
    assert done.returncode == 0, done.stdout
    assert f"git push origin HEAD v{NEXT}" in done.stdout
    assert repository.git("rev-parse", "HEAD^") == before and repository.git("status", "--porcelain") == ""
    assert repository.git("rev-parse", f"v{NEXT}^{{commit}}") == repository.git("rev-parse", "HEAD")
    said = {path: (repository.path / path).read_text() for path in (
        "meson.build", "charts/aliquot/Chart.yaml", "deploy/base/agent.yaml", "deploy/base/scheduler.yaml", "CHANGELOG.md")}
    assert all(NEXT in text for text in said.values())
    assert re.search(rf"^## {NEXT} \(\d{{4}}-\d\d-\d\d\)\n\n- News\.$", said["CHANGELOG.md"], re.M)
    assert "## Unreleased" not in said["CHANGELOG.md"]
    assert {path.name for path in repository.out.iterdir()} == {
        f"aliquot-agent-{NEXT}.tar", f"aliquot-{NEXT}.tgz", f"aliquot-{NEXT}-source.tar.gz", "aliquot.yaml", "SHA256SUMS",
        f"kubectl-aliquot_{NEXT}_linux_amd64.tar.gz", f"kubectl-aliquot_{NEXT}_linux_arm64.tar.gz"}
    sums = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=repository.out, stdout=subprocess.PIPE, text=True)
    assert sums.returncode == 0 and len(sums.stdout.splitlines()) == 6
    assert_krew_takes(yaml.safe_load((repository.out / "aliquot.yaml").read_text()), repository.out)

    first = {path.name: path.read_bytes() for path in repository.out.iterdir()}
    again = repository.make_release()
    assert again.returncode == 0, again.stdout
    assert repository.git("rev-parse", "HEAD^") == before
    assert {path.name: path.read_bytes() for path in repository.out.iterdir()} == first


def assert_krew_takes(manifest, out):
    """The rules of krew 0.4 (internal/index/validation, internal/installation) and of its index."""
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z][a-z0-9-]*", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert set(spec) == {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert spec["version"] == f"v{NEXT}" and spec["homepage"] == "https://example.com/team/aliquot"
    assert "\n" not in spec["shortDescription"] and len(spec["shortDescription"]) <= 50
    assert [platform["selector"] for platform in spec["platforms"]] == [
        {"matchLabels": {"os": "linux", "arch": architecture}} for architecture in ("amd64", "arm64")]
    for platform in spec["platforms"]:
        assert platform["bin"] == "bin/kubectl-aliquot" and platform["uri"].startswith(URL + "/")
        archive = out / platform["uri"].rpartition("/")[2]
        assert archive.name.endswith(f"_linux_{platform['selector']['matchLabels']['arch']}.tar.gz")
        assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()


def test_release_continues_after_failed_build(repository):
    broken = repository.path / "build-broken"
    broken.mkdir()
    done = repository.make_release()
    assert done.returncode != 0 and "make images packages has failed: fix it, and run this again" in done.stdout
    assert repository.git("tag") == "" and not repository.out.exists()
    prepared = repository.git("rev-parse", "HEAD")
    broken.rmdir()
    assert repository.make_release().returncode == 0
    assert repository.git("rev-parse", "HEAD", f"v{NEXT}^{{commit}}").split() == [prepared, prepared]


def test_what_cannot_be_prepared_leaves_no_change(repository):
    repository.edit("src/model/dialects.def", r"^QUANTITY\(", "QUANTTY(")
    before = repository.git("rev-parse", "HEAD")
    done = repository.release()
    assert done.returncode != 0 and "not one row of a macro" in done.stdout
    assert "scripts/manifests has failed: fix it, and run this again" in done.stdout
    assert repository.git("status", "--porcelain") == "" and repository.git("rev-parse", "HEAD") == before


def test_a_tree_with_changes_is_refused(repository):
    (repository.path / "new-file").touch()
    done = repository.release()
    assert done.returncode == 1 and "commit or remove them:\n?? new-file\n" in done.stdout
    (repository.path / "new-file").unlink()
    with open(repository.path / "README.md", "a") as readme:
        readme.write("more\n")
    done = repository.release()
    assert done.returncode == 1 and "README.md" in done.stdout


@pytest.mark.parametrize("version, url, reason", [
    ("9.8", URL, "9.8 is no version: write x.y.z"),
    ("v9.8.7", URL, "is no version"),
    ("9.8.7-dev", URL, "is no version"),
    ("09.8.7", URL, "is no version"),
    (NEXT, "", "write where the files will be found"),
    (NEXT, "http://example.com/x", "write where the files will be found"),
    (NEXT, URL.replace(NEXT, "9.8.6"), f"does not name the version {NEXT}"),
    (NEXT, URL + "1", f"does not name the version {NEXT}"),
    (NEXT, URL.replace(NEXT, "1" + NEXT), f"does not name the version {NEXT}"),
    ("", URL, "(empty) is no version"),
    ("0.0.1", URL.replace(NEXT, "0.0.1"), "0.0.1 is not newer than "),
])
def test_arguments_that_cannot_be(repository, version, url, reason):
    before = repository.git("rev-parse", "HEAD")
    done = repository.release(version, url)
    assert done.returncode != 0 and reason in done.stdout
    assert repository.git("rev-parse", "HEAD") == before


def test_nothing_to_release(repository):
    repository.edit("CHANGELOG.md", r"\n- News\.\n", "")
    done = repository.release()
    assert done.returncode == 1 and 'nothing under "## Unreleased"' in done.stdout


def test_a_version_that_the_changelog_has_not(repository):
    repository.edit("meson.build", r"^  version: '.*?'", f"  version: '{NEXT}'")
    done = repository.release()
    assert done.returncode == 1 and "CHANGELOG.md does not" in done.stdout


def test_a_tag_elsewhere_is_left(repository):
    assert repository.release(NEXT, URL, "--prepare").returncode == 0
    repository.git("tag", f"v{NEXT}")
    repository.commit()
    done = repository.release()
    assert done.returncode == 1 and f"v{NEXT} is there already" in done.stdout


@pytest.mark.parametrize("given", [(), (f"VERSION={NEXT}",), (f"URL={URL}",)])
def test_make_without_a_version_or_url_says_what_is_missing(repository, given):
    before = repository.git("rev-parse", "HEAD")
    done = repository.run("make", "-o", "setup", "release", *given)
    assert done.returncode != 0 and "usage: make release VERSION=x.y.z URL=https://..." in done.stdout
    assert repository.git("rev-parse", "HEAD") == before


@pytest.mark.parametrize("target", ["optimized", "images", "packages"])
def test_no_other_target_makes_a_release(repository, target):
    """Of the Makefile that is here, whatever it is given."""
    shutil.copy(TOP / "Makefile", repository.path)
    planned = repository.run("make", "--dry-run", "-o", "setup", target, f"VERSION={NEXT}", f"URL={URL}")
    assert planned.returncode == 0 and "ninja -C build-release" in planned.stdout and "scripts/release" not in planned.stdout


@pytest.mark.parametrize("files", [{}, {"notes": ""}, {"notes": "", "SHA256SUMS": ""}, {"SHA256SUMS": "0  gone\n"}])
def test_a_directory_that_is_no_release_is_left(repository, tmp_path, files):
    out = tmp_path / "mine"
    out.mkdir()
    for name, text in files.items():
        (out / name).write_text(text)
    done = repository.release(NEXT, URL, "--out", str(out))
    assert "fatal" not in done.stdout       # of git, about a directory outside
    assert done.returncode == 1 and f"{out} is there and is no release of this script" in done.stdout
    assert {path.name for path in out.iterdir()} == files.keys()
    assert repository.git("tag") == ""


def test_a_release_in_a_directory_of_choice_is_built_again(repository, tmp_path):
    for _ in range(2):
        done = repository.release(NEXT, URL, "--out", str(tmp_path / "given"))
        assert done.returncode == 0, done.stdout
    assert "SHA256SUMS" in {path.name for path in (tmp_path / "given").iterdir()} and not repository.out.exists()
