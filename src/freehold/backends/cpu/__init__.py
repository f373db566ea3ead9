"""The native backend: C++ kernels over packed weights, one call a step. See csrc/."""

from freehold.backends.cpu.backend import CpuBackend, open_cpu

__all__ = ["CpuBackend", "open_cpu"]
