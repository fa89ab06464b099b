"""Experiments with several hosts: `python -m taillab.cluster load|run|rtt|sweep …` under mpirun (docs/cluster.md).

The first rank leads: it measures the clocks of the others, fixes the start, sleeps while all measure, and gathers. Every
other rank runs `taillab agent` on its host, and is silent meanwhile.
"""

from taillab.cluster.faults import ClusterError
from taillab.cluster.sweep import DataSet

__all__ = ["ClusterError", "DataSet"]
