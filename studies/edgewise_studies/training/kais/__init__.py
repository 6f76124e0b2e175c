"""Training of KaiS: cMMAC for dispatch, GPG for orchestration, both at once on batched worlds."""
