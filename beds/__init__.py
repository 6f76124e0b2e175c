"""Test beds: the real systems that edgewise works with, on one machine."""
