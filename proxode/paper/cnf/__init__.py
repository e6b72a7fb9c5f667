"""Continuous normalising flows that are trained by many solvers and judged by one."""
