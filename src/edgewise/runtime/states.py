"""Words for how far work of a running system is: pipelines, jobs, switches, changes of a scenario.

They are kept in stores and shown by the API, so they stay as they are.
"""

WAITING, RUNNING, ENDED = "waiting", "running", "ended"
DONE, FAILED = "done", "failed"
