"""The reproductions that ship, one file each; importing this package registers them."""

from edgewise.reproduce.cases import aset as aset
from edgewise.reproduce.cases import ents as ents
from edgewise.reproduce.cases import kais as kais
from edgewise.reproduce.cases import nona as nona
from edgewise.reproduce.cases import osdec as osdec
from edgewise.reproduce.cases import queues as queues
