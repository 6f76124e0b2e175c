"""`python -m edgewise.cli`, the same as the command `edgewise`."""

from edgewise.cli import main

main()
