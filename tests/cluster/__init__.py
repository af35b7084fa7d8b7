# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes cluster on this machine, for tests and the demo. See cluster.py."""

from .api import Api, ApiError, Timeout
from .cluster import Cluster, ClusterError, names, remove_dead

__all__ = ["Api", "ApiError", "Cluster", "ClusterError", "Timeout", "names", "remove_dead"]
