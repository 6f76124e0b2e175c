"""`python -m edgewise`, the same as the command `edgewise`."""

from edgewise.cli import main

main()
