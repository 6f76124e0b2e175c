"""Backends: what starts and ends workers and gateways, and for whom they are alive."""
