"""The decision core: views, ledger, feasibility, policies. Events in, commands out; no I/O."""
