"""The reproductions that ship, one file each; importing this package registers them."""

from edgewise_studies.papers import (
    aset as aset,
    ents as ents,
    kais as kais,
    nona as nona,
    osdec as osdec,
    queues as queues,
)
