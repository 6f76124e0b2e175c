"""Benchmarks: edgewise and its peers side by side, in one run, on one core.

python -m bench [NAME ...] [--quick] [--full] [--out FOLDER]
"""
