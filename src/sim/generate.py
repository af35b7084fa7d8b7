#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what of a simulated library follows from tables.

  generate.py nvml EXPORTS OUTPUT NAMES SOURCE... --rows FILE...
  generate.py cuda EXPORTS OUTPUT NAMES SOURCE... --rows FILE... --others FILE

Both: a refusing function for every exported name that no SOURCE defines, so that the libraries
offer the names of the real ones and say NOT_SUPPORTED where they cannot do more. What a SOURCE
defines under its own name is renamed by the header NAMES and exported by a function that first
asks whether this call is to fail or to hang (client_fault), which costs a load and a branch.
cuda also: the per-thread-default-stream variants (the plain function with another meaning of
stream 0), and the table behind cuGetProcAddress.
"""
import argparse
import re
import sys

ROW = re.compile(r"CUDA_(?:FN|HOOK|USE)\(\s*(\w+),\s*(\w+),\s*(\d+),\s*(\d+),\s*(\w+),\s*"
                 r"(\([^()]*(?:\([^()]*\)[^()]*)*\)),\s*(\([^()]*\))\)")
NVML_ROW = re.compile(r"NVML_(?:FN|HOOK|USE|DENY)\(\s*(\w+),\s*(?:\w+,\s*)?(\([^()]*(?:\([^()]*\)[^()]*)*\)),\s*"
                      r"(\([^()]*\))\)")
OTHER = re.compile(r"^OTHER\((\w+), (\w+), (\d+), (\d+), (\w+)\)$", re.M)


def defined(sources):
    names = set()
    for path in sources:
        with open(path, encoding="utf-8") as f:
            names.update(re.findall(r"^(?:CUresult|nvmlReturn_t|const char \*)\s*(\w+)\(",
                                    f.read(), re.M))
    return names


def faults(result, client):
    """Whether a call is to go wrong: asked where it comes in from outside. `card` is evaluated only while faults are
    armed."""
    yield "#define fault(name, card) \\"
    yield f"    ({result}) (__builtin_expect(atomic_load_explicit(client_faults, memory_order_relaxed) == 0, 1) \\"
    yield f"                    ? 0 : client_fault({client}, (name), (card)))"


def card_of(result, name, params):
    """An expression: the card that a call is about."""
    handle = re.search(r"\bnvmlDevice_t (\w+)|\bCUdevice (\w+)", params)
    if result != "nvmlReturn_t":
        return f"cuda_card_of({handle[2]})" if handle else "cuda_card()"
    if re.match(r"nvmlDeviceGetHandleByIndex(_v\d)?$", name):
        return "nvml_card_at(index)" if "index" in params else "CLIENT_NO_CARD"
    return f"nvml_card_of({handle[1]})" if handle else "CLIENT_NO_CARD"


def exported(result, name, params, body):
    """An exported function: `body` is what it does when nothing is to go wrong."""
    yield f"{result} {name}{params} {{"
    yield f'    {result} r = fault("{name}", {card_of(result, name, params)});'
    yield f"    if (r != ({result}) 0)"
    yield "        return r;"
    yield from (f"    {line}" for line in body)
    yield "}"


def forward(result, name, params, args):
    yield f"{result} sim_{name}{params};"
    yield from exported(result, name, params, [f"return sim_{name}{args};"])


def stubs(names, result, value):
    for name in names:
        yield f'__attribute__((visibility("default"))) {result} {name}(void);'
        yield from exported(result, name, "(void)", [f"return {value};"])


def read_rows(paths, pattern, kind):
    text = "".join(open(p, encoding="utf-8").read() for p in paths)
    rows = [m.groups() for m in pattern.finditer(text)]
    expected = len(re.findall(rf"^{kind}_(?:FN|HOOK|USE|DENY)\(", text, re.M))
    if len(rows) != expected:
        sys.exit(f"generate.py: understood {len(rows)} of {expected} rows")
    return rows


def nvml(rows, exports, have):
    yield "#define SIM_EXPORTS"
    yield '#include "sim/nvml/nvml.h"'
    yield from faults("nvmlReturn_t", "nvml_client()")
    names = {r[0]: r for r in rows}
    for name in sorted(have & set(names)):
        yield from forward("nvmlReturn_t", *names[name])
    for name in [n for n in exports if n not in have and n in names]:
        body = [f"(void) {arg};" for arg in re.findall(r"\w+", names[name][2])]
        yield from exported("nvmlReturn_t", name, names[name][1], [*body, "return nvml_refuse();"])
    yield from stubs([n for n in exports if n not in have and n not in names], "nvmlReturn_t",
                     "nvml_refuse()")


def plain_name(symbol):
    return re.sub(r"_(ptds|ptsz)$", "", symbol)


def cuda(args, rows, exports, have):
    yield "#define SIM_EXPORTS"
    yield '#include "sim/cuda/cuda.h"'
    yield from faults("CUresult", "&cuda_client")
    for row in rows:
        if row[1] in have:
            yield from forward("CUresult", row[1], row[5], row[6])
    yield "static CUresult refuse(void) {"
    yield "    CUresult r = cuda_enter();"
    yield "    return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;"
    yield "}"
    for _, symbol, _, _, stream, params, names in rows:
        if stream != "PTDS" or symbol in have or plain_name(symbol) not in have:
            continue
        have.add(symbol)
        yield from exported("CUresult", symbol, params, [
            "bool before = cuda_per_thread(true);",
            f"r = sim_{plain_name(symbol)}{names};",
            "(void) cuda_per_thread(before);",
            "return r;"])
    by_symbol = {r[1]: r for r in rows}
    for name in [n for n in exports if n not in have]:
        if name in by_symbol:
            body = [f"(void) {arg};" for arg in re.findall(r"\w+", by_symbol[name][6])]
            yield from exported("CUresult", name, by_symbol[name][5], [*body, "return refuse();"])
        else:
            yield from stubs([name], "CUresult", "refuse()")
    others = OTHER.findall(open(args.others, encoding="utf-8").read())
    table = [(r[0], r[1], int(r[2]), int(r[3]), r[4]) for r in rows]
    table += [(b, s, int(a), int(u), t) for b, s, a, u, t in others]
    missing = {t[1] for t in table} - set(exports)
    if missing:
        sys.exit(f"generate.py: not among the exports: {sorted(missing)}")
    yield "const struct cuda_proc cuda_procs[] = {"
    for base, symbol, since, until, stream in sorted(table):
        yield f'    {{"{base}", (void *) {symbol}, {since}, {until}, CUDA_STREAM_{stream}}},'
    yield "};"
    yield "const size_t cuda_nprocs = sizeof(cuda_procs) / sizeof(cuda_procs[0]);"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=["cuda", "nvml"])
    p.add_argument("exports")
    p.add_argument("output")
    p.add_argument("names")
    p.add_argument("sources", nargs="*")
    p.add_argument("--rows", nargs="*", default=[])
    p.add_argument("--others")
    args = p.parse_args()
    exports = open(args.exports, encoding="utf-8").read().split()
    have = defined(args.sources)
    if args.kind == "nvml":
        rows = read_rows(args.rows, NVML_ROW, "NVML")
        renamed = have & {r[0] for r in rows}
        lines = list(nvml(rows, exports, have))
    else:
        rows = read_rows(args.rows, ROW, "CUDA")
        renamed = have & {r[1] for r in rows}
        lines = list(cuda(args, rows, exports, have))
    with open(args.names, "w", encoding="utf-8") as f:
        f.write("/* Generated by generate.py; do not edit. */\n#pragma once\n" +
                "".join(f"#define {name} sim_{name}\n" for name in sorted(renamed)))
    with open(args.output, "w", encoding="utf-8") as f:
        f.write("/* Generated by generate.py; do not edit. */\n" + "\n".join(lines) + "\n")


main()
