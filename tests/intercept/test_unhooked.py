# SPDX-License-Identifier: Apache-2.0
"""Every entry point that could take memory, launch work or tell what there is has a decision: a hook, or a line with the
reason in src/abi/unhooked.txt. Names come from the headers of every CUDA release from 12.0 to the newest and from the
exports of the real libcuda and libnvidia-ml 535, so a new release that brings a new way around the limits fails here."""

import fnmatch
import re

import pytest
from abi import CUDA, NVML, exported
from intercept_kit import TOP

pytestmark = pytest.mark.foreign

# What could take memory or launch work ...
CUDA_WORDS = re.compile(r"Alloc|Free|Create|Destroy|Mem(?!cpy|set)|Pool|Map|Import|Export|Ipc|External|Multicast|Endpoint|"
                        r"Launch|Graph|Capture|Load|Link|Ctx|Checkpoint|Batch|Register|Limit|Reset|Reserve|Bind|Exec|Func|"
                        r"Release|Retain|Trim|EGL|GL|VDPAU")
# ... except what only tells something, and events.
CUDA_HARMLESS = re.compile(r"Get|Query|Is[A-Z]|PointerSet|TexRef|cuEvent|cuOccupancy")
# What tells how much there is and who uses it, or changes it for all.
NVML_WORDS = re.compile(r"Memory|Process|Utili[sz]|Samples|FieldValues|Accounting|Gpm|BAR1|Limits|ExportTable|"
                        r"^nvmlDevice(Set|Reset|Clear|Modify|Remove|Freeze|Create)|^nvmlGpuInstance(Create|Destroy)")
NVML_HARMLESS = re.compile(r"[vV]gpu|MemoryErrorCounter|MemoryBusWidth|MemoryAffinity|VirtualizationMode|GridLicens")
# Families in which a new member may be a new way around a limit: no wildcards there.
LITERAL = re.compile(r"^(?:cuMem|cuLaunch|cuArray|cuMipmap|cuIpc|cuImport|cuMulticast|cuModuleLoad|cuLibrary|nvmlDeviceGet)")


def decisions():
    """[(pattern, version or 0, reason)]"""
    found = []
    for line in (TOP / "src" / "abi" / "unhooked.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            name, _, version = pattern.partition("@")
            found.append((name, int(version or 0), reason.strip()))
    return found


def decided(base, version, table):
    return [d for d in table if fnmatch.fnmatchcase(base, d[0]) and d[1] in (0, version)]


@pytest.fixture(scope="module")
def cuda_entries(toolkits):
    """{(base, version)} of every versioned typedef of every release."""
    text = "".join((d / "include" / "cudaTypedefs.h").read_text() for d in toolkits.values())
    found = re.findall(r"\*PFN_(cu\w+?)_v(\d+)(?:_ptds|_ptsz)?\)\(", text)
    assert len(set(found)) > 600
    return {(base, int(version)) for base, version in found}


def plain(symbol):
    return re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", symbol)


def interesting_cuda(cuda_entries, real_driver):
    hooked = {row.base for row in CUDA if row.kind == "HOOK"}
    known = {base for base, _ in cuda_entries} | {row.base for row in CUDA}
    unnamed = {(plain(s), 0) for s in exported(f"{real_driver}/libcuda.so.1", "cu[A-Z]") if plain(s) not in known}
    return {(base, version) for base, version in cuda_entries | unnamed
            if base in hooked or (CUDA_WORDS.search(base) and not CUDA_HARMLESS.search(base))}


def interesting_nvml(toolkits, real_driver):
    names = exported(f"{real_driver}/libnvidia-ml.so.1", "nvml")
    for directory in toolkits.values():
        names |= set(re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", (directory / "include" / "nvml.h").read_text()))
    return {name for name in names if NVML_WORDS.search(name) and not NVML_HARMLESS.search(name)}


def test_every_cuda_entry_point_is_decided(cuda_entries, real_driver):
    table, hooks = decisions(), {(row.base, row.since) for row in CUDA if row.kind == "HOOK"}
    entries = interesting_cuda(cuda_entries, real_driver)
    assert len(entries) > 250
    missing = sorted(e for e in entries if e not in hooks and not decided(*e, table))
    assert not missing, f"neither hooked nor in unhooked.txt: {missing}"
    twice = sorted(e for e in entries if e in hooks and decided(*e, table))
    assert not twice, f"hooked, so these need no line in unhooked.txt: {twice}"


def test_every_variant_of_a_hook_is_hooked():
    """Of a function that is hooked no row is left to the driver: neither an older version nor the other stream's."""
    hooked = {row.base for row in CUDA if row.kind == "HOOK"}
    left = [row.symbol for row in CUDA if row.base in hooked and row.kind != "HOOK"]
    assert len(hooked) > 100 and not left, f"rows of hooked functions that are no hooks: {left}"


def test_every_nvml_function_is_decided(toolkits, real_driver):
    table, hooks = decisions(), {row.symbol for row in NVML if row.kind == "HOOK"}
    names = interesting_nvml(toolkits, real_driver)
    assert len(names) > 90
    missing = sorted(n for n in names if n not in hooks and not decided(n, 0, table))
    assert not missing, f"neither hooked nor in unhooked.txt: {missing}"
    twice = sorted(n for n in names if n in hooks and decided(n, 0, table))
    assert not twice, f"hooked, so these need no line in unhooked.txt: {twice}"


def test_decisions_are_for_something(cuda_entries, toolkits, real_driver):
    """Each line has a reason and is needed, and no wildcard stands where a new function would slip through."""
    entries = interesting_cuda(cuda_entries, real_driver) | {(n, 0) for n in interesting_nvml(toolkits, real_driver)}
    for line in decisions():
        name, version, reason = line
        assert reason, line
        assert "*" not in name or not LITERAL.match(name), line
        assert any(decided(*entry, [line]) for entry in entries), f"nothing needs this line: {line}"


def test_a_new_entry_point_would_be_noticed(cuda_entries, real_driver):
    for new in ("cuMemAllocNew", "cuLaunchKernelFoo", "cuGraphExecBar", "cuArrayCreate", "cuCtxCreate"):
        entries = cuda_entries | {(new, 99000)}
        assert (new, 99000) in interesting_cuda(entries, real_driver)
        assert not decided(new, 99000, decisions())
