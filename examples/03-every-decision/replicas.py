"""One replica more of the service that waits most."""

from edgewise.core.orchestrate import AddReplica


class WhereItWaits:
    """On the node with the most free memory."""

    decision = "orchestrate"

    def reset(self, world, key):
        """Nodes are the last of the machines."""
        self.first = world.first_machine[1]

    def decide(self, view):
        """At most one command in a frame."""
        waiting = view.waiting.sum(axis=0)
        room = view.free_memory_bytes[self.first :]
        return [AddReplica(int(room.argmax()), int(waiting.argmax()))] if waiting.any() else []
