"""The reproductions that ship, one file each; importing this package registers them."""

from edgewise_studies.papers import (
    aset as aset,
    aset_published as aset_published,
    ents as ents,
    kais as kais,
    kais_published as kais_published,
    nona as nona,
    osdec as osdec,
    osdec_live as osdec_live,
    queues as queues,
)
