# SPDX-License-Identifier: Apache-2.0
"""What tests start can be ended by Ctrl-C, also where a shell started them in the background, which ignores it: a shell
that was started with a signal ignored cannot trap it, and a test would wait for ever.

Tests marked `waits` spend their time waiting for processes of their own: those of a module run beside each other, from the
first one on, and each is reported in its turn. All others run alone in their process, also those marked `waits(False)` in a module
whose tests are marked as a whole.

Tests marked `foreign` are about an unmodified program, library or header of another project; `make test-foreign` runs all
of them. `make test` leaves out those that are marked `long` as well. Every `long` test is `foreign`.
"""

import concurrent.futures
import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

AT_ONCE = 6
_begun = {}     # node ID: future of a test marked `waits`
_pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)


def pytest_configure(config):
    config.addinivalue_line("markers", "waits: spends its time waiting; runs beside the other such tests of its module")
    config.addinivalue_line("markers", "foreign: about a program, library or header of another project; make test-foreign")
    config.addinivalue_line("markers", "long: a foreign test that make test leaves out")


def pytest_collection_modifyitems(items):
    never = [item.nodeid for item in items if item.get_closest_marker("long") and not item.get_closest_marker("foreign")]
    if never:
        raise pytest.UsageError(f"long and not foreign, so no target runs it: {' '.join(never)}")


def pytest_unconfigure():
    _pool.shutdown(cancel_futures=True)


def _waits(item):
    marker = item.get_closest_marker("waits")
    return marker is not None and marker.args != (False,)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not _waits(pyfuncitem):
        concurrent.futures.wait(_begun.values())
        return None
    if pyfuncitem.nodeid not in _begun:
        items = pyfuncitem.session.items
        for item in items[items.index(pyfuncitem):]:
            if item.parent is pyfuncitem.parent and _waits(item):
                _begun[item.nodeid] = _pool.submit(item.obj, **_arguments(item, pyfuncitem))
    _begun.pop(pyfuncitem.nodeid).result()
    return True


def _arguments(item, first):
    """Of a test that begins before its setup: its parameters, and fixtures that outlive a test."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    found = {}
    for name in item._fixtureinfo.argnames:
        if name not in given:
            assert item._fixtureinfo.name2fixturedefs[name][-1].scope != "function", f"{item.nodeid}: {name} ends with a test"
        found[name] = given[name] if name in given else first._request.getfixturevalue(name)
    return found
