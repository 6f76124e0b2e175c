"""Compiling: the decorator of kernels and their cache, and folders whose code may be run."""
