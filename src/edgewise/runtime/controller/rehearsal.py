"""A change as `edgewise up` would ask for it, prepared in a copy of the state that goes with the answer.

It is validated and computed by what prepares a real one, so both do the same; no process reads the copy, and
namespaces are not made.
"""

from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.model.scenario import Scenario
from edgewise.runtime import disk
from edgewise.runtime.controller.difference import Deed
from edgewise.runtime.controller.plan import DATABASE, SCENARIO, prepare
from edgewise.runtime.controller.rolling import difference_of
from edgewise.runtime.store import Running, Store
from edgewise.runtime.store.copies import check_whole, copy_whole


def rehearse(folder: Path, scenario: Scenario, **how: Any) -> tuple[list[Deed], list[Running]]:
    """What a change would do, and the processes that there would be.

    Args:
        folder: state of the system, which is left as it is.
        how: as for `prepare`.
    Raises:
        EdgewiseError: as `prepare` does.
    """
    with disk.passing_folder() as copy:
        _copy(folder.resolve(), copy)
        try:
            store = prepare(copy, scenario, **how, rehearsed=folder)
        except EdgewiseError as error:
            raise type(error)(str(error).replace(str(copy), str(folder))) from None
        store.move_paths(copy, folder.resolve())
        found = difference_of(store), store.processes()
        store.close()
        return found


def _copy(folder: Path, copy: Path) -> None:
    """Copy the state of a system, as if it had always been there."""
    if not (folder / DATABASE).is_file():
        return
    check_whole(folder / DATABASE)
    copy_whole(folder / DATABASE, copy / DATABASE)
    if (folder / SCENARIO).is_file():
        disk.write_file(copy / SCENARIO, (folder / SCENARIO).read_text())
    store = Store(copy / DATABASE)
    store.move_paths(folder, copy)
    store.close()
