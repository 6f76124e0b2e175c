"""What a backend of tests says of all that it has no part in."""


class Alone:
    """It alone decides about its nodes, jobs and tasks are processes of this machine, and it asks nobody."""

    stays = False

    def nodes(self):
        return {}

    def jobs(self, book):
        return None

    def tasks(self):
        return None

    def keep(self, store):
        pass

    def leave(self, store):
        pass

    def counted(self):
        return ()
