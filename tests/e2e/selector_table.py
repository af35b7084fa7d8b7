# SPDX-License-Identifier: Apache-2.0
"""Selectors in CEL, and the devices of which they are asked."""

DRIVER = "dra.example.com"
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'

DEVICES = [
    {"name": "first", "allowMultipleAllocations": True,
     "attributes": {"model": {"string": "NVIDIA H100 80GB HBM3"}, "index": {"int": 0}, "numa": {"int": 1},
                    "driverVersion": {"string": "570.124.06"}, "api": {"version": "570.1.2"}, "flag": {"bool": True},
                    "other.io/x": {"string": "é"}},
     "capacity": {"memory": {"value": "80Gi"}}},
    {"name": "second",
     "attributes": {"model": {"string": "Tesla T4"}, "index": {"int": 7}, "api": {"version": "1.2.3-rc.1"}, "flag": {"bool": False}},
     "capacity": {"memory": {"value": "16Gi"}}},
]

# Those in the part of the language that aliquot-scheduler evaluates.
SERVED = [
    "true", "false",
    f'device.driver == "{DRIVER}"',
    "device.allowMultipleAllocations",
    f'{A}.model == "Tesla T4"',
    f'{A}["model"] != "Tesla T4"',
    f'{A}.model.startsWith("NVIDIA")',
    f'{A}.model.endsWith("T4")',
    f'{A}.model.lowerAscii().contains("h100")',
    f'{A}.model.size() > 10',
    f"{A}.index < 3",
    f"{A}.index in [0, 1, 2]",
    f'{A}.model in ["Tesla T4", "A100"]',
    f'"{DRIVER}" in device.attributes',
    '"example.org" in device.attributes',
    f'"numa" in {A}',
    f"has({A}.numa)",
    'has(device.attributes["example.org"].model)',
    f"{A}.numa == 1",
    f"has({A}.numa) && {A}.numa == 1",
    f"{A}.numa == 1 && false",
    f"{A}.numa == 1 || true",
    f"{A}.numa == 1 || false",
    f"!{A}.flag",
    f"!!{A}.flag",
    f"{A}.model",
    f"{A}.flag ? true : {A}.numa == 1",
    f"{C}.memory.compareTo(quantity('20Gi')) >= 0",
    f"{C}.memory.isLessThan(quantity('2e10'))",
    f"{C}.memory == quantity('80Gi')",
    f"{C}.memory == {A}.model",
    f"{C}.memory != {A}.model",
    f"{C}.nope.isGreaterThan(quantity('1'))",
    f'{A}.api.isGreaterThan(semver("1.2.3"))',
    f'{A}.api == semver("1.2.3-rc.1")',
    f'{A}.api == "570.1.2"',
    f'semver({A}.driverVersion).major() == 570',
    f'semver({A}.driverVersion, true).isGreaterThan(semver("570.124.5"))',
    "9223372036854775807 + 1 > 0",
    f"7 / {A}.index == 1",
    f'{A}.index > "x"',
    f'{A}.model + "x" == "Tesla T4x"',
    'device.attributes["other.io"].x == "\\u00e9"',
    f'cel.bind(d, {A}, d.model == "Tesla T4" && d.index == 7)',
    f"cel.bind(x, {A}.numa, x == 1 || true)",
]

# Others that Kubernetes takes.
REFUSED = [
    f'{A}.model.matches("^NVIDIA.*")',
    "[1, 2].exists(x, x == 2)",
    f"{A}.index > 1.5",
    f"string({A}.index) == '0'",
    f"{C}.memory.asInteger() > 0",
    f'{A}.?model.orValue("x") == "Tesla T4"',
    "quantity('0.0000000001').isGreaterThan(quantity('0'))",
]
