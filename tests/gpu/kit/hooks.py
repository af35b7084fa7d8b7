# SPDX-License-Identifier: Apache-2.0
"""What the hooks add to calls of the driver that is there: CPU time in ns, the least of all rounds. Prints JSON."""

import json
import os
import pathlib
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TOP / "tests" / "bench")]

from intercept import Bench, measure_calls, subjects     # noqa: E402  (the path comes first)

DRIVER, REPEAT = ("rehearsal", 1) if os.environ.get("KIT_SIMULATED") else ("real", 2)
CROWD = 8


def main():
    build = TOP / "build"
    libraries = subjects(build, [])
    with tempfile.TemporaryDirectory(prefix="kit-hooks-") as directory:
        bench = Bench(build, directory)
        least = measure_calls(bench, libraries, DRIVER, REPEAT)
        begun = {s.name: bench.run(s, DRIVER, "crowd", CROWD, timeout=60) for s in libraries}
    print(json.dumps({"ns": least, f"cuInit of {CROWD} processes, ns": begun,
                      "failed": {" / ".join(key): why for key, why in bench.failed.items()}}))
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
