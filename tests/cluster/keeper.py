# SPDX-License-Identifier: Apache-2.0
"""Keeps one cluster alive, and leaves nothing behind when it ends.

A cluster is one process tree:

    starter (up, demo, tests)  --pipe-->  keeper  --parent of-->  init (node.py), PID 1 of the cluster

init runs in PID, mount, network, UTS and IPC namespaces of its own, so its death is the death of every
process, mount and interface of the cluster: the kernel does that, however the end came. What outlives the
namespaces (state directory, cgroups) is removed by the keeper. The keeper ends when it is told to (SIGTERM),
when init dies, or when the starter's end of the pipe closes without the word that the cluster is to be kept.
Should the keeper itself be killed, init gets SIGKILL from the kernel, and the next `up` or `down` finds the
lock free and removes the rest.
"""

import json
import os
import select
import shutil
import signal
import sys
import traceback

from . import linux, node

KEEP = b"K"


def _start_init(config, ready_write, lifeline):
    linux.unshare(linux.CLONE_NEWPID)
    alive_read, alive_write = os.pipe()     # its write end closes when the keeper dies
    pid = os.fork()
    if pid:
        os.close(alive_read)
        return pid
    try:
        os.close(lifeline)
        os.close(alive_write)
        linux.die_with_parent()
        if select.select([alive_read], [], [], 0)[0]:
            os._exit(1)     # the keeper died before the line above
        node.main(config, ready_write)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _wait_for_end(init_pid, lifeline):
    """Returns when the cluster is to end."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    init_fd = os.pidfd_open(init_pid)
    watched = [wake_read, init_fd, lifeline]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake_read in ready or init_fd in ready:
            return
        if os.read(lifeline, 1) != KEEP:
            return
        watched.remove(lifeline)


def clean_up(config):
    """Removes what outlives the namespaces. `up` and `down` call it, too, when a dead cluster's lock is free."""
    linux.cgroup_remove(config["cgroup"])
    logs = config.get("save_logs")
    if logs and os.path.isdir(os.path.join(config["state"], "logs")):
        shutil.copytree(os.path.join(config["state"], "logs"), logs, dirs_exist_ok=True)
    shutil.rmtree(config["state"], ignore_errors=True)


def main(config, lock_fd, lifeline, ready_write):
    with open(os.path.join(config["state"], "keeper.json"), "w") as f:
        json.dump({"pid": os.getpid(), "start": linux.start_time(os.getpid())}, f)
    linux.cgroup_create(config["cgroup"])
    init_pid = _start_init(config, ready_write, lifeline)
    os.close(ready_write)
    with open(os.path.join(config["state"], "init.json"), "w") as f:
        json.dump({"pid": init_pid, "start": linux.start_time(init_pid)}, f)
    _wait_for_end(init_pid, lifeline)
    os.kill(init_pid, signal.SIGKILL)
    os.waitpid(init_pid, 0)     # returns when the whole PID namespace is empty
    clean_up(config)
    with open(config["lock"]) as f:     # only our own lock: another process may have created the next one
        if os.path.sameopenfile(f.fileno(), lock_fd):
            os.unlink(config["lock"])


def command():
    """Entry point of the process: SETTINGS LOCK-FD LIFELINE-FD READY-FD."""
    main(json.loads(sys.argv[1]), *map(int, sys.argv[2:5]))
