#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files of the page as C: `const struct static_file static_files[]` (src/cli/web/static.h).

Usage: embed.py OUTPUT FILE...
"""

import gzip
import pathlib
import sys

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def array(name, data):
    return [f"static const unsigned char {name}[] = {{",
            *(",".join(map(str, data[at:at + 40])) + "," for at in range(0, len(data), 40)), "};"]


def main(output, *files):
    lines = ["/* Written by embed.py. */", '#include "cli/web/static.h"', ""]
    rows = []
    for number, path in enumerate(map(pathlib.Path, files)):
        data = path.read_bytes()
        lines += array(f"file{number}", data) + array(f"gzip{number}", gzip.compress(data, mtime=0))
        where = "/" if path.name == "index.html" else "/" + path.name
        rows.append(f'    {{"{where}", "{TYPES[path.suffix]}; charset=utf-8", file{number}, sizeof(file{number}), '
                    f'gzip{number}, sizeof(gzip{number})}},')
    lines += ["const struct static_file static_files[] = {", *rows, "    {0},", "};", ""]
    pathlib.Path(output).write_text("\n".join(lines))


main(*sys.argv[1:])
