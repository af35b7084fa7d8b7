# SPDX-License-Identifier: Apache-2.0
"""Some seconds of `make chaos`: each kind of fault once, in an order that is always the same."""

import chaos

SECONDS = 25        # until no further fault begins; each kind comes once in any case
SEED = 7


def test_chaos(world, space):
    print(chaos.run(world, space, SECONDS, SEED, print))
