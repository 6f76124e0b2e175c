"""python -m picker_conformance."""

from picker_conformance.cli import main

main()
