# SPDX-License-Identifier: Apache-2.0
"""deploy/own-scheduler under the tests of gates, preemption and churn: what the extender and a kube-scheduler do together
does not depend on whose kube-scheduler it is."""

import pytest
from test_churn import test_pods_come_and_go, test_who_waits_is_served_when_somebody_ends  # noqa: F401 (run here)
from test_gates import (controller, reservation, test_gang_of_three, test_inspect_and_explain,  # noqa: F401
                        test_kubernetes_counts_native_names, test_plan_of_moves, test_quota_over_dialects, test_reservation)
from test_own_scheduler import world  # noqa: F401 (a cluster of this module's own)
from test_preemption import (budget, classes, make, test_budget_is_kept, test_cheapest_victim_goes,  # noqa: F401
                             test_shortage_that_kube_scheduler_sees)

pytestmark = [pytest.mark.foreign, pytest.mark.long]
