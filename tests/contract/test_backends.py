from typing import ClassVar

import pytest

from edgewise.testing import check_backend

backends = pytest.importorskip("edgewise.runtime.backends.local")


@pytest.mark.live
def test_the_local_backend_keeps_the_contract(tmp_path):
    check_backend(backends.LocalBackend, tmp_path)


@pytest.mark.live
def test_a_backend_that_loses_handles_is_found_out(tmp_path):
    class Forgetful(backends.LocalBackend):
        def alive(self, handle):
            return handle in getattr(self, "mine", ())

        def start(self, process):
            handle = super().start(process)
            self.mine = {handle}
            return handle

    class Seen(Forgetful):
        handles: ClassVar = []

        def start(self, process):
            self.handles.append(super().start(process))
            return self.handles[-1]

    try:
        with pytest.raises(AssertionError, match="made later"):
            check_backend(Seen, tmp_path)
    finally:
        for handle in Seen.handles:
            backends.LocalBackend(tmp_path).stop(handle, force=True)
