# SPDX-License-Identifier: Apache-2.0
"""The packages of command line, simulator and library, as Debian, RPM and plugin of kubectl: installed, used and removed in a
root that has nothing but what they depend on. Needs patchelf, rpm and Debian's archive. Those for arm64: tests/arm64.py."""

import hashlib
import os
import re
import subprocess
import tarfile

import pytest

from conftest import TOP

pytestmark = [pytest.mark.foreign, pytest.mark.long]

GLIBC = ["libc6", "busybox-static"]
SYSTEM = [*GLIBC, "libgcc-s1", "libstdc++6"]
DEBIAN = [*SYSTEM, "libdeflate0", "libffi8", "libgmp10", "libgnutls30", "libhogweed6", "libidn2-0", "libmicrohttpd12", "libnettle8",
          "libp11-kit0", "libsimdjson14", "libtasn1-6", "libunistring2", "libuv1", "libyaml-0-2"]
# The newest versions of symbols in RHEL 9: glibc 2.34, libstdc++ and libgcc_s of GCC 11.
RHEL9 = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
DATABASES = ("var/lib/dpkg/", "var/lib/rpm/", "var/log/")


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def release(build, tmp_path_factory):
    """Packages of the build under test, made twice."""
    made = []
    for name in ("one", "two"):
        out = tmp_path_factory.mktemp(name)
        run(TOP / "scripts/make-packages", "--build", build, "--out", out, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        made.append({path.suffix[1:]: path for path in out.iterdir()})
    return made


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    where = tmp_path_factory.mktemp("archives")
    run("apt-get", "-q", "-q", "-o", "APT::Sandbox::User=root", "download", *DEBIAN, cwd=where)
    return {path.name.split("_")[0]: path for path in where.iterdir()}


def make_root(root, archives, names):
    """Debian packages, unpacked, with a database that lists them as installed."""
    for directory in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/bin", "usr/lib", "usr/share/doc", "dev", "proc",
                      "tmp", "var/lib/rpm"):
        (root / directory).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib64").mkdir()
    (root / "lib64").symlink_to("usr/lib64")
    status = ""
    for name in names:
        run("sh", "-euc", 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"', archives[name], root)
        (root / f"var/lib/dpkg/info/{name}.list").write_text("/.\n")
        status += run("dpkg-deb", "-f", archives[name]) + "Status: install ok installed\n\n"
    (root / "var/lib/dpkg/status").write_text(status)
    return root


def tree(root):
    """What is there, but for the databases of the package managers."""
    found = {}
    for directory, directories, names in os.walk(root):
        for name in (*directories, *names):
            path = os.path.join(directory, name)
            place = os.path.relpath(path, root)
            if not f"{place}/".startswith(DATABASES):
                found[place] = os.readlink(path) if os.path.islink(path) else os.path.isfile(path) and hashlib.sha256(
                    open(path, "rb").read()).hexdigest()
    return found


def inside(root, *command):
    return run("bwrap", "--bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv",
               "--setenv", "PATH", "/usr/bin", *command)


def use(root, build):
    assert "Shares GPUs" in inside(root, "aliquot", "--help")
    assert "Machines: a100x4-nvlink" in inside(root, "aliquot", "sim", "--help")
    tenant = ["--ro-bind", build / "tests/workloads/cuda-share", "/tmp/cuda-share"]
    seen = inside(root, *tenant, "aliquot", "sim", "--gpus", "2", "--model", "H100", "--", "/tmp/cuda-share")
    limited = inside(root, *tenant, "aliquot", "sim", "--", "aliquot", "run", "--memory", "4Gi", "--", "/tmp/cuda-share")
    assert str(4 << 30) not in seen and str(4 << 30) in limited
    inside(root, "kubectl-aliquot", "--help")


def test_packages_are_the_same_bytes_each_time(release):
    one, two = release
    version = re.search(r"^  version: '(.+?)'", (TOP / "meson.build").read_text(), re.M)[1].replace("-", "~")
    assert run("dpkg-deb", "-f", one["deb"], "Version").strip() == version
    assert run("rpm", "-qp", "--queryformat", "%{VERSION}", one["rpm"]) == version
    assert sorted(one) == sorted(two) == ["deb", "gz", "rpm", "tgz"]
    assert [kind for kind in one if one[kind].read_bytes() != two[kind].read_bytes()] == []


def test_debian_package_is_installed_used_and_removed(release, archives, build, tmp_path):
    package = release[0]["deb"]
    root = make_root(tmp_path / "root", archives, DEBIAN)
    before = tree(root)
    dpkg = ["dpkg", f"--root={root}", "--log=/dev/null", "--force-script-chrootless"]
    run(*dpkg, "--install", package)
    use(root, build)
    run(*dpkg, "--purge", "aliquot")
    assert tree(root) == before


def test_debian_package_names_what_it_needs(release, archives, tmp_path):
    root = make_root(tmp_path / "root", archives, GLIBC)
    done = subprocess.run(["dpkg", f"--root={root}", "--log=/dev/null", "--install", release[0]["deb"]],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode != 0 and "aliquot depends on libsimdjson14" in done.stdout


def test_rpm_package_is_installed_used_and_removed(release, archives, build, tmp_path):
    """It needs glibc, libstdc++ and libgcc_s, and nothing else, so the root has no database that could tell."""
    package = release[0]["rpm"]
    needed = needs(package)
    system = r"(libc|libm|libstdc\+\+|libgcc_s|ld-linux-[\w-]+)\.so\."
    assert all(re.match(rf"rpmlib\(|{system}|rtld\(|glibc >= ", one) for one in needed), needed
    provided = run("rpm", "-qp", "--provides", package).splitlines()
    assert provided and all(re.match(r"aliquot(\(.*\))? = ", one) for one in provided), provided     # and no libcuda.so.1
    root = make_root(tmp_path / "root", archives, SYSTEM)
    before = tree(root)
    rpm = ["rpm", f"--root={root}", "--dbpath=/var/lib/rpm"]
    run(*rpm, "--initdb")
    run(*rpm, "--install", "--nodeps", package)
    use(root, build)
    run(*rpm, "--erase", "aliquot")
    assert tree(root) == before


def needs(package):
    return run("rpm", "-qp", "--requires", package).splitlines()


def has(newest, need):
    """Whether a system with these versions of symbols provides it."""
    version = re.search(r"\((GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\)", need)
    return not version or tuple(map(int, version[2].split("."))) <= newest[version[1]]


@pytest.mark.parametrize("glibc, refused", [((2, 34), False), ((2, 33), True)])
def test_rpm_package_names_the_glibc_that_it_needs(release, tmp_path, glibc, refused):
    """RHEL 9 takes it, by the versions of symbols that it has. A system with an older glibc refuses it, and says why."""
    package = release[0]["rpm"]
    provided = [one for one in needs(package) if not re.match(r"rpmlib\(|glibc ", one) and has({**RHEL9, "GLIBC": glibc}, one)]
    (tmp_path / "system.spec").write_text(
        f"Name: glibc\nVersion: {'.'.join(map(str, glibc))}\nRelease: 1\nSummary: a system\nLicense: none\n"
        + "".join(f"Provides: {one}\n" for one in provided) + "%description\n%files\n")
    run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {tmp_path}", tmp_path / "system.spec")
    (system,) = tmp_path.rglob("glibc-*.rpm")
    root = tmp_path / "root"
    (root / "var/lib/rpm").mkdir(parents=True)
    rpm = ["rpm", f"--root={root}", "--dbpath=/var/lib/rpm"]
    run(*rpm, "--initdb")
    run(*rpm, "--install", system)
    done = subprocess.run([*rpm, "--install", "--test", package], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.returncode != 0) == refused, done.stdout
    assert ("glibc >= 2.34 is needed by aliquot-" in done.stdout) == refused, done.stdout


def test_plugin_of_kubectl_runs_from_any_directory(release, archives, build, tmp_path):
    """It has files only, as krew takes them, and krew's link in PATH leads to it."""
    root = make_root(tmp_path / "root", archives, SYSTEM)
    with tarfile.open(release[0]["gz"]) as archive:
        assert all(member.isfile() and ".." not in member.name for member in archive)
        names = set(archive.getnames())
        assert {"bin/kubectl-aliquot", "LICENSE"} <= names
        bundled = {os.path.basename(name) for name in names if name.startswith("lib/aliquot/bundle/")}
        assert {"libyaml-0-2.copyright", "libsimdjson14.copyright"} <= bundled
        archive.extractall(root / "store")
    (root / "usr/bin/kubectl-aliquot").symlink_to("/store/bin/kubectl-aliquot")
    tenant = ["--ro-bind", build / "tests/workloads/cuda-share", "/tmp/cuda-share"]
    assert "Shares GPUs" in inside(root, "kubectl-aliquot", "--help")
    limited = inside(root, *tenant, "kubectl-aliquot", "sim", "--", "kubectl-aliquot", "run", "--memory", "4Gi", "--", "/tmp/cuda-share")
    assert str(4 << 30) in limited


def test_chart_has_what_git_knows(release):
    """And no file that an editor or the system has left beside it."""
    chart = TOP / "charts/aliquot"
    known = run("git", "-C", chart, "ls-files").splitlines()
    with tarfile.open(release[0]["tgz"]) as archive:
        assert sorted(archive.getnames()) == sorted(f"aliquot/{name}" for name in known)
