"""The controller: brings about what is wanted, starts and ends processes, replicas and deferrable jobs."""
